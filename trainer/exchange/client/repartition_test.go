package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/policy"
)

// movableTables returns a declaration with two tables that may move.
func movableTables(leaves, workers int, rule optimizer.Rule) layout.Declaration {
	d := mixed(leaves, workers)
	d.Optimizer = optimizer.Settings{Rule: rule, Momentum: 0.9, Accumulator: 0.1, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}
	d.Movable = true
	return d
}

// shuffled returns random pieces for the sparse variables, on random shard
// holders. Often some holders get no piece.
func shuffled(d *layout.Declaration, random *rand.Rand, holders []int) []layout.Piece {
	pieces := slices.DeleteFunc(slices.Clone(d.Pieces), func(p layout.Piece) bool { return d.Variables[p.Variable].Sparse != nil })
	for i, v := range d.Variables {
		if v.Sparse == nil {
			continue
		}
		for _, p := range v.Partition(i, 1+random.IntN(2*len(holders))) {
			p.Holder = holders[random.IntN(len(holders))]
			pieces = append(pieces, p)
		}
	}
	random.Shuffle(len(pieces), func(i, j int) { pieces[i], pieces[j] = pieces[j], pieces[i] })
	return pieces
}

// repartition makes all workers request the same move.
func repartition(members []*member, pieces []layout.Piece) []error {
	errs := make([]error, len(members))
	var moving sync.WaitGroup
	for i, m := range members {
		moving.Go(func() { errs[i] = m.Placement.Repartition(context.Background(), pieces) })
	}
	moving.Wait()
	return errs
}

// checkMoves moves variables before some steps, and compares all results with
// the reference.
func checkMoves(t *testing.T, j *testJob, steps, seed uint64, holders []int) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 5))
	members := j.connect(t)
	n := newReference(&j.d)
	for s := range steps {
		for range random.IntN(3) {
			must(t, repartition(members, shuffled(&j.d, random, holders)))
		}
		ends, errs := step(members, s, 0.05)
		must(t, errs)
		n.step(0, j.d.VirtualWorkers, s, 0.05, everyLeaf)
		for rank, m := range members {
			n.compare(t, m.values, worker(rank).String())
			if !n.reports(ends[rank]) || j.d.Norms() && ends[rank].Norm != n.norm {
				t.Fatalf("worker:%d: outcome %+v, want loss and metrics %v, norm %v", rank, ends[rank], n.loss, n.norm)
			}
		}
		compareTables(t, members[int(s)%len(members)], n)
	}
	leave(t, j, members)
}

// compareTables pulls all rows and compares them with those of the reference.
func compareTables(t *testing.T, m *member, n *reference) {
	t.Helper()
	for i, v := range m.holders.d.Variables {
		if v.Sparse == nil {
			continue
		}
		all := make([]byte, v.NumElements()*v.Dtype.Size())
		if err := m.Rows.Whole(context.Background(), i, all); err != nil {
			t.Fatal(err)
		}
		index := slices.Compact([]int64{0, int64(v.Shape[0]) / 2, int64(v.Shape[0]) - 1})
		some := make([]byte, len(index)*v.UnitBytes())
		if err := m.Rows.Pull(context.Background(), i, index, some); err != nil {
			t.Fatal(err)
		}
		want, size := string(n.table(i)), v.UnitBytes()
		last := index[len(index)-1]
		if string(all) != want || string(some[(len(index)-1)*size:]) != want[int(last)*size:] {
			t.Fatalf("%s differs from the reference after %d steps", v.Name, n.steps)
		}
	}
}

func everyOwner(d *layout.Declaration) (all []int) {
	for i := range d.Holders {
		all = append(all, i)
	}
	return all
}

// Adam has the most optimiser state and is tested with few and many workers;
// the other rules are tested in some cases. The long test combines all.
func TestMovesKeepBits(t *testing.T) {
	rules := []optimizer.Rule{optimizer.SGD, optimizer.Momentum, optimizer.Adagrad}
	for i, at := range placesToMove {
		testMoves(t, optimizer.Adam, 1+i%2, at, 4)
		testMoves(t, optimizer.Adam, 3+i%2, at, 4)
		testMoves(t, rules[i%3], 2+i%3, at, 3)
	}
}

var placesToMove = []place{{policy.Servers, 1}, {policy.Servers, 2}, {policy.Servers, 4}, {policy.Hybrid, 1}, {policy.Hybrid, 3}, {policy.AllReduce, 0}}

// place is where variables are.
type place struct {
	a       policy.Architecture
	servers int
}

func testMoves(t *testing.T, rule optimizer.Rule, workers int, at place, steps uint64) {
	t.Run(fmt.Sprintf("%s/W%d/%s%d", rule, workers, at.a, at.servers), func(t *testing.T) {
		t.Parallel()
		j := newJob(t, movableTables(6, workers, rule), at.a, at.servers)
		checkMoves(t, j, steps, uint64(workers*10+at.servers), everyOwner(&j.d))
	})
}

// Tables move between servers while hosts use local aggregation.
func TestMovesKeepBitsWithLocalAggregation(t *testing.T) {
	for _, hosts := range [][]layout.Range{{{Lo: 0, Hi: 4}}, {{Lo: 0, Hi: 1}, {Lo: 1, Hi: 3}, {Lo: 3, Hi: 4}}} {
		for _, a := range []policy.Architecture{policy.Servers, policy.Hybrid} {
			t.Run(fmt.Sprint(hosts, a), func(t *testing.T) {
				t.Parallel()
				d := movableTables(6, 4, optimizer.Adagrad)
				d.Hosts = hosts
				j := newJob(t, d, a, 3)
				checkMoves(t, j, 4, 9, []int{0, 1, 2})
			})
		}
	}
}

// Steps end in a different way if no norm is computed and nothing is clipped.
func TestMovesKeepBitsWithoutClipping(t *testing.T) {
	for _, a := range []policy.Architecture{policy.Servers, policy.Hybrid, policy.AllReduce} {
		for _, norm := range []bool{true, false} {
			t.Run(fmt.Sprint(a, norm), func(t *testing.T) {
				t.Parallel()
				d := movableTables(6, 3, optimizer.Adam)
				d.Clip, d.Norm = 0, norm
				j := newJob(t, d, a, 3)
				checkMoves(t, j, 3, 4, everyOwner(&j.d))
			})
		}
	}
}

// Steps without data change nothing, before and after a move.
func TestMoveBetweenStepsWithoutData(t *testing.T) {
	d := movableTables(6, 3, optimizer.Adam)
	j := newJob(t, d, policy.Servers, 3)
	members := j.connect(t)
	n := newReference(&j.d)
	random := rand.New(rand.NewPCG(1, 1))
	for s := range uint64(8) {
		present := func(leaf int) bool { return s%3 != 1 && (leaf+int(s))%2 == 0 }
		must(t, repartition(members, shuffled(&j.d, random, []int{0, 1, 2})))
		_, errs := stepPresent(members, s, 0.05, present)
		must(t, errs)
		n.step(0, 6, s, 0.05, present)
		compareTables(t, members[0], n)
	}
	leave(t, j, members)
}

// onHolder returns pieces that place all tables on one shard holder.
func onHolder(d *layout.Declaration, holder int) []layout.Piece {
	pieces := slices.DeleteFunc(slices.Clone(d.Pieces), func(p layout.Piece) bool { return d.Variables[p.Variable].Sparse != nil })
	for i, v := range d.Variables {
		if v.Sparse != nil {
			pieces = append(pieces, layout.Piece{Variable: i, Holder: holder, Count: v.Units()})
		}
	}
	return pieces
}

// A shard holder without pieces gets no frames in a step, whether it had
// pieces earlier or not.
func TestHolderWithoutPiecesGetsNoFrames(t *testing.T) {
	for _, a := range []policy.Architecture{policy.Servers, policy.Hybrid} {
		t.Run(a.String(), func(t *testing.T) {
			t.Parallel()
			d := movableTables(4, 2, optimizer.Momentum)
			d.Variables = slices.DeleteFunc(d.Variables, func(v layout.Variable) bool { return a == policy.Servers && v.Sparse == nil })
			j := newJob(t, d, a, 5)
			members := j.connect(t)
			for s := range uint64(6) {
				if s == 3 {
					must(t, repartition(members, onHolder(&j.d, 1)))
				}
				sent, received := members[0].holders.links[4].session.Traffic()
				idle, _ := members[0].holders.links[3].session.Traffic()
				_, errs := step(members, s, 0.1)
				must(t, errs)
				if a, b := members[0].holders.links[4].session.Traffic(); a != sent || b != received {
					t.Errorf("step %d: %d and %d bytes to and from a shard holder of nothing", s, a-sent, b-received)
				}
				if now, _ := members[0].holders.links[3].session.Traffic(); s >= 3 && now != idle {
					t.Errorf("step %d: %d bytes to a shard holder that has nothing any more", s, now-idle)
				}
			}
			must(t, repartition(members, onHolder(&j.d, 4)))
			_, errs := step(members, 6, 0.1)
			must(t, errs)
			leave(t, j, members)
		})
	}
}

func TestTransfers(t *testing.T) {
	piece := func(variable, holder, offset, count int) layout.Piece {
		return layout.Piece{Variable: variable, Holder: holder, Offset: offset, Count: count}
	}
	old := []layout.Piece{piece(1, 0, 0, 10), piece(0, 0, 0, 4), piece(0, 1, 4, 6)}
	got := layout.Transfers(old, []layout.Piece{piece(0, 1, 3, 7), piece(0, 0, 0, 3), piece(1, 0, 0, 10)})
	want := []layout.Transfer{
		{Lo: 0, Hi: 3, Old: old[1], New: piece(0, 0, 0, 3)},
		{Lo: 3, Hi: 4, Old: old[1], New: piece(0, 1, 3, 7)},
		{Lo: 4, Hi: 10, Old: old[2], New: piece(0, 1, 3, 7)},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v", got)
	}
	random := rand.New(rand.NewPCG(8, 8))
	d := movableTables(1, 1, optimizer.SGD)
	d.Holders, d.Pieces = make([]cluster.Task, 4), nil
	for range 100 {
		a, b := shuffled(&d, random, []int{0, 1, 2, 3}), shuffled(&d, random, []int{0, 1, 2, 3})
		holder := func(pieces []layout.Piece, variable, row int) layout.Piece {
			for _, p := range pieces {
				if p.Variable == variable && p.Offset <= row && row < p.Offset+p.Count {
					return p
				}
			}
			panic("a row without a shard holder")
		}
		all := layout.Transfers(a, b)
		for variable, v := range d.Variables {
			for row := 0; v.Sparse != nil && row < v.Units(); row++ {
				var by []layout.Transfer
				for _, x := range all {
					if x.New.Variable == variable && x.Lo <= row && row < x.Hi {
						by = append(by, x)
					}
				}
				from, to := holder(a, variable, row), holder(b, variable, row)
				if from == to && len(by) != 0 || from != to && (len(by) != 1 || by[0].Old != from || by[0].New != to) {
					t.Fatalf("row %d of %s from %+v to %+v: %+v", row, v.Name, from, to, by)
				}
			}
		}
	}
}
