//go:build linux

package sockets

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
	"golang.org/x/sys/unix"
)

func TestSilentConnectionsLockNobodyOut(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	g := &Gate{key: cluster.PeerKey(make([]byte, cluster.SecretSize), 0), self: "agent:0", limit: 3}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	results := make(chan error, 16)
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { results <- g.Prove(ctx, conn); conn.Close() })
		}
	}()
	for range 6 { // they say nothing
		conn, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	for range 3 {
		if err := <-results; err == nil {
			t.Error("an unauthenticated connection was admitted")
		}
	}
	conn, err := Identity{Secret: make([]byte, cluster.SecretSize), HostIndex: 1}.Dial(ctx, protocol.Peer{Index: 0, Addr: ln.Addr().String()})
	if err != nil {
		t.Fatalf("kept out: %v", err)
	}
	conn.Close()
}

// Right after a network was mended a peer may still count as unreachable.
func TestReachAsksAgain(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: unix.EHOSTUNREACH}
	for _, c := range []struct {
		errs []error
		want error
		asks int
	}{
		{[]error{nil}, nil, 1},
		{[]error{refused, refused, nil}, nil, 3},
		{[]error{refused, unix.ECONNREFUSED, nil}, unix.ECONNREFUSED, 2},
		{[]error{context.DeadlineExceeded, nil}, context.DeadlineExceeded, 1},
	} {
		asked := 0
		err := untilReached(func(context.Context) (net.Conn, error) {
			asked++
			ours, theirs := net.Pipe()
			theirs.Close()
			return ours, c.errs[asked-1]
		})
		if !errors.Is(err, c.want) || asked != c.asks {
			t.Errorf("%v: %v after %d, want %v after %d", c.errs, err, asked, c.want, c.asks)
		}
	}
}

// Each reservation is of a port that none before had, until all of the range are used.
func TestReserveTakesFreshPorts(t *testing.T) {
	place, used := Place{Addr: "127.0.0.77", Low: 23501, High: 23504}, map[string]bool{}
	reserve := func() string {
		t.Helper()
		s, err := place.Reserve(used)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		return s.Addr
	}
	seen := map[string]bool{}
	for range 4 {
		seen[reserve()] = true
	}
	if len(seen) != 4 {
		t.Errorf("four reservations of four ports: %v", seen)
	}
	if again := reserve(); !seen[again] {
		t.Errorf("%s is outside of the range", again)
	}
	held, err := place.Reserve(used)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if other := reserve(); other == held.Addr {
		t.Errorf("%s is reserved twice at a time", other)
	}
}
