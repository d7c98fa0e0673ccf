package logs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// Serve writes the wanted bytes of the spools in dir to w, oldest first as far
// as their indexes tell, and then an end record. Chunks of one source come in
// order and without gaps, whatever the clock did.
//
// Without Follow it ends at the sizes it met. With Follow it goes on, new
// spools included, until a pass that began after ended returned true finds
// nothing more; ended may be nil, then only ctx ends it. It returns an error,
// and sends no end record, when w fails, when a spool cannot be read or is
// shorter than what it is to be continued from, when ctx ends, and without
// Follow when there is no dir. A write that blocks is the caller's to unblock:
// by closing what is behind w.
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
	ended    func() bool
	out      *bufio.Writer
	spools   map[Source]*spool
	looked   time.Time // when dir was last read
	reopened time.Time
	sent     time.Time
}

const (
	minPoll     = 10 * time.Millisecond
	maxPoll     = 100 * time.Millisecond
	keepAlive   = 5 * time.Second
	reopenEvery = 2 * time.Second
	// passChunks bounds a pass, so that a flood hides neither new spools nor ctx.
	passChunks = 256
)

func newServer(dir string, req Request, ended func() bool, w io.Writer) *server {
	return &server{
		dir:    dir,
		req:    req,
		ended:  ended,
		out:    bufio.NewWriterSize(w, maxData),
		spools: map[Source]*spool{},
		sent:   time.Now(),
	}
}

// serve is the whole of Serve for a request that was checked.
func (s *server) serve(ctx context.Context) error {
	defer s.close()
	if _, err := s.out.WriteString(magic); err != nil {
		return err
	}
	return s.run(ctx)
}

func (s *server) run(ctx context.Context) error {
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

// discover opens the spools that have appeared. With anew set, and now and
// then, it also opens the known ones again: on NFS that is what makes the
// newest size visible.
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
	entries, err := os.ReadDir(s.dir)
	// A job that is followed may not have begun: its folder may yet come.
	if err != nil && (!s.req.Follow || !errors.Is(err, os.ErrNotExist)) {
		return fmt.Errorf("log folder: %w", err)
	}
	for _, e := range entries {
		src, ok := sourceOf(e.Name())
		if !ok || s.spools[src] != nil || !s.req.wants(src) {
			continue
		}
		if err := s.add(src); err != nil {
			return err
		}
	}
	// Whatever appears from now on is new: all of it is wanted.
	s.req.TailLines, s.req.Since = -1, time.Time{}
	return nil
}

// add opens the spool of src and announces where it starts, so that a receiver
// that is cut off knows where it stood. The announcement has no time: it must
// not hold back older bytes in a merge.
func (s *server) add(src Source) error {
	sp, err := openSpool(filepath.Join(s.dir, src.file()), src, s.req)
	if err != nil {
		return fmt.Errorf("spool of %s: %w", src, err)
	}
	s.spools[src] = sp
	return writeChunk(s.out, Chunk{Source: src, Offset: sp.offset, Time: time.Unix(0, 0)})
}

// pass sends what is there, the oldest chunk first, and returns how many.
func (s *server) pass() (n int, err error) {
	for _, sp := range s.spools {
		sp.dry = false
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

// oldest returns the spool with the oldest unsent chunk, nil when there is none.
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

// idle waits, and sends a keep-alive when nothing was sent for long.
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
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
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

func (s *server) close() {
	for _, sp := range s.spools {
		_ = sp.close() // only read from: closing can lose nothing
	}
}
