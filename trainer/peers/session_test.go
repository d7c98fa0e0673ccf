package peers

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/trainer/wire"
)

// pair returns both sessions of a connection between worker:0 and worker:1.
// of0 belongs to worker:0.
func pair(t *testing.T) (of0, of1 *Session) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	dialled, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	of0 = NewSession(Peer{Task: worker(1), Addr: "host1", Conn: dialled}, 3, patience.Limit)
	of1 = NewSession(Peer{Task: worker(0), Addr: "host0", Conn: accepted}, 3, patience.Limit)
	t.Cleanup(func() { of0.Close(); of1.Close() })
	return of0, of1
}

// read starts a reader that discards every frame. Its channel returns the
// error that ended the reader.
func read(s *Session) <-chan error {
	ended := make(chan error, 1)
	go func() {
		for {
			if _, err := s.Next(); err != nil {
				ended <- err
				s.Drain()
				return
			}
		}
	}()
	return ended
}

func TestSessionReportsWhyItEnds(t *testing.T) {
	for _, test := range []struct {
		why  error
		want string
		task int
	}{
		{errors.New("the disk is full"), "worker:0 (host0) reports: worker:0 (host0): the disk is full", 0},
		{&PeerError{Task: worker(2), Addr: "host2", Err: errors.New("silent")}, "worker:0 (host0) reports: worker:2 (host2): silent", 2},
	} {
		a, b := pair(t)
		read(a)
		heard := read(b)
		began := time.Now()
		go func() { // like a task that learns that training has ended
			<-b.over
			b.Close()
		}()
		a.CloseWithError(test.why, patience.Limit)
		if took := time.Since(began); took > patience.Limit/2 {
			t.Errorf("took %v", took)
		}
		err := <-heard
		blames(t, err, worker(test.task), test.want)
		if again := b.Blame(err); again != err {
			t.Errorf("blamed again: %v", again)
		}
		if err := b.SendFailed(errors.New("broken pipe")); !strings.Contains(err.Error(), test.want) {
			t.Errorf("a failed send is explained by %v", err)
		}
	}
}

func TestSessionBlamesTheLostPeer(t *testing.T) {
	a, b := pair(t)
	lost := read(a)
	b.Close()
	err := <-lost
	blames(t, a.Blame(err), worker(1), "worker:1 (host1): connection lost")
	blames(t, a.SendFailed(errors.New("any")), worker(1), "connection lost")
}

// CloseWithError and Goodbye must return in time even if the peer never closes the
// connection.
func TestSessionEndsInBoundedTime(t *testing.T) {
	for name, end := range map[string]func(*Session) error{
		"report": func(s *Session) error {
			s.CloseWithError(errors.New("why"), 50*time.Millisecond)
			return s.Blame(errors.New("told"))
		},
		"goodbye": func(s *Session) error { return s.Goodbye(50 * time.Millisecond) },
	} {
		a, _ := pair(t) // no goroutine reads at the other end
		read(a)
		began := time.Now()
		if err := end(a); err == nil {
			t.Errorf("%s: no error", name)
		}
		if took := time.Since(began); took > patience.Limit/2 {
			t.Errorf("%s: took %v", name, took)
		}
	}
}

// Frames sent before a goodbye must arrive before it, whichever end sends its
// goodbye first.
func TestDataBeforeAGoodbyeArrives(t *testing.T) {
	for _, both := range []bool{false, true} {
		a, b := pair(t)
		ended := read(a)
		const frames = 100
		for range frames {
			if err := a.Send(wire.Frame{Header: wire.Header{Kind: wire.Chunk}}); err != nil {
				t.Fatal(err)
			}
		}
		said := make(chan error, 2)
		go func() { said <- a.Goodbye(patience.Limit) }()
		go func() {
			n := 0
			for {
				if _, err := b.Next(); err != nil {
					if n != frames || !errors.Is(err, ErrGoodbye) {
						t.Errorf("%d frames before %v", n, err)
					}
					break
				}
				n++
			}
			if _, err := b.Next(); !errors.Is(err, ErrGoodbye) {
				t.Errorf("after the goodbye: %v", err)
			}
			if !both {
				if err := b.Bye(); err != nil {
					t.Error(err)
				}
			}
			b.Drain()
		}()
		if both {
			go func() { said <- b.Goodbye(patience.Limit) }()
			if err := <-said; err != nil {
				t.Error(err)
			}
		}
		if err := <-said; err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, ErrGoodbye) {
			t.Errorf("the answer is %v", err)
		}
	}
}
