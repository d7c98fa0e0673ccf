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

// Build builds the model in the new graph g, for batches of the given number
// of rows. It must build the same model each time.
type Build func(g *gorgonia.ExprGraph, rows int) (Model, error)

// Group is all replicas of one worker: copies of the model's graph that share
// the values of the variables. Only one goroutine at a time may call methods
// of the Group.
type Group struct {
	build     Build
	rows      int // rows of the part of a training batch that one virtual worker computes
	replicas  []*Replica
	values    []gorgonia.Value // values of the variables in Model.Kept, in memory that plx allocated
	memory    [][]byte         // memory of the values in field values, not a copy
	evaluated map[int]*Replica // replicas for evaluations; the key is the number of rows of the batch
	device    *gpu.Device      // GPU on which the replicas compute; nil means the CPU
}

// maxEvaluated bounds the number of compiled graphs that a Group keeps for
// evaluations of different batch sizes.
const maxEvaluated = 4

// NewGroup builds n replicas for training batches of the given number of rows.
// The parameter on is the GPU that computes; nil means the CPU.
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
		memory, _ := RowMajor(v) // always row-major, because newLike allocated v
		g.memory = append(g.memory, memory)
	}
	return g, nil
}

// building serialises the construction of graphs, because Gorgonia uses
// counters and pools in package variables.
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

// Rebuild calls the build function once more and discards the model that it
// returns. The build function can thereby compare the model with that of its
// earlier call.
func (g *Group) Rebuild() error {
	building.Lock()
	defer building.Unlock()
	_, err := g.build(gorgonia.NewGraph(), g.rows)
	return err
}

// Memory returns the memory of the variables that every worker has completely,
// without a copy: first the trained variables, then those of the states
// (running averages).
func (g *Group) Memory() [][]byte { return g.memory }

// OnGPU reports whether the replicas compute on a GPU.
func (g *Group) OnGPU() bool { return g.device != nil }

// Renew tells the replicas that the caller has changed bytes [from, to) of a
// variable; the parameter variable is its index in Memory. Call Renew only
// after all replicas have reported the variable's gradient as ready. Replicas
// on a GPU begin to copy the bytes to the GPU. Several goroutines may call
// Renew at once for different bytes.
func (g *Group) Renew(variable, from, to int) {
	for _, r := range g.replicas {
		r.program.Renew(variable, from, to)
	}
}

// Reside makes the group's only replica update its variables on its GPU. The
// CPU then takes no part, and the values in the CPU's memory (see Memory)
// become out of date. Resident.Values and Resident.Fetch copy the current
// values back.
func (g *Group) Reside(u gpu.Updates) (*gpu.Resident, error) {
	if len(g.replicas) != 1 {
		return nil, fmt.Errorf("updates on the GPU need exactly 1 replica, not %d", len(g.replicas))
	}
	return g.replicas[0].program.Reside(u)
}

// DeviceBytes returns the number of bytes of GPU memory that the training
// replicas use.
func (g *Group) DeviceBytes() (n int) {
	for _, r := range g.replicas {
		n += r.program.DeviceBytes()
	}
	return n
}

// First returns the first replica, with which a caller can check feeds (the
// tensors for the inputs).
func (g *Group) First() *Replica { return g.replicas[0] }

// Evaluator returns a replica for evaluations of the given number of rows. The
// group keeps up to maxEvaluated of them for later calls.
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

// Each calls do for the virtual workers 0 to n-1, which share the batch of
// this worker. Each replica runs one virtual worker after the other, and all
// replicas run concurrently, the first one on the caller's goroutine. index is
// the replica's index in the group. After an error a replica takes no further
// virtual workers; the other replicas continue. Each returns after all
// replicas have finished.
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

// Rows returns the number of rows of an evaluation batch, from the shape of
// the first fed input. The feed may omit carried inputs.
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
	if from.Shape().Dims() == 0 && first.Shape().Dims() > 0 { // tensor.New gives a slice of one number the shape ()
		return 1, nil
	}
	if from.Shape().Dims() == 0 || from.Shape()[0] < 1 || first.Shape().Dims() == 0 {
		return 0, fmt.Errorf("input %q: shape %v has no rows", first.Name(), from.Shape())
	}
	each := max(1, first.Shape()[0]/g.rows) // number of the input's rows for each row of the batch
	if from.Shape()[0]%each != 0 {
		return 0, fmt.Errorf("input %q: %d rows, want a multiple of %d", first.Name(), from.Shape()[0], each)
	}
	return from.Shape()[0] / each, nil
}
