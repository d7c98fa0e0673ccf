package logs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"time"
)

// Serve writes the requested bytes of the spools in dir to w and then an end
// record. It sends the oldest bytes first, by the times of the indexes. Chunks of
// one source come in order, even if the clock changed, and without gaps but those that
// a chunk tells: bytes that the spool's limit has dropped.
//
// Without Follow, Serve ends at the sizes that it finds at the start. With Follow
// it continues, also with new spools, until ended returns true and a later pass
// finds no more bytes. If ended is nil, only ctx ends it.
//
// Serve returns an error and sends no end record if w fails, ctx ends, a spool
// cannot be read or is shorter than the offset to continue from, or dir does not
// exist and Follow is not set. To unblock a write, close the stream behind w.
func Serve(ctx context.Context, dir string, req Request, ended func() bool, w io.Writer) error {
	if err := req.check(); err != nil {
		return fmt.Errorf("log request: %w", err)
	}
	return newServer(dir, req, ended, w).serve(ctx)
}

// server is one call of Serve.
type server struct {
	dir      string
	req      Request
	ended    func() bool // reports whether the job has ended; nil means never
	out      *bufio.Writer
	spools   map[Source]*spool
	looked   time.Time // when dir was last read
	reopened time.Time // when the spools' files were last opened again
	sent     time.Time // when bytes were last sent to the receiver
}

const (
	minPoll     = 10 * time.Millisecond
	maxPoll     = 100 * time.Millisecond
	keepAlive   = 5 * time.Second
	reopenEvery = 2 * time.Second
	// passChunks is the largest number of chunks of a pass, so that a flood does
	// not delay new spools or the end of ctx.
	passChunks = 256
)

func newServer(dir string, req Request, ended func() bool, w io.Writer) *server {
	return &server{dir: dir, req: req, ended: ended, out: bufio.NewWriterSize(w, maxData), spools: map[Source]*spool{}, sent: time.Now()}
}

// serve is Serve for a valid request.
func (s *server) serve(ctx context.Context) error {
	defer func() {
		for _, sp := range s.spools {
			_ = sp.close() // only read from: closing can lose nothing
		}
	}()
	if _, err := s.out.WriteString(magic); err != nil {
		return err
	}
	wait, last := minPoll, false
	for {
		over := !s.req.Follow || s.ended != nil && s.ended()
		if err := s.discover(over && !last); err != nil {
			return err
		}
		last = over
		n, err := s.pass()
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if n > 0 {
			wait = minPoll
			continue
		}
		if over {
			return s.end()
		}
		if err := s.idle(ctx, wait); err != nil {
			return err
		}
		wait = min(2*wait, maxPoll)
	}
}

// discover opens new spools. If anew is set, and otherwise every two seconds, it
// also opens the known spools again, which makes their newest size visible on
// NFS.
func (s *server) discover(anew bool) error {
	now := time.Now()
	if !anew && now.Sub(s.looked) < maxPoll {
		return nil
	}
	s.looked = now
	if anew || now.Sub(s.reopened) > reopenEvery {
		s.reopened = now
		for _, sp := range s.spools {
			if err := sp.reopen(); err != nil {
				return err
			}
		}
	}
	found, err := segmentsIn(s.dir)
	// A followed job may not have begun: its folder may still appear.
	if err != nil && (!s.req.Follow || !errors.Is(err, fs.ErrNotExist)) {
		return fmt.Errorf("log folder: %w", err)
	}
	for src, begin := range found {
		if sp := s.spools[src]; sp != nil {
			sp.found(begin)
		} else if len(s.req.Tasks) == 0 || slices.Contains(s.req.Tasks, src.Task) {
			if err := s.add(src, begin); err != nil {
				return err
			}
		}
	}
	s.req = s.req.whole() // the receiver wants all bytes of spools that appear later
	return nil
}

// add opens the spool of src and announces its first offset, so that a receiver
// whose connection is lost knows where to continue. The announcement has the time
// zero, because it must not delay older bytes in a merge.
func (s *server) add(src Source, begin []int64) error {
	sp, err := openSpool(s.dir, src, begin, s.req)
	if err != nil {
		return fmt.Errorf("spool of %s: %w", src, err)
	}
	s.spools[src] = sp
	return writeChunk(s.out, Chunk{Source: src, Offset: sp.offset - sp.gap, Time: time.Unix(0, 0)})
}

// pass sends chunks, the oldest first, and returns their number.
func (s *server) pass() (n int, err error) {
	for _, sp := range s.spools {
		sp.beginPass()
	}
	for n < passChunks {
		sp, err := s.oldest()
		if err != nil {
			return n, err
		}
		if sp == nil {
			break
		}
		if err := writeChunk(s.out, sp.take()); err != nil {
			return n, err
		}
		n++
	}
	if n > 0 {
		s.sent = time.Now()
	}
	return n, s.out.Flush()
}

// oldest returns the spool with the oldest unsent chunk, or nil.
func (s *server) oldest() (*spool, error) {
	var best *spool
	for _, sp := range s.spools {
		ok, err := sp.load()
		if err != nil {
			return nil, fmt.Errorf("spool of %s: %w", sp.src, err)
		}
		if ok && (best == nil || sp.before(best)) {
			best = sp
		}
	}
	return best, nil
}

// idle waits. It sends a keep-alive if nothing was sent for keepAlive.
func (s *server) idle(ctx context.Context, wait time.Duration) error {
	if time.Since(s.sent) > keepAlive {
		s.sent = time.Now()
		if err := writeMark(s.out, kindKeepAlive); err != nil {
			return err
		}
		if err := s.out.Flush(); err != nil {
			return err
		}
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(wait):
		return nil
	}
}

// end says that all was sent, unless a spool lacks bytes sent before.
func (s *server) end() error {
	for _, sp := range s.spools {
		if err := sp.checkLength(); err != nil {
			return fmt.Errorf("spool of %s: %w", sp.src, err)
		}
	}
	if err := writeMark(s.out, kindEnd); err != nil {
		return err
	}
	return s.out.Flush()
}
