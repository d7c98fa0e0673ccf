package mesh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/valve"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

// cut ends all of a mesh's connections, as when its process dies.
func (m *Mesh) cut() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.links {
		if l != nil {
			l.conn.Close()
		}
	}
}

// begun waits until a collective has.
func (m *Mesh) begun() {
	for {
		m.mu.Lock()
		begun := m.current != nil
		m.mu.Unlock()
		if begun {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func TestKilledPeerIsNamedToAll(t *testing.T) {
	for _, n := range []int{0, 10, 1 << 20} {
		meshes := connected(t, 4, nil)
		errs := each(t, meshes, func(ctx context.Context, m *Mesh, rank int) error {
			if rank == 1 {
				m.cut()
				return nil
			}
			return AllReduce(ctx, m, make([]float32, n))
		})
		for rank, err := range errs {
			if rank != 1 {
				blames(t, err, 1, "connection lost")
				says(t, meshes[rank].Barrier(t.Context()), "Barrier is not possible any more", "worker:1", "connection lost")
			}
		}
	}
}

// A worker that dies in the middle of much data.
func TestKilledInTheMiddle(t *testing.T) {
	meshes := connected(t, 3, nil)
	errs := each(t, meshes, func(ctx context.Context, m *Mesh, rank int) error {
		if rank == 2 {
			go func() {
				for {
					m.mu.Lock()
					r := m.current
					begun := r != nil && (r.flows[0].got > 2*chunkSize || r.waiting == 0)
					m.mu.Unlock()
					if begun {
						m.cut()
						return
					}
				}
			}()
		}
		var err error
		for err == nil {
			err = AllReduce(ctx, m, make([]float32, 8<<20))
		}
		return err
	})
	blames(t, errs[0], 2, "")
	blames(t, errs[1], 2, "")
}

// A peer behind a cut network is given up within the silence that is tolerated
// and named to all, in the middle of much data or of none.
func TestFrozenPeerIsNamedToAll(t *testing.T) {
	for _, n := range []int{0, 4 << 20} {
		var v *valve.Valve
		meshes := newWorld(t, 3, func(c *Config) {
			if v == nil {
				v = valve.New(t, c.Addrs[0])
			}
			c.Addrs[0] = v.Addr()
			c.Silence = 1500 * time.Millisecond
		})
		must(t, meshes, func(ctx context.Context, m *Mesh, _ int) error { return m.Barrier(ctx) })
		began := time.Now()
		errs := each(t, meshes, func(ctx context.Context, m *Mesh, rank int) error {
			if rank == 0 {
				time.AfterFunc(20*time.Millisecond, v.Shut)
			}
			var err error
			for err == nil {
				err = AllReduce(ctx, m, make([]float32, n))
			}
			return err
		})
		blames(t, errs[1], 0, "silent")
		blames(t, errs[2], 0, "silent")
		if errs[0] == nil || !errors.Is(errs[0], wire.ErrSilent) {
			t.Errorf("the frozen one: %v", errs[0])
		}
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("took %v", took)
		}
	}
}

func TestContextEndsTheCall(t *testing.T) {
	reason := errors.New("the user has had enough")
	for _, n := range []int{0, 1 << 20} {
		meshes := connected(t, 3, nil)
		errs := each(t, meshes, func(ctx context.Context, m *Mesh, rank int) error {
			if rank == 2 { // who does not come
				<-m.failed
				return m.Barrier(ctx)
			}
			if rank == 1 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeoutCause(ctx, 50*time.Millisecond, reason)
				defer cancel()
			}
			return AllReduce(ctx, m, make([]float32, n))
		})
		if !errors.Is(errs[1], reason) {
			t.Errorf("got %v", errs[1])
		}
		blames(t, errs[0], 1, "had enough")
		blames(t, errs[2], 1, "had enough")
	}
	m := newWorld(t, 1, nil)[0]
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	if err := m.Barrier(ctx); !errors.Is(err, reason) {
		t.Errorf("alone: %v", err)
	}
}

func TestWhoDoesNotComeIsNamed(t *testing.T) {
	meshes := newWorld(t, 4, func(c *Config) { c.Start = 400 * time.Millisecond })
	absent := 1
	errs := each(t, meshes, func(ctx context.Context, m *Mesh, rank int) error {
		if rank == absent {
			return nil
		}
		return m.Barrier(ctx)
	})
	for rank, err := range errs {
		if rank != absent {
			blames(t, err, absent, "not there within 400ms")
		}
	}
	// It comes too late and is told in words or by closed connections.
	began := time.Now()
	if err := meshes[absent].Barrier(t.Context()); err == nil || time.Since(began) > 10*time.Second {
		t.Errorf("late one: %v after %v", err, time.Since(began))
	}
}

func TestForeignSecretIsNamed(t *testing.T) {
	meshes := newWorld(t, 2, func(c *Config) {
		c.Start = 5 * time.Second
		if c.Rank == 1 {
			c.Peers.Key = cluster.PeerKey([]byte("another secret"), 2)
		}
	})
	began := time.Now()
	err := meshes[1].Barrier(t.Context())
	blames(t, err, 0, cluster.ErrProof.Error())
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestLeavingIsTold(t *testing.T) {
	meshes := connected(t, 3, nil)
	errs := each(t, meshes, func(ctx context.Context, m *Mesh, rank int) error {
		if rank == 1 {
			return m.Close()
		}
		return m.Barrier(ctx)
	})
	blames(t, errs[0], 1, "has left")
	blames(t, errs[2], 1, "has left")
	says(t, meshes[1].Barrier(t.Context()), errClosed.Error())
	for _, m := range meshes {
		began := time.Now()
		m.Close()
		if took := time.Since(began); took > goodbye/2 {
			t.Errorf("closing took %v", took)
		}
	}
}

// Whoever is done first may leave at once: the others get what it sent.
func TestLeavingLosesNothing(t *testing.T) {
	for range 10 {
		must(t, newWorld(t, 3, nil), func(ctx context.Context, m *Mesh, rank int) error {
			x := make([]float32, 1<<19)
			x[len(x)-1] = 7
			if err := Broadcast(ctx, m, x, 0); err != nil {
				return err
			}
			if err := AllReduce(ctx, m, x); err != nil {
				return err
			}
			if x[len(x)-1] != 21 {
				return fmt.Errorf("got %v", x[len(x)-1])
			}
			return m.Close()
		})
	}
}

func TestCloseDuringACollective(t *testing.T) {
	for _, n := range []int{0, 1 << 20} {
		meshes := connected(t, 3, nil)
		errs := each(t, meshes, func(ctx context.Context, m *Mesh, rank int) error {
			if rank == 2 {
				<-m.failed
				return m.Barrier(ctx)
			}
			if rank == 1 {
				go func() { m.begun(); m.Close(); m.Close() }()
			}
			return AllReduce(ctx, m, make([]float32, n))
		})
		if !errors.Is(errs[1], errClosed) {
			t.Errorf("got %v", errs[1])
		}
		blames(t, errs[0], 1, errClosed.Error())
		blames(t, errs[2], 1, errClosed.Error())
	}
}

// Abort ends a collective for all with the words that it was given, and where none
// runs the next ones.
func TestAbortIsToldToAll(t *testing.T) {
	reason := errors.New("the generation ends")
	for _, running := range []bool{false, true} {
		meshes := connected(t, 3, nil)
		errs := each(t, meshes, func(ctx context.Context, m *Mesh, rank int) error {
			switch {
			case rank == 1 && running:
				go func() { m.begun(); m.Abort(reason) }()
			case rank == 1:
				m.Abort(reason)
			case rank == 2 && running: // who does not come
				<-m.failed
			}
			return m.Barrier(ctx)
		})
		if !errors.Is(errs[1], reason) {
			t.Errorf("got %v", errs[1])
		}
		blames(t, errs[0], 1, reason.Error())
		blames(t, errs[2], 1, reason.Error())
	}
}

func TestTwoAtOnceAreRefused(t *testing.T) {
	meshes := connected(t, 2, nil)
	first := make(chan error, 1)
	go func() { first <- meshes[0].Barrier(t.Context()) }()
	meshes[0].begun()
	for _, err := range []error{meshes[0].Barrier(t.Context()), <-first} {
		if !errors.Is(err, errConcurrent) {
			t.Errorf("got %v", err)
		}
	}
	err := meshes[1].Barrier(t.Context()) // the first may have gone well here
	if err == nil {
		err = meshes[1].Barrier(t.Context())
	}
	blames(t, err, 0, errConcurrent.Error())
}

// A stranger or a second connection of a worker changes nothing.
func TestUnwantedConnections(t *testing.T) {
	meshes := connected(t, 3, nil)
	addr := meshes[1].config.Addrs[1]
	for _, as := range []int{0, 1, 2} {
		conn, err := peers.Dial(t.Context(), meshes[as].config.Peers, task(1), addr, purpose)
		if err != nil {
			t.Fatal(err)
		}
		conn.SetReadDeadline(time.Now().Add(limit))
		if n, err := io.Copy(io.Discard, conn); n > 1 || err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("as worker %d: %d bytes, %v", as, n, err)
		}
		conn.Close()
	}
	must(t, meshes, func(ctx context.Context, m *Mesh, _ int) error { return m.Barrier(ctx) })
}
