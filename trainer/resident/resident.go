// Package resident keeps the variables of a worker on its GPU: for good if the worker
// trains alone, else until new values arrive.
//
//	v, where, err := resident.Keep(group, &declaration, choice) // nil if the CPU updates
//	c, err := client.Connect(ctx, client.Config{Home: v.Home(), Arrived: resident.Renewer(group, &declaration), ...})
//	v.Hold(c.Held())
//	sums, err := v.Run(replica, call, rate, ready) // instead of replica.Run
//	err = v.Fetch()                                // before anybody reads the host's memory
//
// While the GPU keeps variables, it is their only true place. It updates them at the
// end of each run. The shards of package aggregate count the updates, and the host's
// memory is brought up to date when a checkpoint, an evaluation or the digest reads it.
package resident

import (
	"errors"
	"fmt"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/executor/gpu"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/operation"
	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/replica"
)

// Variables are on the GPU of a worker that trains alone. The methods of nil are for
// variables that the CPU updates.
type Variables struct {
	gpu       *gpu.Resident
	held      []*aggregate.Shard
	variables []layout.Variable
}

// Choice is what decides, besides the training, who updates the variables.
type Choice struct {
	Everything bool // the CPU looks at every gradient
	Hooked     bool // hooks of the program see gradients, and may change them
	Never      bool // the CPU updates them in any case, for tests
}

// Keep keeps the variables of a group on its GPU, if gradients need not leave it. It
// returns nil if the CPU updates them. where says who does and why, for the end of a
// line; it is empty if the group has no GPU.
func Keep(g *replica.Group, d *layout.Declaration, c Choice) (v *Variables, where string, err error) {
	if c.Never || !g.OnGPU() {
		return nil, "", nil
	}
	why := leaves(d)
	switch {
	case c.Everything:
		why = "--check-numerics looks at every gradient"
	case c.Hooked:
		why = "hooks see the gradients"
	}
	if why != "" {
		return nil, ", updates on the CPU: " + why, nil
	}
	u := gpu.Updates{Limit: d.Clip}
	for _, v := range d.Variables {
		u.Rules = append(u.Rules, d.Rule(v))
	}
	if d.Norms() {
		u.Block = layout.BlockElements
	}
	r, err := g.Reside(u)
	if _, full := errors.AsType[*gpu.MemoryError](err); full {
		return nil, ", updates on the CPU: what the optimiser keeps does not fit into the gpu's memory", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("keep the variables on the gpu: %w", err)
	}
	return &Variables{gpu: r, variables: d.Variables}, ", updates on the gpu", nil
}

// leaves says why gradients must leave the GPU; "": they need not.
func leaves(d *layout.Declaration) string {
	switch {
	case len(d.Workers) > 1:
		return "gradients of several workers are added"
	case d.VirtualWorkers > 1:
		return fmt.Sprintf("gradients of %d virtual workers are added", d.VirtualWorkers)
	case len(d.Holders) > 1 || !d.Holders[0].IsChief():
		return "a parameter server holds variables"
	case !d.Sync.InStep():
		return fmt.Sprintf("--sync %s", d.Sync)
	}
	for _, v := range d.Variables {
		if v.Sparse != nil {
			return "the model has embeddings"
		}
	}
	return ""
}

// Renewer returns what brings a new value to the GPU as soon as it has arrived in the
// host's memory; nil if the group has none.
func Renewer(g *replica.Group, d *layout.Declaration) func(p layout.Piece) {
	if !g.OnGPU() {
		return nil
	}
	return func(p layout.Piece) {
		size := d.Variables[p.Variable].Dtype.Size()
		g.Renew(p.Variable, p.Offset*size, (p.Offset+p.Count)*size)
	}
}

// Home is what the shards must know of the GPU; nil if they have the values.
func (v *Variables) Home() aggregate.Home {
	if v == nil {
		return nil
	}
	return v.gpu
}

// Hold gives the GPU what the shards of all variables keep in the memory of the host.
// It must be called once, before the first run.
func (v *Variables) Hold(held []*aggregate.Shard) {
	if v == nil {
		return
	}
	v.held = held
	for _, s := range held {
		v.gpu.Hold(s.Variable, s.Slots())
	}
}

// Fetch brings the values in the memory of the host up to date.
func (v *Variables) Fetch() error {
	if v == nil {
		return nil
	}
	return v.gpu.Values()
}

// Run is one.Run for a step at a rate. The GPU has updated the variables when it calls
// ready. After a loss that is not finite nothing was updated, and ready is not called:
// values and gradients are copied to the host, for the guard that looks for the cause.
func (v *Variables) Run(one *replica.Replica, call operation.Call, rate float64, ready func(i int)) ([]float64, error) {
	if v == nil {
		return one.Run(call, ready)
	}
	for _, s := range v.held {
		v.gpu.Update(s.Variable, optimizer.Step{Number: s.Updates(), Rate: v.variables[s.Variable].Rate(rate), Scale: 1})
	}
	sums, err := one.Run(call, nil)
	if err != nil {
		return nil, err
	}
	if !replica.Finite(sums[0]) {
		return sums, errors.Join(v.gpu.Values(), v.gpu.Gradients(one.Gradient))
	}
	for i := range one.Gradients() {
		ready(i)
	}
	return sums, nil
}
