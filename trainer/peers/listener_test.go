package peers

import (
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/cluster/channel"
)

func TestConnectionsReachTheHandlerOfTheirPurpose(t *testing.T) {
	l, addr, _ := open(t)
	l.Handle("owner", echo)
	l.Handle("mesh", func(p Peer) {
		p.Conn.Write([]byte("mesh"))
		p.Conn.Close()
	})
	tasks := []cluster.Task{worker(0), worker(2), {Role: cluster.PS, Index: 1}, ps0} // a task may also dial its own listener
	for _, task := range tasks {
		wantServed(t, dial(t, configOf(task), addr, "owner"), task)
	}
	b := make([]byte, 8)
	if n, err := dial(t, configOf(worker(0)), addr, "mesh").Read(b); string(b[:n]) != "mesh" {
		t.Errorf("mesh says %q, %v", b[:n], err)
	}
}

func TestEarlyConnectionWaitsForItsHandler(t *testing.T) {
	l, addr, journal := open(t)
	l.Handle("mesh", echo)
	first, other, second := dial(t, configOf(worker(1)), addr, "owner"), dial(t, configOf(worker(2)), addr, "owner"), (net.Conn)(nil)
	eventually(t, "both wait", func() bool { return l.waitingOf(worker(1)) == 1 && l.waitingOf(worker(2)) == 1 })
	second = dial(t, configOf(worker(1)), addr, "owner")
	wantClosed(t, second)
	if got := journal.at(slog.LevelWarn); len(got) != 1 || !strings.Contains(got[0], `worker:1 already waits for "owner"`) {
		t.Errorf("told %q", got)
	}
	l.Handle("owner", echo)
	wantServed(t, first, worker(1))
	wantServed(t, other, worker(2))
	wantServed(t, dial(t, configOf(worker(1)), addr, "owner"), worker(1))
	l.Handle("owner", nil)
	dial(t, configOf(worker(1)), addr, "owner")
	eventually(t, "it waits again", func() bool { return l.waitingOf(worker(1)) == 1 })
}

func TestWaitingConnectionsAreLimited(t *testing.T) {
	l, addr, _ := open(t)
	for i := range maxWaiting {
		dial(t, configOf(worker(1)), addr, strings.Repeat("x", i+1))
	}
	eventually(t, "all wait", func() bool { return l.waitingOf(worker(1)) == maxWaiting })
	wantClosed(t, dial(t, configOf(worker(1)), addr, "one-more"))
	dial(t, configOf(worker(2)), addr, "one-more")
	eventually(t, "another task's waits", func() bool { return l.waitingOf(worker(2)) == 1 })
}

func TestTasksOfAnotherJobAreRefused(t *testing.T) {
	l, addr, journal := open(t)
	l.Handle("owner", echo)
	for _, task := range []cluster.Task{worker(3), {Role: cluster.PS, Index: 2}, worker(-1), {Role: "chief"}, {}} {
		wantClosed(t, dial(t, configOf(task), addr, "owner"))
	}
	eventually(t, "it is told", func() bool { return len(journal.at(slog.LevelDebug)) == 5 })
	if got := journal.at(slog.LevelWarn); len(got) != 1 || !strings.Contains(got[0], `"worker:3" is no task of this job`) {
		t.Errorf("told %q", got)
	}
}

func TestCloseClosesWaitingConnections(t *testing.T) {
	l, addr, _ := open(t)
	waiting, silent := dial(t, configOf(worker(1)), addr, "owner"), dialPlain(t, addr)
	half := dialPlain(t, addr)
	half.Write([]byte("plx-peer-1\n\x0eworker:1/owner"))
	eventually(t, "it waits", func() bool { return l.waitingOf(worker(1)) == 1 })
	began, finish, ended := make(chan Peer), make(chan bool), make(chan error, 1)
	l.Handle("mesh", func(p Peer) { began <- p; <-finish; p.Conn.Close() })
	served := dial(t, configOf(worker(2)), addr, "mesh")
	<-began
	go func() { ended <- l.Close() }()
	for _, conn := range []net.Conn{waiting, silent, half} {
		wantClosed(t, conn)
	}
	select {
	case err := <-ended:
		t.Fatalf("ended before serve did: %v", err)
	default:
	}
	close(finish)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	wantClosed(t, served)
	if err := l.Close(); err != nil {
		t.Errorf("closed again: %v", err)
	}
	l.Handle("late", func(Peer) { t.Error("served after the end") })
	if conn, err := net.Dial("tcp", addr); err == nil {
		conn.Close()
		t.Error("it still listens")
	}
}

// Tasks, unauthenticated connections and calls of Handle run at the same time
// as Close. Each authenticated connection must be served or closed.
func TestCloseAtAnyMoment(t *testing.T) {
	for range 30 {
		l, addr, _ := open(t)
		var all sync.WaitGroup
		for i := range 12 {
			all.Go(func() {
				purpose := []string{"owner", "mesh", "never"}[i%3]
				if i == 0 {
					l.Handle("owner", echo)
					l.Handle("mesh", echo)
					return
				}
				conn, err := net.Dial("tcp", addr)
				if err != nil {
					return // the listener is closed already
				}
				defer conn.Close()
				if i > 8 {
					conn.Write([]byte("GET / HTTP/1.1\r\n\r\n")) // an error does not matter: the listener may be closed already
					return
				}
				protected, err := channel.Dial(t.Context(), conn, configOf(ps0).channel(), worker(i%3).String()+"/"+purpose, "ps:0/"+purpose)
				if err == nil && purpose == "mesh" {
					protected.Write([]byte("hello"))
				}
			})
		}
		all.Go(func() { l.Close() })
		all.Go(func() { l.Close() })
		all.Wait()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
