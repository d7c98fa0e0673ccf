package fanout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// Spool is a stream that one goroutine writes once and many goroutines read
// while it grows. Its bytes are in an unlinked temporary file. The kernel
// deletes the file when this process ends, even if the process is killed.
type Spool struct {
	file  *os.File
	ended chan struct{} // closed by the method End: nothing more will be written
	err   error         // why the stream could not be completed, or nil if it is complete; valid after ended is closed

	mu    sync.Mutex
	size  int64         // number of bytes written so far
	moved chan struct{} // closed and replaced whenever size changes
}

// NewSpool returns an empty Spool whose file is in the folder dir. An empty
// dir means os.TempDir().
func NewSpool(dir string) (*Spool, error) {
	file, err := os.CreateTemp(dir, "plx-send-*")
	if err != nil {
		return nil, fmt.Errorf("make a temporary file: %w", err)
	}
	if err := os.Remove(file.Name()); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &Spool{file: file, moved: make(chan struct{}), ended: make(chan struct{})}, nil
}

// Write appends b to the stream.
func (s *Spool) Write(b []byte) (int, error) {
	n, err := s.file.Write(b)
	if err != nil {
		return n, fmt.Errorf("write a temporary file: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.size += int64(n)
	close(s.moved)
	s.moved = make(chan struct{})
	return n, nil
}

// End marks the end of the stream. A nil err means that the stream is
// complete. Any other err is the reason why the stream will never be complete.
// End must be called exactly once.
func (s *Spool) End(err error) {
	s.err = err
	close(s.ended)
}

// Size returns the number of bytes written so far, and whether End was called.
func (s *Spool) Size() (size int64, ended bool) {
	select {
	case <-s.ended:
		ended = true
	default:
	}
	size, _ = s.written()
	return size, ended
}

func (s *Spool) written() (size int64, moved <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size, s.moved
}

// Failed returns the error that was passed to End. It returns nil if the
// stream is complete or still grows.
func (s *Spool) Failed() error {
	select {
	case <-s.ended:
		return s.err
	default:
		return nil
	}
}

// Close waits until End is called, then closes the file.
func (s *Spool) Close() error {
	<-s.ended
	return s.file.Close()
}

// Copy writes the stream to w, beginning at byte from, and follows its growth
// until End. While the stream does not grow, Copy calls idle every few
// seconds.
func (s *Spool) Copy(ctx context.Context, w io.Writer, from int64, idle func() error) error {
	buf, tick := make([]byte, maxFrame), time.NewTicker(heartbeatEvery)
	defer tick.Stop()
	for complete := false; ; {
		size, moved := s.written()
		if from < size {
			n, err := s.file.ReadAt(buf[:min(int64(len(buf)), size-from)], from)
			if err != nil {
				return fmt.Errorf("read a temporary file: %w", err)
			}
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
			from += int64(n)
			continue
		}
		if complete {
			return s.err
		}
		select {
		case <-moved:
		case <-s.ended:
			complete = true // read once more, because bytes may have been written before End was called
		case <-tick.C:
			if err := idle(); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
