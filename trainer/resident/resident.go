// Package resident keeps the variables of a worker in the memory of its GPU.
// If the worker trains alone, they stay there permanently. If it trains with
// others, they stay until new values arrive from the shard holders (tasks that
// store variables).
//
//	v, where, err := resident.Keep(group, &declaration, choice) // nil if the CPU updates
//	c, err := client.Connect(ctx, client.Config{Home: v.Home(), Arrived: resident.Renewer(group, &declaration), ...})
//	v.Hold(c.Held())
//	sums, err := v.Run(replica, call, rate, ready) // instead of replica.Run
//	err = v.Fetch()                                // before the host's memory is read
//
// If the worker trains alone, only the GPU has the current values of the
// variables. It updates them at the end of each run, and package aggregate
// only counts the updates. The values are copied to the host's memory when it
// is read: before a checkpoint, before an evaluation and before a checksum of
// the variables is computed.
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

// Variables are the variables of a worker that trains alone, stored on its
// GPU. A nil *Variables is valid and means that the CPU updates the variables.
type Variables struct {
	gpu       *gpu.Resident
	held      []*aggregate.Shard
	variables []layout.Variable
}

// Choice contains the reasons outside of the model for which the CPU, not the
// GPU, updates the variables.
type Choice struct {
	Everything bool // true if the CPU checks every gradient (--check-numerics)
	Hooked     bool // true if the user's program has hooks, which read gradients and may change them
	Never      bool // true if the CPU always updates the variables; for tests
}

// Keep stores the variables of a group of replicas on its GPU, if gradients
// can stay there too. v is nil if the CPU updates the variables. where says
// which device updates them and why, as the end of a log line; it is empty if
// the group has no GPU.
func Keep(g *replica.Group, d *layout.Declaration, c Choice) (v *Variables, where string, err error) {
	if c.Never || !g.OnGPU() {
		return nil, "", nil
	}
	why := reasonForCPU(d)
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

// reasonForCPU returns the reason why gradients must be copied from the GPU to the
// host; empty if there is none.
func reasonForCPU(d *layout.Declaration) string {
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

// Renewer returns a function for pieces of variables whose new values have
// arrived in the host's memory. The function starts to copy such a piece to
// the GPU. Renewer returns nil if the group has no GPU.
func Renewer(g *replica.Group, d *layout.Declaration) func(p layout.Piece) {
	if !g.OnGPU() {
		return nil
	}
	return func(p layout.Piece) {
		size := d.Variables[p.Variable].Dtype.Size()
		g.Renew(p.Variable, p.Offset*size, (p.Offset+p.Count)*size)
	}
}

// Home returns the GPU if it stores the current values of the variables. It
// returns nil if they are in the host's memory.
func (v *Variables) Home() aggregate.DeviceMemory {
	if v == nil {
		return nil
	}
	return v.gpu
}

// Hold registers the host's memory of the optimiser state of all shards. The
// first run copies that state to the GPU. Hold must be called once, before the
// first run.
func (v *Variables) Hold(held []*aggregate.Shard) {
	if v == nil {
		return
	}
	v.held = held
	for _, s := range held {
		v.gpu.Hold(s.Variable, s.Slots())
	}
}

// Fetch copies the current values from the GPU to the host's memory.
func (v *Variables) Fetch() error {
	if v == nil {
		return nil
	}
	return v.gpu.Values()
}

// Run computes one step on a replica and applies it with the given learning
// rate. It calls ready for each gradient after the GPU has updated the
// variables. If the loss is not finite, Run updates nothing and does not call
// ready. Instead it copies values and gradients to the host, where the caller
// looks for the cause.
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
