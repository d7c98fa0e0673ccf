package peers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/trainer/cluster"
)

var (
	secret = []byte("a secret of 32 bytes for testing")
	ps0    = cluster.Task{Role: cluster.PS}
)

func worker(rank int) cluster.Task { return cluster.Task{Role: cluster.Worker, Index: rank} }

// configOf returns the Config of task t in a job with 3 workers and 2 servers.
func configOf(t cluster.Task) Config {
	return Config{Self: t, Key: cluster.PeerKey(secret, 4), Generation: 4, Workers: 3, Servers: 2}
}

// journal records log lines with their levels.
type journal struct {
	mu    sync.Mutex
	lines map[slog.Level][]string
}

func (j *journal) logf(level slog.Level, format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.lines == nil {
		j.lines = map[slog.Level][]string{}
	}
	j.lines[level] = append(j.lines[level], fmt.Sprintf(format, args...))
}

func (j *journal) at(level slog.Level) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]string(nil), j.lines[level]...)
}

// open starts the listener of ps:0 on loopback. It returns its address and its
// log too.
func open(t *testing.T) (*Listener, string, *journal) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	j, c := &journal{}, configOf(ps0)
	c.Logf = j.logf
	l := Listen(ln, c)
	t.Cleanup(func() { l.Close() })
	return l, ln.Addr().String(), j
}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience.Limit)
	t.Cleanup(cancel)
	return ctx
}

// dial connects to addr as the task of Config c, for a purpose.
func dial(t *testing.T, c Config, addr, purpose string) net.Conn {
	t.Helper()
	conn, err := Dial(soon(t), c, ps0, addr, purpose)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience.Limit))
	return conn
}

// dialPlain opens a TCP connection without a proof.
func dialPlain(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience.Limit))
	return conn
}

// echo is a handler that replies with the task's name and the bytes it
// received.
func echo(p Peer) {
	defer p.Conn.Close()
	fmt.Fprintf(p.Conn, "%s ", p.Task)
	io.Copy(p.Conn, p.Conn)
}

// wantServed fails the test unless echo serves conn as a connection of this task.
func wantServed(t *testing.T, conn net.Conn, task cluster.Task) {
	t.Helper()
	if _, err := conn.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	want := task.String() + " hello"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		t.Fatalf("heard %q, %v, want %q", got, err, want)
	}
}

// wantClosed fails the test unless the other end closes conn without sending data.
func wantClosed(t *testing.T, conn net.Conn) {
	t.Helper()
	n, err := conn.Read(make([]byte, 1))
	var timeout net.Error
	if n > 0 || err == nil || errors.As(err, &timeout) && timeout.Timeout() {
		t.Fatalf("read %d bytes, %v, want a closed connection", n, err)
	}
}

// blames fails the test unless err is a PeerError about this task and contains
// the text what.
func blames(t *testing.T, err error, task cluster.Task, what string) {
	t.Helper()
	var peer *PeerError
	if !errors.As(err, &peer) || peer.Task != task || !strings.Contains(err.Error(), what) {
		t.Errorf("got %v, want %s to blame, and %q", err, task, what)
	}
}

// eventually waits until ok returns true. It fails the test if that takes too
// long.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience.Limit); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience.Limit, what)
		}
	}
}

// waitingOf returns the number of connections of a task that wait for a handler.
func (l *Listener) waitingOf(task cluster.Task) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting[task])
}
