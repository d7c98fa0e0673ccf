package peers

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/cluster/channel"
)

func TestDialDoesNotRetryARefusedProof(t *testing.T) {
	l, addr, journal := open(t)
	l.Handle("owner", func(p Peer) { t.Errorf("%s was let in", p.Task); p.Conn.Close() })
	old, stranger := configOf(worker(1)), configOf(worker(1))
	old.Key = cluster.PeerKey(secret, 3)
	stranger.Key = cluster.PeerKey([]byte("another secret"), 4)
	for _, test := range []struct {
		name string
		c    Config
		to   cluster.Task
	}{
		{"old generation", old, ps0},
		{"wrong secret", stranger, ps0},
		{"other task", configOf(worker(1)), cluster.Task{Role: cluster.PS, Index: 1}},
	} {
		_, err := Dial(soon(t), test.c, test.to, addr, "owner")
		if !errors.Is(err, cluster.ErrProof) {
			t.Errorf("%s: %v", test.name, err)
		}
		blames(t, err, test.to, addr)
	}
	if got := journal.at(slog.LevelInfo); len(got) != 1 {
		t.Errorf("told %q", got)
	}
}

// A proof for one purpose must not be accepted for another purpose, and an
// invalid purpose must be refused.
func TestProofCoversThePurpose(t *testing.T) {
	l, addr, _ := open(t)
	served := make(chan Peer, 8)
	l.Handle("owner", func(p Peer) { served <- p })
	l.Handle("mesh", func(p Peer) { served <- p })
	key := configOf(ps0).Key
	for _, names := range [][2]string{
		{"worker:1/mesh", "ps:0/owner"}, {"worker:1/owner", "ps:0/mesh"}, {"worker:1", "ps:0/owner"},
		{"worker:1/owner", "ps:0"}, {"worker:1/owner/mesh", "ps:0/owner"},
	} {
		if err := cluster.Dial(soon(t), dialPlain(t, addr), key, names[0], names[1]); !errors.Is(err, cluster.ErrProof) {
			t.Errorf("%q: %v", names, err)
		}
	}
	for _, purpose := range []string{"", "/", "Mesh", "mesh/", "owner/mesh", "a b", strings.Repeat("x", maxPurpose+1)} {
		conn := dialPlain(t, addr)
		if _, err := channel.Dial(soon(t), conn, configOf(ps0).channel(), "worker:1/"+purpose, "ps:0/"+purpose); err != nil {
			t.Fatalf("%q: %v", purpose, err)
		}
		wantClosed(t, conn)
		_, err := Dial(soon(t), configOf(worker(1)), ps0, addr, purpose)
		blames(t, err, ps0, "purpose")
	}
	l.Close()
	if len(served) > 0 {
		t.Errorf("%d were served", len(served))
	}
}

func TestDialRetriesUntilTheTaskListens(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	got := make(chan error, 1)
	go func() {
		conn, err := Dial(soon(t), configOf(worker(0)), ps0, addr, "owner")
		if err == nil {
			conn.Close()
		}
		got <- err
	}()
	if ln, err = net.Listen("tcp", addr); err != nil {
		t.Fatal(err)
	}
	rude, err := ln.Accept() // accept and close before the proof, like a task that dies
	if err != nil {
		t.Fatal(err)
	}
	rude.Close()
	l := Listen(ln, configOf(ps0))
	defer l.Close()
	if err := <-got; err != nil {
		t.Error(err)
	}
}

func TestDialEndsWithItsContext(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts connections, but no process reads them
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	reason := errors.New("the job was interrupted")
	for _, test := range []struct{ addr, what string }{
		{ln.Addr().String(), "interrupted"},
		{"127.0.0.1:1", "refused"}, // a port that the kernel never assigns, so no process listens
	} {
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, reason)
		began := time.Now()
		_, err := Dial(ctx, configOf(worker(0)), ps0, test.addr, "owner")
		cancel()
		blames(t, err, ps0, test.what)
		if took := time.Since(began); !errors.Is(err, reason) || took > patience.Limit {
			t.Errorf("%v after %v", err, took)
		}
	}
}
