package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/policy"
	"github.com/plx-run/plx/trainer/wire"
)

// Random virtual workers, workers, hosts, servers, variables and absent data
// give the same bits as the reference.
func TestRandomJobsMatchReference(t *testing.T) {
	testRandomJobs(t, 1, 24)
}

func testRandomJobs(t *testing.T, first, jobs uint64) {
	for seed := first; seed < first+jobs; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 11))
			trainRandomly(t, randomJob(t, random), random)
		})
	}
}

func randomJob(t *testing.T, random *rand.Rand) *testJob {
	return randomlyPlaced(t, randomDeclaration(random), random)
}

// randomlyPlaced returns a job with a random placement, and with local
// aggregation in about half of all cases.
func randomlyPlaced(t *testing.T, d layout.Declaration, random *rand.Rand) *testJob {
	a := []policy.Architecture{policy.Servers, policy.Hybrid, policy.Hybrid, policy.AllReduce}[random.IntN(4)]
	servers := 1 + random.IntN(4)
	j := newJob(t, d, a, servers)
	if err := j.d.AssignPieces(a, servers, 1+random.IntN(200)); err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(j.d.Holders, isServer) && random.IntN(4) > 0 {
		j.d.Hosts = randomRanges(random, len(j.d.Workers))
	}
	t.Logf("%s, shard holders %v, leaves %v, hosts %v", a, j.d.Holders, j.d.Workers, j.d.Hosts)
	return j
}

func isServer(task cluster.Task) bool { return task.Role == cluster.PS }

// randomRanges cuts n anywhere.
func randomRanges(random *rand.Rand, n int) (all []layout.Range) {
	for lo := 0; lo < n; lo = all[len(all)-1].Hi {
		all = append(all, layout.Range{Lo: lo, Hi: lo + 1 + random.IntN(n-lo)})
	}
	return all
}

func randomDeclaration(random *rand.Rand) layout.Declaration {
	d := example(1+random.IntN(12), 1)
	for d.Workers = nil; len(d.Workers) == 0 || len(d.Workers) > 7; {
		d.Workers = randomRanges(random, d.VirtualWorkers)
	}
	d.Variables = nil
	for i := range 1 + random.IntN(6) {
		d.Variables = append(d.Variables, randomVariable(random, fmt.Sprint("v", i)))
	}
	d.Optimizer = []optimizer.Settings{
		{Rule: optimizer.SGD},
		{Rule: optimizer.Momentum, Momentum: 0.9},
		{Rule: optimizer.Adagrad, Epsilon: 1e-8},
		{Rule: optimizer.Adam, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8},
	}[random.IntN(4)]
	d.Clip, d.Norm = []float64{0, 0, 3}[random.IntN(3)], random.IntN(2) == 0
	d.Sum, d.Metrics = random.IntN(2) == 0, random.IntN(3)
	d.BucketBytes = []int{1, 300, 4096, 0}[random.IntN(4)]
	return d
}

func randomVariable(random *rand.Rand, name string) layout.Variable {
	v := layout.Variable{Name: name, Dtype: []layout.Dtype{layout.Float32, layout.Float64}[random.IntN(2)]}
	switch random.IntN(6) {
	case 0, 1, 2:
		v.Dtype, v.Shape = layout.Float32, []int{1 + random.IntN(50), 1 + random.IntN(4)}
		v.Sparse = &layout.Sparse{Average: random.IntN(2) == 0, First: layout.RowInit{Kind: "uniform", A: -1, B: 1, Seed: random.Uint64()}}
	case 3:
		v.Shape = []int{1 + random.IntN(3*layout.BlockElements)}
	case 4:
		v.Shape, v.Update, v.Momentum = []int{1 + random.IntN(20)}, optimizer.Average, 0.9
	default:
		v.Shape = []int{1 + random.IntN(5), 1 + random.IntN(7)}
	}
	return v
}

// trainRandomly takes steps in which random virtual workers are absent, and
// pulls rows.
func trainRandomly(t *testing.T, j *testJob, random *rand.Rand) {
	members := j.connect(t)
	n := newReference(&j.d)
	for s := range uint64(4) {
		absent, count := make([]bool, j.d.VirtualWorkers), 0
		if odds := random.IntN(4); odds > 0 {
			for leaf := range absent {
				absent[leaf] = random.IntN(odds) == 0
			}
		}
		present := func(leaf int) bool { return !absent[leaf] }
		for leaf := range absent {
			if present(leaf) {
				count++
			}
		}
		for _, m := range members {
			n.comparePulled(t, m, s)
		}
		ends, errs := stepPresent(members, s, 0.05, present)
		must(t, errs)
		n.step(0, j.d.VirtualWorkers, s, 0.05, present)
		for i, m := range members {
			n.compare(t, m.values, worker(i).String())
			if ends[i].VirtualWorkers != count || count > 0 && !n.reports(ends[i]) || count > 0 && j.d.Norms() && ends[i].Norm != n.norm {
				t.Fatalf("worker:%d: step %d: %+v, want %d leaves, loss %v, norm %v", i, s, ends[i], count, n.loss, n.norm)
			}
		}
	}
	leave(t, j, members)
}

// comparePulled pulls the rows that a worker's virtual workers touch in step
// s, and compares them with those of the reference.
func (t *reference) comparePulled(tb testing.TB, m *member, s uint64) {
	for i, v := range t.d.Variables {
		if v.Sparse == nil {
			continue
		}
		index := touched(v, m.virtual.Lo, s)
		got, want := make([]float32, len(index)*v.Width()), make([]float32, len(index)*v.Width())
		if err := m.Rows.Pull(context.Background(), i, index, wire.Bytes(got)); err != nil {
			tb.Fatal(err)
		}
		if err := t.tables[i].Read(index, want); err != nil {
			tb.Fatal(err)
		}
		if string(wire.Bytes(got)) != string(wire.Bytes(want)) {
			tb.Fatalf("worker:%d: rows %v of %s before step %d differ from the reference", m.rank, index, v.Name, s)
		}
	}
}
