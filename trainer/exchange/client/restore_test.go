package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/exchange/server"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/policy"
)

// restored returns a job that resumes from a checkpoint with the state of the
// reference before a step.
func restored(t testing.TB, d layout.Declaration, step uint64, a policy.Architecture, servers int) *testJob {
	t.Helper()
	d.Checkpoint, d.First = "some name", step
	j := newJob(t, d, a, servers)
	j.store.has = trained(&j.d, step).kept()
	return j
}

// trained returns the reference after the given number of steps.
func trained(d *layout.Declaration, steps uint64) *reference {
	n := newReference(d)
	for s := range steps {
		n.step(0, d.VirtualWorkers, s, 0.05, everyLeaf)
	}
	return n
}

// connecting begins to connect all workers, and returns a channel per worker
// with its error.
func (j *testJob) connecting() []chan error {
	errs := make([]chan error, len(j.d.Workers))
	for rank := range errs {
		errs[rank] = make(chan error, 1)
		go func() {
			c, err := Connect(context.Background(), j.config(rank, firstValues(&j.d, rank+1)))
			if err == nil {
				c.Abort(errors.New("the test is over"))
			}
			errs[rank] <- err
		}()
	}
	return errs
}

// holds returns a task other than the chief that holds pieces in an
// architecture.
func holds(a policy.Architecture) cluster.Task {
	if a == policy.Servers {
		return server0(0)
	}
	return worker(1)
}

// If a task cannot restore a piece, training ends, and all tasks report which
// task it was.
func TestFailedRestoreEndsTraining(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a deadline")
	}
	for _, a := range []policy.Architecture{policy.Servers, policy.AllReduce} {
		for want, instead := range map[string]func(s *store, ctx context.Context, d *layout.Declaration, p layout.Piece, into transition.Restoring) error{
			"the disk is gone": func(*store, context.Context, *layout.Declaration, layout.Piece, transition.Restoring) error {
				return errors.New("the disk is gone")
			},
			"a part of variable 3, want one of": func(s *store, _ context.Context, _ *layout.Declaration, _ layout.Piece, into transition.Restoring) error {
				return into.Put(s.has[3])
			},
			"[%d, %d) is missing": func(*store, context.Context, *layout.Declaration, layout.Piece, transition.Restoring) error {
				return nil
			},
		} {
			t.Run(fmt.Sprint(a, "/", want), func(t *testing.T) {
				t.Parallel()
				j := restored(t, example(3, 3), 2, a, 2)
				at := slices.IndexFunc(j.d.Pieces, func(p layout.Piece) bool { return j.d.Holders[p.Holder] == holds(a) })
				broken := j.d.Pieces[at]
				j.store.instead = func(ctx context.Context, d *layout.Declaration, p layout.Piece, into transition.Restoring) error {
					if p == broken {
						return instead(&j.store, ctx, d, p, into)
					}
					<-ctx.Done() // is told
					return ctx.Err()
				}
				if strings.Contains(want, "%d") {
					want = fmt.Sprintf(want, broken.Offset, broken.Offset+broken.Count)
				}
				what := fmt.Sprintf("restore variable %q [%d, %d) from checkpoint \"some name\": ",
					j.d.Variables[broken.Variable].Name, broken.Offset, broken.Offset+broken.Count)
				for _, errs := range j.connecting() {
					err := within(t, errs)
					blames(t, err, holds(a), what)
					blames(t, err, holds(a), want)
				}
			})
		}
	}
}

// If a part of a variable is missing in the checkpoint, the error names it,
// for dense variables and for tables.
func TestIncompleteRestoreEndsTraining(t *testing.T) {
	for variable, what := range map[int]string{2: `"big" [0, 5120) from checkpoint "some name": [100, 200)`, 5: `"table" [0, 41) from checkpoint "some name": [40, 41)`} {
		t.Run(what, func(t *testing.T) {
			j := restored(t, mixed(2, 2), 2, policy.Servers, 1)
			j.store.instead = func(_ context.Context, d *layout.Declaration, p layout.Piece, into transition.Restoring) error {
				k := j.store.has[p.Variable]
				if p.Variable != variable {
					return into.Put(k)
				}
				for _, r := range map[int][]layout.Range{2: {{Lo: 200, Hi: 5120}, {Lo: 50, Hi: 100}, {Lo: 0, Hi: 70}}, 5: {{Lo: 3, Hi: 40}, {Lo: 0, Hi: 3}}}[variable] {
					if err := into.Put(slice(d, k, r.Lo, r.Hi)); err != nil {
						return err
					}
				}
				return nil
			}
			for _, errs := range j.connecting() {
				blames(t, within(t, errs), server0(0), what+" is missing")
			}
		})
	}
}

// If a restore takes longer than the start time, training ends, whether
// Restore respects its context or not. Data that arrives later is refused.
func TestSlowRestoreEndsTraining(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a deadline")
	}
	for _, a := range []policy.Architecture{policy.Servers, policy.AllReduce} {
		for _, listens := range []bool{true, false} {
			t.Run(fmt.Sprint(a, listens), func(t *testing.T) {
				t.Parallel()
				d := example(2, 2)
				d.StartMillis = 700
				j := restored(t, d, 2, a, 1)
				wait, late := make(chan struct{}), make(chan error, len(j.d.Pieces))
				j.store.instead = func(ctx context.Context, _ *layout.Declaration, p layout.Piece, into transition.Restoring) error {
					if j.d.Holders[p.Holder] != holds(a) {
						return into.Put(j.store.has[p.Variable])
					}
					if listens {
						<-ctx.Done()
					} else {
						<-wait
					}
					late <- into.Put(j.store.has[p.Variable])
					return ctx.Err()
				}
				began := time.Now()
				for _, errs := range j.connecting() {
					blames(t, within(t, errs), holds(a), "not ready within 700ms: variable")
				}
				close(wait)
				if took := time.Since(began); took > patience.Limit/2 {
					t.Errorf("took %v", took)
				}
				if err := within(t, late); err == nil || !strings.Contains(err.Error(), "too late") {
					t.Errorf("put too late: %v", err)
				}
			})
		}
	}
}

// A task without Checkpoints returns an error if it must restore.
func TestHolderWithoutCheckpointsCannotRestore(t *testing.T) {
	j := restored(t, example(2, 2), 2, policy.Servers, 1)
	j.again(t, 0, func(c *server.Config) { c.Checkpoints = nil })
	for _, errs := range j.connecting() {
		blames(t, within(t, errs), server0(0), `cannot restore its variables from checkpoint "some name": no checkpoint store is configured`)
	}
	j = restored(t, example(1, 1), 2, policy.AllReduce, 0)
	c := j.config(0, firstValues(&j.d, 1))
	c.Checkpoints = nil
	_, err := Connect(context.Background(), c)
	blames(t, err, worker(0), "no checkpoint store is configured")
}

// If a worker dies or gives up while other tasks restore, they stop and blame
// it.
func TestLostWorkerDuringRestoreIsReported(t *testing.T) {
	for _, a := range []policy.Architecture{policy.Servers, policy.AllReduce} {
		t.Run(a.String(), func(t *testing.T) {
			t.Parallel()
			j := restored(t, example(3, 3), 2, a, 1)
			begun, stopped := make(chan struct{}, 100), make(chan struct{}, 100)
			j.store.instead = func(ctx context.Context, _ *layout.Declaration, _ layout.Piece, _ transition.Restoring) error {
				begun <- struct{}{}
				<-ctx.Done()
				stopped <- struct{}{}
				return ctx.Err()
			}
			ctx, cancel := context.WithCancelCause(context.Background())
			servers, errs := j.served, make([]chan error, 3)
			for rank := range errs {
				c, err := newClient(j.config(rank, firstValues(&j.d, rank+1)))
				if err != nil {
					t.Fatal(err)
				}
				if c.holders.local != nil {
					servers = append(servers[:rank:rank], c.holders.local.server)
				}
				errs[rank] = make(chan error, 1)
				go func() {
					err := c.connect([]context.Context{context.Background(), context.Background(), ctx}[rank])
					c.Abort(err)
					errs[rank] <- err
				}()
			}
			for _, s := range servers {
				eventually(t, "all have declared", func() bool {
					return !slices.ContainsFunc(s.Workers(), func(w server.WorkerState) bool { return !w.Declared })
				})
			}
			within(t, begun)
			why := errors.New("told to stop")
			cancel(why)
			if err := within(t, errs[2]); !errors.Is(err, why) {
				t.Errorf("got %v", err)
			}
			for _, errs := range errs[:2] {
				blames(t, within(t, errs), worker(2), "told to stop")
			}
			within(t, stopped)
		})
	}
}

// If a server dies while another one restores, all tasks blame it.
func TestLostServerDuringRestoreIsReported(t *testing.T) {
	j := restored(t, example(2, 2), 2, policy.Servers, 2)
	begun := make(chan struct{}, 100)
	j.store.instead = func(ctx context.Context, d *layout.Declaration, p layout.Piece, into transition.Restoring) error {
		if d.Holders[p.Holder] == server0(1) {
			return into.Put(j.store.has[p.Variable])
		}
		begun <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	errs := j.connecting()
	within(t, begun)
	eventually(t, "ps:1 has what it needs", func() bool {
		return j.served[1].Opened()
	})
	j.stop[1]()
	for _, errs := range errs {
		blames(t, within(t, errs), server0(1), "")
	}
}

// Workers whose declarations name different checkpoints are refused.
func TestDifferentCheckpointsEndTraining(t *testing.T) {
	for want, change := range map[string]func(d *layout.Declaration){
		`begins from checkpoint "other", not from checkpoint "some name"`: func(d *layout.Declaration) { d.Checkpoint = "other" },
		`begins from scratch, not from checkpoint "some name"`:            func(d *layout.Declaration) { d.Checkpoint, d.First = "", 0 },
		"begins with step 6, not 5":                                       func(d *layout.Declaration) { d.First = 6 },
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			j := restored(t, example(3, 3), 5, policy.Servers, 2)
			errs := connectAll(t, j, func(rank int, d *layout.Declaration) {
				if rank == 2 {
					change(d)
				}
			})
			for _, err := range errs {
				blames(t, err, worker(2), want)
			}
		})
	}
}

// After a restore, errors count steps from the beginning of the first
// training.
func TestWorkerThatLeavesEarlyAfterRestoreIsAnError(t *testing.T) {
	for _, a := range []policy.Architecture{policy.Servers, policy.AllReduce} {
		j := restored(t, example(2, 2), 5, a, 1)
		members := j.connect(t)
		left := make(chan error, 1)
		go func() { left <- members[1].Close() }()
		_, errs := step(members[:1], 5, 0.1)
		blames(t, errs[0], worker(1), "")
		if !strings.Contains(errs[0].Error(), "after 5 steps") {
			t.Errorf("%s: got %v", a, errs[0])
		}
		within(t, left)
	}
}
