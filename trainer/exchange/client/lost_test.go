package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/netcut"
	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/policy"
	"github.com/plx-run/plx/trainer/wire"
)

var bearing = []string{"async", "ssp:1", "backup:1", "backup:2"}

// loser is a training of 4 workers on 3 servers that loses one worker, the
// victim.
type loser struct {
	*testJob
	members []*member
	victim  *member
	acked   atomic.Int64 // number of steps that the victim has finished
	counted atomic.Int64 // number of virtual workers of the other workers that steps have used
	ended   chan error   // receives the victim's error
}

const loserSteps = 8

func newLoser(t *testing.T, d layout.Declaration, victim int, views func(servers []string) []string) *loser {
	j := newJob(t, d, policy.Servers, 3)
	j.zeros = true
	for range j.d.Workers {
		j.views = append(j.views, j.cluster)
	}
	if views != nil {
		j.views[victim].PS = views(j.cluster.PS)
	}
	members := j.connect(t)
	return &loser{testJob: j, members: members, victim: members[victim], ended: make(chan error, 1)}
}

// train makes all workers take steps. The victim calls before first in each of
// its steps, and ends if before returns an error.
func (l *loser) train(t *testing.T, before func(step uint64) error) {
	var running sync.WaitGroup
	given := make([]atomic.Uint64, len(l.members))
	bound, bounded := uint64(0), false
	if n, _ := fmt.Sscanf(l.d.Sync.String(), "ssp:%d", &bound); n == 1 {
		bounded = true
	}
	for _, m := range l.members {
		if m == l.victim {
			go func() { l.ended <- l.suffer(before) }()
			continue
		}
		running.Go(func() {
			for m.Step() < loserSteps {
				for rank := range given {
					if ahead := given[rank].Load() + bound; bounded && rank != l.victim.rank && m.Step() > ahead {
						t.Errorf("worker:%d begins step %d, worker:%d gave %d", m.rank, m.Step(), rank, ahead-bound)
					}
				}
				given[m.rank].Store(m.Step() + 1)
				end, err := m.count()
				if err != nil || end.Over {
					t.Errorf("worker:%d: %+v, %v", m.rank, end, err)
					return
				}
				if !end.Late {
					l.counted.Add(1)
				}
			}
		})
	}
	running.Wait()
}

// suffer makes the victim take steps until it gets an error.
func (l *loser) suffer(before func(step uint64) error) error {
	for {
		if err := before(l.victim.Step()); err != nil {
			return err
		}
		end, err := l.victim.count()
		if err != nil {
			return err
		}
		if !end.Late && !end.Over {
			l.acked.Add(1)
		}
	}
}

// check checks that every server has recorded the loss, and that every element
// was updated exactly once per step.
func (l *loser) check(t *testing.T) {
	t.Helper()
	for i, s := range l.served {
		eventually(t, fmt.Sprintf("ps:%d has lost %s", i, l.victim.holders.config.Peers.Self), func() bool {
			return s.Workers()[l.victim.rank].Lost
		})
	}
	chief := l.members[0]
	chief.saveCut(t, Passing)
	least := float64(l.counted.Load() + l.acked.Load())
	if !l.d.Sum {
		least = loserSteps
	}
	for _, x := range l.saved(t, l.d.Pieces, chief.Step()) {
		for _, k := range x.Pieces {
			down := downBy(t, &l.d, k)
			if !l.d.Sync.WorkersCompete() && (down != float64(k.Updates) || down < least || down > least+1) {
				t.Errorf("variable %d from %d went down by %v in %d updates, want %v, or one more", k.Variable, k.Offset, down, k.Updates, least)
			}
			if l.d.Sync.WorkersCompete() && (k.Updates != loserSteps || down < least || down > least+1 || !l.d.Sum && down != least) {
				t.Errorf("variable %d from %d went down by %v in %d updates, want %v, or with a sum one more, in %d",
					k.Variable, k.Offset, down, k.Updates, least, loserSteps)
			}
		}
	}
	var others []*member
	for _, m := range l.members {
		if m != l.victim {
			others = append(others, m)
		}
	}
	leave(t, l.testJob, others)
	l.says(t, l.victim.holders.config.Peers.Self.String()+" (", "; the training goes on without it")
}

// says waits for a log line with a given beginning and end.
func (l *loser) says(t *testing.T, first, last string) {
	t.Helper()
	eventually(t, first+"... "+last, func() (found bool) {
		l.logged.Range(func(line, _ any) bool {
			found = strings.HasPrefix(line.(string), first) && strings.HasSuffix(line.(string), last)
			return !found
		})
		return found
	})
}

// meaning is like counting, but averages gradients: every update decreases an
// element by one, for any number of workers.
func meaning(mode string) layout.Declaration {
	d := counting(mode, 4)
	d.Sum = false
	for i, v := range d.Variables {
		if v.Sparse != nil {
			d.Variables[i].Sparse = &layout.Sparse{Average: true}
		}
	}
	return d
}

// A worker dies after sending an arbitrary number of bytes. The other workers
// complete all their steps. No finished step is lost, applied in part or
// applied twice.
func TestTrainingContinuesAfterLoss(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	testLosses(t, 6) // the long test tries more seeds
}

func testLosses(t *testing.T, seeds uint64) {
	for _, mode := range bearing {
		t.Run(mode, func(t *testing.T) {
			for seed := range seeds {
				t.Run(fmt.Sprint(seed), func(t *testing.T) {
					t.Parallel()
					random := rand.New(rand.NewPCG(seed, 3))
					d := counting(mode, 4)
					if d.Sync.WorkersCompete() && seed%2 == 0 {
						d = meaning(mode)
					}
					var f *fuse
					l := newLoser(t, d, 1+random.IntN(3), func(servers []string) []string {
						var at []string
						if seed%3 == 0 { // only one connection breaks, and then the worker gives up
							n := random.IntN(len(servers))
							f, at = newFuse(t, servers[n])
							servers = append([]string(nil), servers...)
							servers[n] = at[0]
							return servers
						}
						f, at = newFuse(t, servers...)
						return at
					})
					f.arm(random.Int64N(30_000 * loserSteps / 2))
					l.train(t, func(uint64) error { return nil })
					f.blow() // if it still lives
					within(t, l.ended)
					l.check(t)
				})
			}
		})
	}
}

// If a worker gives up, the servers log its reason.
func TestTrainingContinuesAfterWorkerGivesUp(t *testing.T) {
	for _, mode := range bearing {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			l := newLoser(t, counting(mode, 4), 2, nil)
			l.train(t, func(step uint64) error {
				if step < 3 {
					return nil
				}
				why := &peers.PeerError{Task: server0(1), Addr: "10.0.0.9:1", Err: errors.New("no route to host")}
				l.victim.Abort(why)
				return why
			})
			within(t, l.ended)
			l.check(t)
			l.says(t, "worker:2 (", "gave up: ps:1 (10.0.0.9:1): no route to host; the training goes on without it")
		})
	}
}

// A worker that hangs delays the other workers only until the silence limit.
func TestTrainingContinuesAfterWorkerGoesSilent(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a deadline")
	}
	for _, mode := range bearing {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			d := counting(mode, 4)
			d.SilenceMillis = 1500
			var all []*netcut.Proxy
			l := newLoser(t, d, 3, func(servers []string) (at []string) {
				for _, s := range servers {
					all = append(all, netcut.New(t, s))
					at = append(at, all[len(all)-1].Addr())
				}
				return at
			})
			shut := func() {
				for _, v := range all {
					v.Shut()
				}
			}
			began := time.Now()
			l.train(t, func(step uint64) error {
				if step >= 2 {
					shut()
				}
				return nil
			})
			shut() // the worker may have been late in every step
			within(t, l.ended)
			l.check(t)
			if took := time.Since(began); took > patience.Limit/2 {
				t.Errorf("took %v", took)
			}
		})
	}
}

// A worker that sends an invalid frame is excluded, and the other workers
// continue.
func TestTrainingContinuesAfterProtocolViolation(t *testing.T) {
	for i, c := range []struct {
		name string
		bad  wire.Frame
	}{
		{"garbage", wire.Frame{Header: wire.Header{Kind: wire.Declare}, Payload: make([]byte, 100)}},
		{"scale", frame(wire.Scale, 0, 0, 0, 16)},
		{"gradient", frame(wire.Push, 0, 1, 77, 60)},
		{"step", stepFrame(77, 7)},
		{"loss", wire.Frame{Header: wire.Header{Kind: wire.Without, Part: 1, Step: 5}}},
		{"own loss", wire.Frame{Header: wire.Header{Kind: wire.Without, Part: 2, Step: 5}}},
		{"no loss", wire.Frame{Header: wire.Header{Kind: wire.Without, Part: 99, Step: 5}}},
		{"long loss", wire.Frame{Header: wire.Header{Kind: wire.Without, Part: 1, Step: 5}, Payload: []byte{1}}},
	} {
		for _, mode := range []string{bearing[i%2], bearing[2+i%2]} { // one backup mode, and one mode in which all gradients are used
			t.Run(mode+" "+c.name, func(t *testing.T) {
				t.Parallel()
				l := newLoser(t, counting(mode, 4), 2, nil)
				l.train(t, func(step uint64) error {
					if step < 3 {
						return nil
					}
					return l.victim.holders.links[0].session.Send(c.bad)
				})
				err := within(t, l.ended)
				var peer *peers.PeerError
				if !errors.As(err, &peer) || peer.Task != worker(2) && !l.d.Sync.WorkersCompete() { // in backup mode another task may have hung up first
					t.Errorf("it was told %v", err)
				}
				l.check(t)
			})
		}
	}
}

// Training ends in every mode if the chief is lost, because only the chief
// makes decisions and saves.
func TestLostChiefEndsTraining(t *testing.T) {
	for _, mode := range append([]string{"group:3"}, bearing...) {
		j := newJob(t, in(mode, example(4, 4)), policy.Servers, 2)
		members := j.connect(t)
		die(members[0])
		for _, m := range members[1:] {
			var err error
			for err == nil {
				_, err = m.take(context.Background(), m.Step(), 0.1, everyLeaf)
			}
			blames(t, err, cluster.Chief, "connection lost")
		}
		for i := range j.ended {
			blames(t, within(t, j.ended[i]), cluster.Chief, "connection lost")
		}
	}
}

// A worker that is lost before all workers are ready ends the training.
func TestLossBeforeFirstStepIsAnError(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a deadline")
	}
	for _, mode := range bearing {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			j := newJob(t, in(mode, example(4, 4)), policy.Servers, 2)
			errs := make(chan error, 3)
			f, at := newFuse(t, j.cluster.PS...)
			for rank := range 3 { // worker:3 never comes
				c := j.config(rank, firstValues(&j.d, 1))
				if rank == 1 {
					c.Cluster.PS = at
				}
				go func() {
					_, err := Connect(context.Background(), c)
					errs <- err
				}()
			}
			for _, s := range j.served {
				eventually(t, "three have declared", func() bool {
					w := s.Workers()
					return w[0].Declared && w[1].Declared && w[2].Declared
				})
			}
			f.blow()
			for i := range j.ended {
				blames(t, within(t, j.ended[i]), worker(1), "connection lost")
			}
			for range 3 {
				if err := within(t, errs); err == nil {
					t.Error("began without worker:1")
				}
			}
		})
	}
}

// A server that is not ready yet ends the training when it gets the
// announcement of a lost worker, because that worker may never have connected
// to it.
func TestWithoutFrameBeforeFirstStepIsAnError(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a deadline")
	}
	t.Parallel()
	j := newJob(t, in("backup:1", example(3, 3)), policy.Servers, 2)
	conns := make([]*wire.Conn, 2)
	for rank := range conns {
		conns[rank] = wire.NewConn(proven(t, j, rank, 1), 0, patience.Limit)
		declares(t, conns[rank], &j.d)
		eventually(t, "it is there", func() bool { return j.served[1].Workers()[rank].Declared })
	}
	if err := conns[1].Send(wire.Frame{Header: wire.Header{Kind: wire.Without, Part: 2, Step: 1}}); err != nil {
		t.Fatal(err)
	}
	blames(t, within(t, j.ended[1]), worker(2), "lost before all workers were ready")
}
