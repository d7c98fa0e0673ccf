package peers

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
)

const (
	maxStrangers = 256         // connections that have not proved themselves yet
	patience     = time.Second // for a stranger, while others wait for its place
	summaryEvery = time.Minute // whoever reaches the port could otherwise fill the terminal
)

// hall is where connections are until they have proved themselves. The zero
// value is ready. enter is called by one goroutine, exit by any.
type hall struct {
	mu     sync.Mutex
	guests []guest       // in the order in which they came
	left   chan struct{} // a token: somebody has
}

type guest struct {
	conn  net.Conn
	since time.Time
}

// enter waits for a place. When there is none, whoever takes longest for its
// proof must go after a moment, so that a flood of silent connections does not
// keep the tasks of the job out. It reports false when ctx ends.
func (h *hall) enter(ctx context.Context, conn net.Conn) bool {
	for {
		h.mu.Lock()
		if h.left == nil {
			h.left = make(chan struct{}, 1)
		}
		if len(h.guests) < maxStrangers {
			h.guests = append(h.guests, guest{conn, time.Now()})
			h.mu.Unlock()
			return ctx.Err() == nil
		}
		oldest := h.guests[0]
		if time.Since(oldest.since) >= patience {
			oldest.conn.Close() // ends its proof
			h.guests = slices.Delete(h.guests, 0, 1)
		}
		h.mu.Unlock()
		timer := time.NewTimer(patience - time.Since(oldest.since))
		select {
		case <-h.left:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return false
		}
	}
}

func (h *hall) exit(conn net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.guests = slices.DeleteFunc(h.guests, func(g guest) bool { return g.conn == conn })
	select {
	case h.left <- struct{}{}:
	default: // it will look anyway
	}
}

// seldom tells of what strangers can make happen any number of times: of the
// first at once, then of many in one line. Its methods may be called by any
// goroutine.
type seldom struct {
	tell func(count int, last string)

	mu    sync.Mutex
	count int // since the last line
	last  string
	timer *time.Timer // runs for summaryEvery after a line
	ended bool
}

// note counts what happened once more; last describes it.
func (s *seldom) note(last string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	s.last = last
	if s.timer == nil && !s.ended {
		s.summarise()
	}
}

// summarise needs s.mu.
func (s *seldom) summarise() {
	s.tell(s.count, s.last)
	s.count = 0
	s.timer = time.AfterFunc(summaryEvery, s.minute)
}

// minute tells what came since the last line.
func (s *seldom) minute() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = nil
	if s.count > 0 && !s.ended {
		s.summarise()
	}
}

// end makes sure that nothing more is told.
func (s *seldom) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if s.timer != nil {
		s.timer.Stop()
	}
}

// host is addr without its port, where it has one.
func host(addr string) string {
	if h, _, err := net.SplitHostPort(addr); err == nil {
		return h
	}
	return addr
}

// unproved says in words how a connection failed to prove itself.
func unproved(err error) string {
	switch {
	case errors.Is(err, cluster.ErrProof):
		return err.Error()
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.Is(err, net.ErrClosed):
		return "it did not prove the job's secret in time"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "it hung up before it proved the job's secret"
	}
	return "connection lost before it proved the job's secret"
}

// unclaimed reports whether a connection ended before anything was claimed on
// it: a task that died or gave up does that, and a look at an open port.
func unclaimed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
}
