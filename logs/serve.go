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

// Serve writes the requested bytes of the spools (stored outputs of the tasks)
// in dir to w, and then an end record. It sends the oldest bytes first, by the
// times in the spools' indexes. The chunks of one source come in order even if
// the host's clock was set back. A chunk with Dropped set stands for bytes
// that were dropped because of a spool's size limit; there are no other gaps.
//
// If req.Follow is false, Serve sends the bytes that the spools have when it
// starts. If req.Follow is true, it also sends later bytes and new spools,
// until ended returns true and no bytes are left to send. If ended is nil,
// only the end of ctx stops it.
//
// Serve returns an error and sends no end record in these cases: a write to w
// fails; ctx ends; a spool cannot be read, or is shorter than the offset at
// which the request continues; dir does not exist and req.Follow is false. To
// interrupt a blocked write, close w's underlying connection.
func Serve(ctx context.Context, dir string, req Request, ended func() bool, w io.Writer) error {
	if err := req.check(); err != nil {
		return fmt.Errorf("log request: %w", err)
	}
	return newServer(dir, req, ended, w).serve(ctx)
}

// server holds the state of one call of Serve.
type server struct {
	dir      string
	req      Request
	ended    func() bool // reports whether the job has ended; nil means never
	out      *bufio.Writer
	spools   map[Source]*spool
	looked   time.Time // time at which dir was last listed
	reopened time.Time // time at which the spools' files were last reopened
	sent     time.Time // time at which bytes were last sent to the receiver
}

const (
	minPoll     = 10 * time.Millisecond
	maxPoll     = 100 * time.Millisecond
	keepAlive   = 5 * time.Second
	reopenEvery = 2 * time.Second
	// passChunks is the largest number of chunks that one call of pass sends.
	// The limit lets Serve notice new spools (stored outputs) and the end of
	// ctx during a flood of output.
	passChunks = 256
)

func newServer(dir string, req Request, ended func() bool, w io.Writer) *server {
	return &server{dir: dir, req: req, ended: ended, out: bufio.NewWriterSize(w, maxData), spools: map[Source]*spool{}, sent: time.Now()}
}

// serve does the work of Serve for a request that was checked.
func (s *server) serve(ctx context.Context) error {
	defer func() {
		for _, sp := range s.spools {
			_ = sp.close() // ignore the error: closing a file that was only read loses nothing
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

// discover opens spools (stored outputs of tasks) that have appeared in the
// folder. NFS shows a file's new size only when the file is reopened. So
// discover also reopens the files of the known spools if anew is set or two
// seconds have passed.
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
	// With Follow, a missing folder is no error, because the job may not have
	// started yet.
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
	s.req = s.req.whole() // TailLines and Since apply only to the spools (stored outputs) that exist now. Send later spools from their first byte.
	return nil
}

// add opens the spool (stored output) of src and sends an empty chunk with its
// first offset, so that a receiver that reconnects knows where to continue.
// The chunk has the time zero: when Merge sorts chunks by time, the chunk
// comes first and delays no older bytes.
func (s *server) add(src Source, begin []int64) error {
	sp, err := openSpool(s.dir, src, begin, s.req)
	if err != nil {
		return fmt.Errorf("spool of %s: %w", src, err)
	}
	s.spools[src] = sp
	return writeChunk(s.out, Chunk{Source: src, Offset: sp.offset - sp.gap, Time: time.Unix(0, 0)})
}

// pass sends at most passChunks chunks, the oldest first, and returns their
// number.
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

// oldest returns the spool (stored output of one task) whose next unsent chunk
// is the oldest, or nil if all chunks have been sent.
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

// idle waits for the duration wait, or until ctx ends. If no bytes were sent
// for the duration keepAlive, it first sends a keep-alive record.
func (s *server) idle(ctx context.Context, wait time.Duration) error {
	if time.Since(s.sent) > keepAlive {
		s.sent = time.Now()
		if err := writeHeaderOnly(s.out, kindKeepAlive); err != nil {
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

// end sends the end record. It returns an error instead if a spool (stored
// output) has become shorter than the bytes already sent.
func (s *server) end() error {
	for _, sp := range s.spools {
		if err := sp.checkLength(); err != nil {
			return fmt.Errorf("spool of %s: %w", sp.src, err)
		}
	}
	if err := writeHeaderOnly(s.out, kindEnd); err != nil {
		return err
	}
	return s.out.Flush()
}
