package collective

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/peers"
)

var key = cluster.PeerKey([]byte("a secret of 32 bytes for testing"), 2)

// newWorld returns the groups of n workers, connected over loopback. change
// may modify each Config, and may be nil.
func newWorld(t testing.TB, n int, change func(*Config)) []*Group {
	t.Helper()
	listeners, addrs := make([]net.Listener, n), make([]string, n)
	for rank := range n {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners[rank], addrs[rank] = ln, ln.Addr().String()
	}
	groups := make([]*Group, n)
	for rank := range n {
		c := Config{
			Peers: peers.Config{Self: task(rank), Key: key, Generation: 2, Workers: n},
			Rank:  rank, Addrs: append([]string(nil), addrs...), Start: patience.Limit, Silence: patience.Limit,
		}
		if change != nil {
			change(&c)
		}
		c.Listener = peers.Listen(listeners[rank], c.Peers)
		groups[rank] = New(c)
		t.Cleanup(func() { groups[rank].Close(); c.Listener.Close() })
	}
	return groups
}

// each calls f for every worker at the same time and returns the errors by
// rank.
func each(t testing.TB, groups []*Group, f func(ctx context.Context, g *Group, rank int) error) []error {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 2*patience.Limit, errors.New("the test hangs"))
	defer cancel()
	type result struct {
		rank int
		err  error
	}
	results := make(chan result, len(groups))
	for rank, g := range groups {
		go func() { results <- result{rank, f(ctx, g, rank)} }()
	}
	errs := make([]error, len(groups))
	for range groups {
		r := <-results
		errs[r.rank] = r.err
	}
	return errs
}

// must runs f on every worker, like each, and fails the test after an error.
func must(t testing.TB, groups []*Group, f func(ctx context.Context, g *Group, rank int) error) {
	t.Helper()
	for rank, err := range each(t, groups, f) {
		if err != nil {
			t.Fatalf("worker %d of %d: %v", rank, len(groups), err)
		}
	}
}

// connected returns the groups of n workers after a first collective, so that
// all of them are connected.
func connected(t testing.TB, n int, change func(*Config)) []*Group {
	t.Helper()
	groups := newWorld(t, n, change)
	must(t, groups, func(ctx context.Context, g *Group, _ int) error { return g.Barrier(ctx) })
	return groups
}

// blames fails the test unless err is a PeerError about the worker of this
// rank and contains the text what.
func blames(t *testing.T, err error, rank int, what string) {
	t.Helper()
	var peer *peers.PeerError
	if !errors.As(err, &peer) || peer.Task != task(rank) || !strings.Contains(err.Error(), what) {
		t.Errorf("got %v, want worker %d to blame, and %q", err, rank, what)
	}
}

// says fails the test unless err contains all texts in what.
func says(t *testing.T, err error, what ...string) {
	t.Helper()
	for _, w := range what {
		if !strings.Contains(fmt.Sprint(err), w) {
			t.Errorf("got %v, want %q", err, w)
		}
	}
}
