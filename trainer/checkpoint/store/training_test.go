package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/plx-run/plx/internal/patience"
	"github.com/plx-run/plx/internal/statetwin"
	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/exchange/client"
	"github.com/plx-run/plx/trainer/exchange/server"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/policy"
	"github.com/plx-run/plx/trainer/sparse"
	"github.com/plx-run/plx/trainer/wire"
)

// training is a real one, of owners and workers, over a job's depots.
type training struct {
	j       *testJob
	d       layout.Declaration
	clients []*client.Client
	values  [][][]byte // by worker
	serving sync.WaitGroup
}

const leaves = 4

// train declares, serves and connects; from is nil for a new training.
func train(j *testJob, l shape, a policy.Architecture, from *checkpoint.Manifest) *training {
	j.t.Helper()
	r := &training{j: j, clients: make([]*client.Client, l.workers), values: make([][][]byte, l.workers)}
	r.d = layout.Declaration{
		VirtualWorkers: leaves, Batch: 8, StartMillis: patience.Limit.Milliseconds(), SilenceMillis: patience.Limit.Milliseconds(),
		Optimizer: optimizer.Settings{Rule: optimizer.Adam, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8},
		Variables: []layout.Variable{
			{Name: "w", Dtype: layout.Float32, Shape: []int{3, 1500}},
			{Name: "b", Dtype: layout.Float64, Shape: []int{5}},
			{Name: "words", Dtype: layout.Float32, Shape: []int{400, 3}, Sparse: &layout.Sparse{First: sparse.Initial{Kind: sparse.Uniform, A: -1, B: 1, Seed: 3}}},
		},
	}
	for i := range l.workers {
		r.d.Workers = append(r.d.Workers, layout.Range{Lo: leaves * i / l.workers, Hi: leaves * (i + 1) / l.workers})
	}
	if from != nil {
		r.d.Checkpoint, r.d.First = from.ID, from.Step
	}
	if err := r.d.Place(a, l.servers, 2000); err != nil {
		j.t.Fatal(err)
	}
	for i := range l.servers {
		c := j.configs[ps(i)]
		r.serving.Go(func() {
			d := j.stores[ps(i)]
			err := server.Serve(context.Background(), server.Config{Peers: c.Peers, Listener: c.Listener, Cluster: c.Cluster, Checkpoints: d})
			if err != nil {
				j.t.Errorf("ps:%d: %v", i, err)
			}
		})
	}
	r.each(func(i int) error { return r.connect(i) })
	for task, d := range j.stores {
		if task.Role == cluster.Worker {
			d.Restored()
		}
	}
	return r
}

func (r *training) connect(i int) (err error) {
	c, d := r.j.configs[worker(i)], r.j.stores[worker(i)]
	random := rand.New(rand.NewPCG(uint64(i), 8)) // the chief's are everybody's
	r.values[i] = [][]byte{wire.Bytes(make([]float32, 4500)), wire.Bytes(make([]float64, 5)), nil}
	fill(random, r.values[i][0], layout.Float32)
	fill(random, r.values[i][1], layout.Float64)
	r.clients[i], err = client.Connect(context.Background(), client.Config{Peers: c.Peers, Listener: c.Listener, Cluster: c.Cluster,
		Declaration: r.d, Values: r.values[i], Checkpoints: d})
	if err == nil {
		r.j.t.Cleanup(func() { r.clients[i].Abort(errors.New("the test is over")) })
	}
	return err
}

func fill(random *rand.Rand, b []byte, dtype layout.Dtype) {
	if dtype == layout.Float32 {
		for i := range wire.Floats[float32](b) {
			wire.Floats[float32](b)[i] = float32(random.NormFloat64())
		}
		return
	}
	for i := range wire.Floats[float64](b) {
		wire.Floats[float64](b)[i] = random.NormFloat64()
	}
}

// each has every worker do something at once.
func (r *training) each(f func(i int) error) {
	r.j.t.Helper()
	errs := make([]error, len(r.clients))
	var all sync.WaitGroup
	for i := range r.clients {
		all.Go(func() { errs[i] = f(i) })
	}
	all.Wait()
	for i, err := range errs {
		if err != nil {
			r.j.t.Fatalf("worker:%d: %v", i, err)
		}
	}
}

// step takes a step, whose gradients follow from its number and the leaf.
func (r *training) step(step uint64) {
	r.j.t.Helper()
	r.each(func(i int) error {
		c := r.clients[i]
		if err := c.Begin(0.01); err != nil {
			return err
		}
		var losses [][]float64
		for leaf := r.d.Workers[i].Lo; leaf < r.d.Workers[i].Hi; leaf++ {
			random := rand.New(rand.NewPCG(step, uint64(leaf)))
			for v, variable := range r.d.Variables {
				if variable.Sparse == nil {
					fill(random, c.Gradient(leaf, v), variable.Dtype)
					c.Contribute(leaf, v)
					continue
				}
				index := []int64{int64(random.IntN(40)), int64(100 + random.IntN(40)), int64(200 + random.IntN(200))}
				gradient := wire.Bytes(make([]float32, 9))
				fill(random, gradient, layout.Float32)
				c.ContributeRows(leaf, v, index, gradient)
			}
			losses = append(losses, []float64{1})
		}
		_, err := c.Finish(context.Background(), losses)
		return err
	})
}

// save saves what there is now.
func (r *training) save() {
	r.j.t.Helper()
	e := Expected{Number: r.clients[0].Saves.Number(), Manifest: checkpoint.Manifest{Step: r.clients[0].Step(), VirtualWorkers: leaves, Batch: 8, Optimizer: r.d.Optimizer}}
	for _, v := range r.d.Variables {
		e.Manifest.Variables = append(e.Manifest.Variables, checkpoint.Variable{Name: v.Name, Dtype: string(v.Dtype), Shape: v.Shape, Sparse: v.Sparse != nil})
	}
	e.Holders = statetwin.Holding(&r.d)
	if err := r.j.chief().Expect(e); err != nil {
		r.j.t.Fatal(err)
	}
	if err := r.clients[0].Saves.Save(); err != nil {
		r.j.t.Fatal(err)
	}
}

// end returns what was trained, and ends everything in good order.
func (r *training) end() []byte {
	r.j.t.Helper()
	table := make([]byte, 400*3*4)
	if err := r.clients[0].Rows.Whole(context.Background(), 2, table); err != nil {
		r.j.t.Fatal(err)
	}
	trained := slices.Concat(r.values[0][0], r.values[0][1], table)
	r.each(func(i int) error { return r.clients[i].Close() })
	r.serving.Wait()
	r.j.end()
	return trained
}

// A training that ends somewhere and goes on elsewhere, on other numbers of
// tasks, comes to the same bits as one that nothing has disturbed.
func TestTrainingGoesOn(t *testing.T) {
	const steps, stop = 9, 6
	hosts := []string{"a", "b"}
	undisturbed := shape{workers: 1, hosts: hosts[:1]}
	j := opened(t, t.TempDir(), undisturbed)
	j.choose()
	r := train(j, undisturbed, policy.AllReduce, nil)
	for s := range uint64(steps) {
		r.step(s)
	}
	want := r.end()
	for _, test := range []struct {
		before, after shape
		a, b          policy.Architecture
	}{
		{shape{servers: 2, workers: 2, hosts: hosts}, shape{servers: 1, workers: 4, hosts: hosts}, policy.Servers, policy.Servers},
		{shape{workers: 4, hosts: hosts}, shape{servers: 2, workers: 2, hosts: hosts}, policy.AllReduce, policy.Hybrid},
		{shape{servers: 2, workers: 3, hosts: hosts}, shape{servers: 0, workers: 2, hosts: hosts}, policy.Hybrid, policy.AllReduce},
		{shape{servers: 1, workers: 1, hosts: hosts}, shape{servers: 3, workers: 3, hosts: hosts}, policy.Servers, policy.Hybrid},
	} {
		t.Run(fmt.Sprint(test.a, test.before.workers, test.b, test.after.workers), func(t *testing.T) {
			root := t.TempDir()
			j := opened(t, root, test.before)
			j.choose()
			r := train(j, test.before, test.a, nil)
			for s := range uint64(stop) {
				if s%2 == 0 && !j.chief().Busy() {
					r.save()
				}
				r.step(s)
			}
			if err := j.chief().Wait(soon(t)); err != nil {
				t.Fatal(err)
			}
			r.save() // after the last step
			r.end()
			if got := j.lines("WARN"); len(got) > 0 {
				t.Errorf("warns %q", got)
			}
			test.after.generation = 1
			j = opened(t, root, test.after)
			m := j.choose()
			if m == nil || m.Step != stop {
				t.Fatalf("chosen %v", m)
			}
			r = train(j, test.after, test.b, m)
			for s := uint64(stop); s < steps; s++ {
				r.step(s)
			}
			if got := r.end(); string(got) != string(want) {
				t.Error("other bits than in an undisturbed training")
			}
		})
	}
}
