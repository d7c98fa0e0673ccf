package collective

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/netcut"
	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

// cut closes all connections of a worker, as happens when its process dies.
func (g *Group) cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, l := range g.links {
		if l != nil {
			l.Session.Close()
		}
	}
}

// waitRunning waits until this worker has begun a collective.
func (g *Group) waitRunning() {
	for {
		g.mu.Lock()
		begun := g.current != nil
		g.mu.Unlock()
		if begun {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func TestAllWorkersNameAKilledPeer(t *testing.T) {
	for _, n := range []int{0, 10, 1 << 20} {
		groups := connected(t, 4, nil)
		errs := each(t, groups, func(ctx context.Context, g *Group, rank int) error {
			if rank == 1 {
				g.cut()
				return nil
			}
			return g.AllReduce(ctx, make([]float32, n))
		})
		for rank, err := range errs {
			if rank != 1 {
				blames(t, err, 1, "connection lost")
				says(t, groups[rank].Barrier(t.Context()), "Barrier is not possible any more", "worker:1", "connection lost")
			}
		}
	}
}

// A worker dies while it transfers much data.
func TestAllWorkersNameAPeerKilledDuringATransfer(t *testing.T) {
	groups := connected(t, 3, nil)
	errs := each(t, groups, func(ctx context.Context, g *Group, rank int) error {
		if rank == 2 {
			go func() {
				for {
					g.mu.Lock()
					l := g.links[0]
					begun := g.begun > 1 && l.announced == g.begun && l.rest == nil // the transfer of data has begun
					g.mu.Unlock()
					if begun {
						g.cut()
						return
					}
				}
			}()
		}
		var err error
		for err == nil {
			err = g.AllReduce(ctx, make([]float32, 8<<20))
		}
		return err
	})
	blames(t, errs[0], 2, "")
	blames(t, errs[1], 2, "")
}

// The network of one worker is cut, during a large transfer or none. The other
// workers must give up after the time Config.Silence, and all must name that
// worker.
func TestAllWorkersNameAFrozenPeer(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, n := range []int{0, 4 << 20} {
		var v *netcut.Proxy
		groups := newWorld(t, 3, func(c *Config) {
			if v == nil {
				v = netcut.New(t, c.Addrs[0])
			}
			c.Addrs[0] = v.Addr()
			c.Silence = 1500 * time.Millisecond
		})
		must(t, groups, func(ctx context.Context, g *Group, _ int) error { return g.Barrier(ctx) })
		began := time.Now()
		errs := each(t, groups, func(ctx context.Context, g *Group, rank int) error {
			if rank == 0 {
				time.AfterFunc(20*time.Millisecond, v.Shut)
			}
			var err error
			for err == nil {
				err = g.AllReduce(ctx, make([]float32, n))
			}
			return err
		})
		blames(t, errs[1], 0, "silent")
		blames(t, errs[2], 0, "silent")
		if errs[0] == nil || !errors.Is(errs[0], wire.ErrPeerTimeout) {
			t.Errorf("the frozen one: %v", errs[0])
		}
		if took := time.Since(began); took > patience.Limit/2 {
			t.Errorf("took %v", took)
		}
	}
}

func TestEndOfContextEndsTheCollective(t *testing.T) {
	reason := errors.New("the user has had enough")
	for _, n := range []int{0, 1 << 20} {
		groups := connected(t, 3, nil)
		errs := each(t, groups, func(ctx context.Context, g *Group, rank int) error {
			if rank == 2 { // this worker does not call the collective
				<-g.failed
				return g.Barrier(ctx)
			}
			if rank == 1 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeoutCause(ctx, 50*time.Millisecond, reason)
				defer cancel()
			}
			return g.AllReduce(ctx, make([]float32, n))
		})
		if !errors.Is(errs[1], reason) {
			t.Errorf("got %v", errs[1])
		}
		blames(t, errs[0], 1, "had enough")
		blames(t, errs[2], 1, "had enough")
	}
	g := newWorld(t, 1, nil)[0]
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	if err := g.Barrier(ctx); !errors.Is(err, reason) {
		t.Errorf("alone: %v", err)
	}
}

func TestAbsentWorkerIsNamed(t *testing.T) {
	groups := newWorld(t, 4, func(c *Config) { c.Start = 1500 * time.Millisecond }) // long enough for all other workers to connect
	absent := 1
	errs := each(t, groups, func(ctx context.Context, g *Group, rank int) error {
		if rank == absent {
			return nil
		}
		return g.Barrier(ctx)
	})
	for rank, err := range errs {
		if rank != absent {
			blames(t, err, absent, "not ready within 1.5s")
		}
	}
	// The absent worker calls its first collective too late. It must get an
	// error at once, from another worker's report or from closed connections.
	began := time.Now()
	if err := groups[absent].Barrier(t.Context()); err == nil || time.Since(began) > patience.Limit/2 {
		t.Errorf("late one: %v after %v", err, time.Since(began))
	}
}

func TestWrongSecretFailsAtOnce(t *testing.T) {
	groups := newWorld(t, 2, func(c *Config) {
		c.Start = patience.Limit
		if c.Rank == 1 {
			c.Peers.Key = cluster.PeerKey([]byte("another secret"), 2)
		}
	})
	began := time.Now()
	err := groups[1].Barrier(t.Context())
	blames(t, err, 0, cluster.ErrProof.Error())
	if took := time.Since(began); took > patience.Limit/2 {
		t.Errorf("took %v", took)
	}
}

func TestCloseIsReportedToOtherWorkers(t *testing.T) {
	groups := connected(t, 3, nil)
	errs := each(t, groups, func(ctx context.Context, g *Group, rank int) error {
		if rank == 1 {
			return g.Close()
		}
		return g.Barrier(ctx)
	})
	blames(t, errs[0], 1, "has left")
	blames(t, errs[2], 1, "has left")
	says(t, groups[1].Barrier(t.Context()), errClosed.Error())
	for _, g := range groups {
		began := time.Now()
		g.Close()
		if took := time.Since(began); took > goodbyeTimeout/2 {
			t.Errorf("closing took %v", took)
		}
	}
}

// A worker may close its group as soon as its own collective has returned. The
// other workers must still receive what it sent.
func TestCloseSendsAllDataFirst(t *testing.T) {
	for range 10 {
		must(t, newWorld(t, 3, nil), func(ctx context.Context, g *Group, rank int) error {
			x := make([]float32, 1<<19)
			x[len(x)-1] = 7
			if err := g.Broadcast(ctx, x, 0); err != nil {
				return err
			}
			if err := g.AllReduce(ctx, x); err != nil {
				return err
			}
			if x[len(x)-1] != 21 {
				return fmt.Errorf("got %v", x[len(x)-1])
			}
			return g.Close()
		})
	}
}

func TestCloseDuringACollectiveFailsOnAllWorkers(t *testing.T) {
	for _, n := range []int{0, 1 << 20} {
		groups := connected(t, 3, nil)
		errs := each(t, groups, func(ctx context.Context, g *Group, rank int) error {
			if rank == 2 {
				<-g.failed
				return g.Barrier(ctx)
			}
			if rank == 1 {
				go func() { g.waitRunning(); g.Close(); g.Close() }()
			}
			return g.AllReduce(ctx, make([]float32, n))
		})
		if !errors.Is(errs[1], errClosed) {
			t.Errorf("got %v", errs[1])
		}
		blames(t, errs[0], 1, errClosed.Error())
		blames(t, errs[2], 1, errClosed.Error())
	}
}

func TestConcurrentCollectivesFail(t *testing.T) {
	groups := connected(t, 2, nil)
	first := make(chan error, 1)
	go func() { first <- groups[0].Barrier(t.Context()) }()
	groups[0].waitRunning()
	for _, err := range []error{groups[0].Barrier(t.Context()), <-first} {
		if !errors.Is(err, errConcurrent) {
			t.Errorf("got %v", err)
		}
	}
	err := groups[1].Barrier(t.Context()) // on this worker the first Barrier may have succeeded
	if err == nil {
		err = groups[1].Barrier(t.Context())
	}
	blames(t, err, 0, errConcurrent.Error())
}

// A connection from an unexpected task, or a second one from a connected
// worker, is closed and disturbs no collective.
func TestUnexpectedConnectionsAreClosed(t *testing.T) {
	groups := connected(t, 3, nil)
	addr := groups[1].config.Addrs[1]
	for _, as := range []int{0, 1, 2} {
		conn, err := peers.Dial(t.Context(), groups[as].config.Peers, task(1), addr, purpose)
		if err != nil {
			t.Fatal(err)
		}
		conn.SetReadDeadline(time.Now().Add(patience.Limit))
		if n, err := io.Copy(io.Discard, conn); n > 1 || err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("as worker %d: %d bytes, %v", as, n, err)
		}
		conn.Close()
	}
	must(t, groups, func(ctx context.Context, g *Group, _ int) error { return g.Barrier(ctx) })
}
