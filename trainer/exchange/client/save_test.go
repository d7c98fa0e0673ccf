package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/policy"
)

// course is a training with saves before some steps, and with moves of
// variables if they are movable.
type course struct {
	seed   uint64
	n      *reference
	random *rand.Rand
}

// present returns which virtual workers have data in a step. It depends only
// on the seed and the step.
func (c *course) present(s uint64) func(leaf int) bool {
	odds := rand.New(rand.NewPCG(c.seed, s)).IntN(4)
	return func(leaf int) bool {
		return odds == 0 || rand.New(rand.NewPCG(c.seed+s, uint64(leaf))).IntN(odds+1) > 0
	}
}

// pieces returns a random valid placement of the tables.
func (c *course) pieces(d *layout.Declaration) []layout.Piece {
	var holders []int
	for i, task := range d.Holders {
		if len(d.Hosts) == 0 || isServer(task) {
			holders = append(holders, i)
		}
	}
	return shuffled(d, c.random, holders)
}

// train trains up to a step, saves before that step and some others, and
// compares everything with the reference.
func (c *course) train(t *testing.T, j *testJob, to uint64) []transition.Snapshot {
	t.Helper()
	members := j.connect(t)
	for _, m := range members {
		if m.Step() != j.d.First {
			t.Fatalf("worker:%d begins with step %d, want %d", m.rank, m.Step(), j.d.First)
		}
		c.n.compare(t, m.values, worker(m.rank).String())
	}
	for s := j.d.First; s < to; s++ {
		saves := c.random.IntN(2) == 0
		if saves {
			c.save(t, j, members[0])
		}
		if j.d.Movable && c.random.IntN(2) == 0 {
			must(t, repartition(members, c.pieces(members[0].holders.shards.Load().d)))
		}
		present := c.present(s)
		ends, errs := stepPresent(members, s, 0.05, present)
		must(t, errs)
		c.n.step(0, j.d.VirtualWorkers, s, 0.05, present)
		for i, m := range members {
			c.n.compare(t, m.values, worker(i).String())
			if ends[i].Saved != saves || ends[i].Step != s || ends[i].VirtualWorkers > 0 && !c.n.reports(ends[i]) {
				t.Fatalf("worker:%d: step %d: %+v, want it to know of a save: %t", i, s, ends[i], saves)
			}
		}
		compareTables(t, members[c.random.IntN(len(members))], c.n)
	}
	all := c.save(t, j, members[0])
	leave(t, j, members)
	return all
}

func (c *course) save(t *testing.T, j *testJob, chief *member) []transition.Snapshot {
	t.Helper()
	if err := chief.Saves.Save(); err != nil {
		t.Fatal(err)
	}
	all := j.saved(t, chief.holders.shards.Load().d.Pieces, chief.Step())
	checkSaved(t, &j.d, all, c.n.kept())
	return all
}

// goOn trains the first job up to a step, restores its checkpoint in a second
// job, and trains that further.
func goOn(t *testing.T, seed uint64, first *testJob, second func(d layout.Declaration) *testJob) {
	t.Helper()
	const half, end = 3, 6
	c := &course{seed: seed, n: newReference(&first.d), random: rand.New(rand.NewPCG(seed, 21))}
	all := c.train(t, first, half)
	d := first.d
	d.Checkpoint, d.First = "some name", half
	j := second(d)
	j.store.fill(all)
	c.n.d = &j.d // of the same variables
	c.train(t, j, end)
}

// A restored training continues with the same bits, for any placement of
// pieces before and after the restore.
func TestRestoredTrainingHasSameBits(t *testing.T) {
	rules, n := []optimizer.Rule{optimizer.SGD, optimizer.Momentum, optimizer.Adagrad}, len(placesToRestore)
	for i := range placesToRestore { // the long test uses all pairs
		testRestored(t, optimizer.Adam, i, (i+1)%n) // which keeps most
		testRestored(t, optimizer.Adam, i, (i+3)%n)
		testRestored(t, rules[i%len(rules)], i, (2*n-i)%n)
	}
}

var placesToRestore = []struct {
	place
	hosts []layout.Range
}{
	{place{policy.Servers, 1}, nil}, {place{policy.Servers, 3}, []layout.Range{{Lo: 0, Hi: 2}, {Lo: 2, Hi: 3}}}, {place{policy.AllReduce, 0}, nil},
	{place{policy.Hybrid, 2}, nil}, {place{policy.Hybrid, 2}, []layout.Range{{Lo: 0, Hi: 3}}},
}

// testRestored saves with the i-th placement and resumes with the k-th.
func testRestored(t *testing.T, rule optimizer.Rule, i, k int) {
	from, to := placesToRestore[i], placesToRestore[k]
	t.Run(fmt.Sprint(rule, from, to), func(t *testing.T) {
		t.Parallel()
		d := movableTables(6, 3, rule)
		d.Hosts = from.hosts
		d.Movable = i%2 == 0
		goOn(t, uint64(10*i+k), newJob(t, d, from.a, from.servers), func(d layout.Declaration) *testJob {
			d.Hosts, d.Workers, d.Movable = to.hosts, ranges(6, 3), k%2 == 0
			if to.hosts == nil {
				d.Workers = ranges(6, 1+k)
			}
			return newJob(t, d, to.a, to.servers)
		})
	})
}

// Random variables, workers, hosts, placements and clipping: a restored
// training continues with the same bits.
func TestRandomRestoredTrainingHasSameBits(t *testing.T) {
	testRandomRestores(t, 1, 14)
}

func testRandomRestores(t *testing.T, first, jobs uint64) {
	for seed := first; seed < first+jobs; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 31))
			d := randomDeclaration(random)
			d.Movable = random.IntN(2) == 0
			goOn(t, seed, randomlyPlaced(t, d, random), func(d layout.Declaration) *testJob {
				for d.Workers = nil; len(d.Workers) == 0 || len(d.Workers) > 7; {
					d.Workers = randomRanges(random, d.VirtualWorkers)
				}
				d.Hosts, d.Movable, d.BucketBytes = nil, random.IntN(2) == 0, 1<<random.IntN(14)
				return randomlyPlaced(t, d, random)
			})
		})
	}
}

// engines returns the shards of all shard holders.
func (j *testJob) engines(t *testing.T, members []*member) (all []*aggregate.Shards) {
	for i, task := range j.d.Holders {
		if isServer(task) {
			all = append(all, serverOf(t, j, task.Index).Shards())
		} else {
			all = append(all, members[j.d.Holders[i].Index].holders.local.server.Shards())
		}
	}
	return all
}

// othersWait reports whether all workers except the chief have sent their
// gradients of the current step.
func othersWait(e *aggregate.Shards) bool {
	missing, _ := e.Waiting()
	return missing == 1
}

// When the chief saves, other workers may already have sent all gradients of
// the next step. The save contains the steps before it, and snapshots never
// change later.
func TestSaveWhileOtherWorkersBeginStep(t *testing.T) {
	const steps = 6
	for _, c := range []struct {
		a     policy.Architecture
		hosts []layout.Range
		clip  float64
	}{{policy.Servers, nil, 50}, {policy.Servers, []layout.Range{{Lo: 0, Hi: 1}, {Lo: 1, Hi: 3}}, 0}, {policy.AllReduce, nil, 50}, {policy.AllReduce, nil, 0}, {policy.Hybrid, nil, 0}, {policy.Hybrid, []layout.Range{{Lo: 0, Hi: 2}, {Lo: 2, Hi: 3}}, 50}} {
		t.Run(fmt.Sprint(c.a, c.hosts, c.clip), func(t *testing.T) {
			t.Parallel()
			d := mixed(6, 3)
			d.Hosts, d.Clip = c.hosts, c.clip
			j := newJob(t, d, c.a, 2)
			members := j.connect(t)
			engines := j.engines(t, members)
			n := newReference(&j.d)
			var running sync.WaitGroup
			for _, m := range members[1:] {
				running.Go(func() {
					for s := range uint64(steps) {
						end, err := m.take(context.Background(), s, 0.05, everyLeaf)
						if err != nil || !end.Saved {
							t.Errorf("worker:%d: step %d: %+v, %v", m.rank, s, end, err)
							return
						}
					}
				})
			}
			var want [][]aggregate.SavedPiece
			for s := range uint64(steps) {
				eventually(t, "all but the chief have begun", func() bool {
					return !slices.ContainsFunc(engines, func(e *aggregate.Shards) bool { return !othersWait(e) })
				})
				if err := members[0].Saves.Save(); err != nil {
					t.Fatal(err)
				}
				want = append(want, n.kept())
				end, err := members[0].take(context.Background(), s, 0.05, everyLeaf)
				if err != nil || !end.Saved {
					t.Fatalf("step %d: %+v, %v", s, end, err)
				}
				n.step(0, 6, s, 0.05, everyLeaf)
			}
			running.Wait()
			if err := members[0].Saves.Save(); err != nil {
				t.Fatal(err)
			}
			want = append(want, n.kept())
			leave(t, j, members)
			for s, state := range want {
				checkSaved(t, &j.d, j.saved(t, j.d.Pieces, uint64(s)), state)
			}
		})
	}
}

// A save before or after a move has the pieces of that moment. The next step
// reports the save, even if variables move before that step.
func TestSaveBeforeAndAfterMove(t *testing.T) {
	for _, a := range []policy.Architecture{policy.Servers, policy.Hybrid, policy.AllReduce} {
		j := newJob(t, movableTables(4, 2, optimizer.Adam), a, 3)
		members := j.connect(t)
		n := newReference(&j.d)
		for s := range uint64(4) {
			before, after := members[0].holders.shards.Load().d.Pieces, onHolder(&j.d, int(s)%len(j.d.Holders))
			early := s%2 == 0
			for _, saves := range []bool{early, !early} {
				if saves {
					if err := members[0].Saves.Save(); err != nil {
						t.Fatal(err)
					}
				} else {
					must(t, repartition(members, after))
				}
			}
			if !early {
				before = after
			}
			checkSaved(t, &j.d, j.saved(t, before, s), n.kept())
			ends, errs := step(members, s, 0.05)
			must(t, errs)
			n.step(0, 4, s, 0.05, everyLeaf)
			for i, end := range ends {
				if !end.Saved {
					t.Errorf("%s: worker:%d: step %d: knows nothing of a save", a, i, s)
				}
			}
		}
		leave(t, j, members)
	}
}
