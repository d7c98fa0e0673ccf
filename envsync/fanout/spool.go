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

// Spool is a stream that is written once, and read by many while it grows. Its bytes are
// in a file without a name, of which nothing is left, whatever ends this process.
type Spool struct {
	file  *os.File
	ended chan struct{} // closed when the stream is complete, or will never be
	err   error         // why it will never be; valid once ended is closed; nil: it is complete

	mu    sync.Mutex
	size  int64         // bytes that are written
	moved chan struct{} // closed, and replaced, when size changes
}

// NewSpool returns an empty Spool with its file in the folder dir; "": that for
// temporary files.
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

// Write adds to the stream.
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

// End says that the stream is complete, or with an error why it will never be. It must
// be called once.
func (s *Spool) End(err error) {
	s.err = err
	close(s.ended)
}

// Size returns how many bytes are written, and whether the stream has ended.
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

// Failed returns why the stream will never be complete. Nil: it is, or still grows.
func (s *Spool) Failed() error {
	select {
	case <-s.ended:
		return s.err
	default:
		return nil
	}
}

// Close waits for End and gives the file up.
func (s *Spool) Close() error {
	<-s.ended
	return s.file.Close()
}

// Copy writes the stream to w from byte from on, as far as it is there and then as it
// grows, until its end. While it does not grow, idle is called every few seconds.
func (s *Spool) Copy(ctx context.Context, w io.Writer, from int64, idle func() error) error {
	buf, tick := make([]byte, maxFrame), time.NewTicker(beatEvery)
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
			complete = true // what was written before counts
		case <-tick.C:
			if err := idle(); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
