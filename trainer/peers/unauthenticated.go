package peers

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
)

// noticeEvery bounds the lines about unauthenticated connections: whoever
// reaches the port could otherwise fill the terminal.
const noticeEvery = time.Minute

// notices logs an event that an unauthenticated peer can repeat at will: the
// first one at once, later ones once a minute in one line. Any goroutine may
// call its methods.
type notices struct {
	config Config
	level  slog.Level
	one    string // format of a single event: its description
	many   string // format of several events: their number, the last description

	mu    sync.Mutex
	count int    // events since the last line
	last  string // description of the last event
	timer *time.Timer
	ended bool
}

// note counts one more event, which last describes.
func (n *notices) note(last string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.count++
	n.last = last
	if n.timer == nil && !n.ended {
		n.print()
	}
}

// print logs one line and starts the minute. The caller holds n.mu.
func (n *notices) print() {
	if n.count == 1 {
		n.config.logf(n.level, n.one, n.last)
	} else {
		n.config.logf(n.level, n.many, n.count, n.last)
	}
	n.count = 0
	n.timer = time.AfterFunc(noticeEvery, n.minute)
}

// minute logs the events since the last line.
func (n *notices) minute() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.timer = nil
	if n.count > 0 && !n.ended {
		n.print()
	}
}

// end drops every later event.
func (n *notices) end() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ended = true
	if n.timer != nil {
		n.timer.Stop()
	}
}

// host is addr without its port.
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

// unclaimed reports whether a connection ended before the peer claimed to be
// anyone. A task that died or gave up does that, and so does a port scan.
func unclaimed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
}
