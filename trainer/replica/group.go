package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/plx-run/plx/trainer/executor/gpu"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Build makes the model in a new graph, for batches of so many rows. It makes the
// same model each time.
type Build func(g *gorgonia.ExprGraph, rows int) (Model, error)

// Group are the replicas of one worker. They share the values of variables. All
// methods but those of its replicas are called by one goroutine at a time.
type Group struct {
	build     Build
	rows      int // rows of a training batch of one virtual worker
	replicas  []*Replica
	values    []gorgonia.Value // values of the kept variables, in plx's own memory
	memory    [][]byte         // the bytes of values, not a copy
	evaluated map[int]*Replica // by number of rows: a replica that does not train
	device    *gpu.Device      // what the replicas compute on; nil means the CPU
}

// maxEvaluated bounds how many graphs are kept for evaluations of different
// sizes.
const maxEvaluated = 4

// NewGroup builds n replicas for training batches of so many rows. They compute on
// a GPU, or on the CPU if on is nil.
func NewGroup(build Build, rows, n int, on *gpu.Device) (*Group, error) {
	g := &Group{build: build, rows: rows, device: on, evaluated: map[int]*Replica{}}
	for range n {
		r, err := g.compile(rows, true)
		if err != nil {
			return nil, err
		}
		g.replicas, g.values = append(g.replicas, r), r.kept
	}
	for _, v := range g.values {
		memory, _ := RowMajor(v) // newLike made it so
		g.memory = append(g.memory, memory)
	}
	return g, nil
}

// building guards Gorgonia's construction of graphs, which counts and pools in
// variables of its package.
var building sync.Mutex

func (g *Group) compile(rows int, train bool) (*Replica, error) {
	building.Lock()
	defer building.Unlock()
	m, err := g.build(gorgonia.NewGraph(), rows)
	if err != nil {
		return nil, err
	}
	return compile(m, g.values, train, g.device)
}

// Rebuild builds the model once more, for a build function that compares.
func (g *Group) Rebuild() error {
	building.Lock()
	defer building.Unlock()
	_, err := g.build(gorgonia.NewGraph(), g.rows)
	return err
}

// Memory is that of the kept variables, the trained ones and then those of the
// states. It is not a copy.
func (g *Group) Memory() [][]byte { return g.memory }

// OnGPU reports whether the replicas compute on a GPU.
func (g *Group) OnGPU() bool { return g.device != nil }

// Renew tells the replicas that bytes [from, to) of a kept variable have changed,
// after all of them have announced its gradient. Those on a GPU begin to copy
// them there. Several goroutines may renew different bytes.
func (g *Group) Renew(variable, from, to int) {
	for _, r := range g.replicas {
		r.program.Renew(variable, from, to)
	}
}

// Reside makes the only replica update the kept variables by itself, on its GPU.
// Memory is then older than the GPU's, until it is fetched.
func (g *Group) Reside(u gpu.Updates) (*gpu.Resident, error) {
	if len(g.replicas) != 1 {
		return nil, fmt.Errorf("%d replicas update the same variables", len(g.replicas))
	}
	return g.replicas[0].program.Reside(u)
}

// DeviceBytes is the size of the GPU's memory that the replicas use.
func (g *Group) DeviceBytes() (n int) {
	for _, r := range g.replicas {
		n += r.program.DeviceBytes()
	}
	return n
}

// First returns a replica to check feeds with.
func (g *Group) First() *Replica { return g.replicas[0] }

// Evaluator returns a replica that does not train, for so many rows. The group
// keeps the last few.
func (g *Group) Evaluator(rows int) (*Replica, error) {
	if r := g.evaluated[rows]; r != nil {
		return r, nil
	}
	if len(g.evaluated) >= maxEvaluated {
		for _, r := range g.evaluated {
			if err := r.program.Close(); err != nil {
				return nil, err
			}
		}
		clear(g.evaluated)
	}
	r, err := g.compile(rows, false)
	if err != nil {
		return nil, fmt.Errorf("%d rows: %w", rows, err)
	}
	g.evaluated[rows] = r
	return r, nil
}

// Each runs n virtual workers, counted from 0. Each replica does one after the
// other, and all replicas work at the same time, the first of them on the caller's
// goroutine. index is that of the replica. A replica that fails stops; the others go
// on. Each returns when all have ended.
func (g *Group) Each(ctx context.Context, n int, do func(r *Replica, index, vw int) error) error {
	var (
		next    atomic.Int64
		running sync.WaitGroup
		errs    = make([]error, len(g.replicas))
	)
	work := func(i int) {
		for errs[i] == nil {
			vw := int(next.Add(1)) - 1
			if vw >= n {
				return
			}
			if ctx.Err() != nil {
				errs[i] = context.Cause(ctx)
				return
			}
			errs[i] = do(g.replicas[i], i, vw)
		}
	}
	for i := 1; i < len(g.replicas); i++ {
		running.Go(func() { work(i) })
	}
	work(0)
	running.Wait()
	return errors.Join(errs...)
}

// Rows is the batch size of a feed for an evaluation. Carried inputs need not be fed.
func (g *Group) Rows(feed map[string]tensor.Tensor) (int, error) {
	m := g.replicas[0].model
	at := slices.IndexFunc(m.Inputs, func(n *gorgonia.Node) bool { return m.Carried[n.Name()] == nil })
	if at < 0 {
		return g.rows, nil
	}
	first := m.Inputs[at]
	from := feed[first.Name()]
	if from == nil {
		return 0, fmt.Errorf("input %q is not fed", first.Name())
	}
	if from.Shape().Dims() == 0 && first.Shape().Dims() > 0 { // tensor.New makes this of one number
		return 1, nil
	}
	if from.Shape().Dims() == 0 || from.Shape()[0] < 1 || first.Shape().Dims() == 0 {
		return 0, fmt.Errorf("input %q: shape %v has no rows", first.Name(), from.Shape())
	}
	each := max(1, first.Shape()[0]/g.rows) // rows of the input per row of the batch
	if from.Shape()[0]%each != 0 {
		return 0, fmt.Errorf("input %q: %d rows, want a multiple of %d", first.Name(), from.Shape()[0], each)
	}
	return from.Shape()[0] / each, nil
}
