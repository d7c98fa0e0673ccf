package layout

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"

	"github.com/plx-run/plx/trainer/cluster"
)

const (
	maxLeaves  = 1 << 16
	maxHolders = 1 << 16
	maxMetrics = 1 << 10
	MaxFirst   = 1 << 60 // largest number of the step at which training may resume; step counters that start there cannot overflow

	MaxCheckpoint = 256 // largest length of a checkpoint's ID, in bytes
)

// checker finds errors in a declaration.
type checker struct{ d *Declaration }

func (c checker) all() error {
	d := c.d
	if d.StartMillis < 1 || d.SilenceMillis < 1 {
		return errors.New("declaration: start and silence must be positive")
	}
	if d.VirtualWorkers < 1 || d.VirtualWorkers > maxLeaves || d.Metrics < 0 || d.Metrics > maxMetrics || d.BucketBytes < 0 {
		return fmt.Errorf("declaration: %d virtual workers, %d metrics, buckets of %d bytes: want 1 to %d, 0 to %d, and not negative",
			d.VirtualWorkers, d.Metrics, d.BucketBytes, maxLeaves, maxMetrics)
	}
	if !(d.Clip >= 0) || math.IsInf(d.Clip, 1) {
		return fmt.Errorf("declaration: gradients clipped at norm %v: want a finite positive number, 0 for none", d.Clip)
	}
	if d.First > MaxFirst || len(d.Checkpoint) > MaxCheckpoint || d.Checkpoint == "" && d.First > 0 {
		return fmt.Errorf("declaration: begins with step %d from checkpoint %q: want a step up to %d and a name of at most %d bytes, or neither",
			d.First, d.Checkpoint, uint64(MaxFirst), MaxCheckpoint)
	}
	if err := d.Optimizer.Check(); err != nil {
		return err
	}
	if err := covers(d.Workers, d.VirtualWorkers); err != nil {
		return fmt.Errorf("virtual workers of the workers: %w", err)
	}
	if err := c.variables(); err != nil {
		return err
	}
	if err := c.holders(); err != nil {
		return err
	}
	return c.mode()
}

// covers returns an error unless the ranges are non-empty and together cover
// [0, n) in ascending order, without gaps.
func covers(ranges []Range, n int) error {
	end := 0
	for i, r := range ranges {
		if r.Lo != end || r.Hi <= r.Lo || r.Hi > n {
			return fmt.Errorf("range %d is [%d, %d), want it to begin at %d and end before %d", i, r.Lo, r.Hi, end, n+1)
		}
		end = r.Hi
	}
	if end != n {
		return fmt.Errorf("%d of %d are covered", end, n)
	}
	return nil
}

func (c checker) variables() error {
	d := c.d
	seen := map[string]bool{}
	for _, v := range d.Variables {
		if v.Name == "" || seen[v.Name] {
			return fmt.Errorf("variable %q: names must be distinct and not empty", v.Name)
		}
		seen[v.Name] = true
		if err := v.check(); err != nil {
			return err
		}
	}
	return c.pieces()
}

// pieces returns an error unless exactly one piece contains each element or
// row of every variable.
func (c checker) pieces() error {
	d := c.d
	sorted := inOrder(d.Pieces)
	for i, v := range d.Variables {
		n, end := v.Units(), 0
		for ; len(sorted) > 0 && sorted[0].Variable == i; sorted = sorted[1:] {
			p := sorted[0]
			if p.Offset != end || p.Count <= 0 || p.Count > n-end || p.Holder < 0 || p.Holder >= len(d.Holders) {
				return fmt.Errorf("variable %q: bad piece %+v with %d shard holders", v.Name, p, len(d.Holders))
			}
			if v.Sparse == nil && p.Offset%BlockElements != 0 {
				return fmt.Errorf("variable %q: bad piece %+v: does not begin at a block of %d", v.Name, p, BlockElements)
			}
			end += p.Count
		}
		if end != n {
			return fmt.Errorf("variable %q: %d of %d have a shard holder", v.Name, end, n)
		}
	}
	if len(sorted) > 0 {
		return fmt.Errorf("piece of an undeclared variable: %+v", sorted[0])
	}
	return nil
}

// holders returns an error if a shard holder is not a task of the job, appears
// twice, or has no piece. If d.Movable is set, a holder without a piece is
// allowed, because it may get one later.
func (c checker) holders() error {
	d := c.d
	if len(d.Holders) == 0 || len(d.Holders) > maxHolders {
		return fmt.Errorf("declaration: %d shard holders, want 1 to %d", len(d.Holders), maxHolders)
	}
	holds := d.Holding()
	for i, t := range d.Holders {
		switch {
		case t.Role != cluster.PS && t.Role != cluster.Worker || t.Index < 0,
			t.Role == cluster.Worker && t.Index >= len(d.Workers):
			return fmt.Errorf("shard holder %s is no task of this job", t)
		case slices.Contains(d.Holders[:i], t):
			return fmt.Errorf("shard holder %s is named twice", t)
		case !holds[i] && !d.Movable:
			return fmt.Errorf("shard holder %s holds nothing", t)
		}
	}
	return nil
}

// mode returns an error if the synchronisation mode does not work with other
// settings of the declaration.
func (c checker) mode() error {
	d := c.d
	if err := d.Sync.Check(len(d.Workers)); err != nil {
		return err
	}
	if err := c.cut(); err != nil {
		return err
	}
	if d.Movable && !d.Sync.InStep() {
		return fmt.Errorf("synchronisation %s keeps variables with their shard holders: movable ones need synchronisation sync", d.Sync)
	}
	if !d.Sync.InStep() && !c.served() {
		return fmt.Errorf("synchronisation %s works with servers as shard holders only: a worker that holds variables is needed in every step; "+
			"choose the architecture ps or synchronisation sync", d.Sync)
	}
	if d.Sync.WorkersCompete() && d.Norms() {
		return fmt.Errorf("synchronisation %s and the norm of the gradients do not work together: no server knows in time "+
			"whose gradients a step uses, so none can compute the norm; turn off clipping or choose another mode", d.Sync)
	}
	return c.hosts()
}

// cut checks d.Cut, the number of steps in the checkpoint for each group of
// workers. It returns an error if d.Cut does not fit the other fields.
func (c checker) cut() error {
	d := c.d
	switch {
	case d.Cut == nil:
		return nil
	case d.Checkpoint == "" || !d.Sync.UsesCuts() || len(d.Cut) != len(d.Groups()) || d.Cut[0] != d.First:
		return fmt.Errorf("declaration: begins with steps %v, the first with %d, from checkpoint %q, in %d groups with synchronisation %s",
			d.Cut, d.First, d.Checkpoint, len(d.Groups()), d.Sync)
	case slices.Max(d.Cut) > MaxFirst:
		return fmt.Errorf("declaration: begins with step %d: want one up to %d", slices.Max(d.Cut), uint64(MaxFirst))
	}
	return nil
}

// hosts checks d.Hosts, which asks the workers of a host to add their
// gradients before they are sent. It returns an error if other settings do not
// allow this.
func (c checker) hosts() error {
	d := c.d
	if len(d.Hosts) == 0 {
		return nil
	}
	if err := covers(d.Hosts, len(d.Workers)); err != nil {
		return fmt.Errorf("workers of the hosts: %w", err)
	}
	if !d.Sync.InStep() || !slices.ContainsFunc(d.Holders, d.Aggregates) {
		return errors.New("local aggregation works with synchronisation sync and with servers among the shard holders only: turn it off")
	}
	aggregated := d.Aggregated()
	for _, p := range d.Pieces {
		if d.Aggregates(d.Holders[p.Holder]) != aggregated[p.Variable] {
			return fmt.Errorf("variable %q is held by servers and by workers, so the workers of a host cannot add its gradients: "+
				"place it on servers only or on workers only, or turn off local aggregation", d.Variables[p.Variable].Name)
		}
	}
	return nil
}

// served reports whether all shard holders are parameter servers.
func (c checker) served() bool {
	return !slices.ContainsFunc(c.d.Holders, func(t cluster.Task) bool { return t.Role != cluster.PS })
}

// Difference describes the first difference between d and other in words. It
// returns "" if there is none.
func (d *Declaration) Difference(other *Declaration) string {
	if a, b := len(d.Variables), len(other.Variables); a != b {
		return fmt.Sprintf("%d variables, not %d", b, a)
	}
	for i, v := range d.Variables {
		if what := v.difference(i, other.Variables[i]); what != "" {
			return what
		}
	}
	kind := map[bool]string{false: "mean", true: "sum"}
	for _, c := range []struct {
		format     string
		own, other any
	}{
		{"%d virtual workers, not %d", d.VirtualWorkers, other.VirtualWorkers},
		{"%d workers, not %d", len(d.Workers), len(other.Workers)},
		{"virtual workers %v, not %v", d.Workers, other.Workers},
		{"synchronisation %s, not %s", d.Sync, other.Sync},
		{"shard holders %v, not %v", d.Holders, other.Holders},
		{"optimiser %+v, not %+v", d.Optimizer, other.Optimizer},
		{"begins %s, not %s", origin(d.Checkpoint), origin(other.Checkpoint)},
		{"begins with step %d, not %d", d.First, other.First},
		{"begins with steps %v, not %v", d.Cut, other.Cut},
		{"loss kind %s, not %s", kind[d.Sum], kind[other.Sum]},
		{"global batch %d, not %d", d.Batch, other.Batch},
		{"gradients clipped at %v, not %v", d.Clip, other.Clip},
		{"norm of gradients reported: %t, not %t", d.Norm, other.Norm},
		{"%d metrics, not %d", d.Metrics, other.Metrics},
		{"buckets of %d bytes, not %d", d.BucketBytes, other.BucketBytes},
		{"hosts with workers %v, not %v", d.Hosts, other.Hosts},
		{"variables that can move: %t, not %t", d.Movable, other.Movable},
		{"same bits promised: %t, not %t", d.Exact, other.Exact},
	} {
		if fmt.Sprint(c.own) != fmt.Sprint(c.other) {
			return fmt.Sprintf(c.format, c.other, c.own)
		}
	}
	switch {
	case !slices.Equal(d.Pieces, other.Pieces):
		return "another placement of the variables on their shard holders"
	case d.Device != other.Device:
		return fmt.Sprintf("computes on the %s, not on the %s: give every worker a gpu in the resource file, or train with --device cpu", cmp.Or(other.Device, "cpu"), cmp.Or(d.Device, "cpu"))
	case d.Exact && d.Fingerprint != other.Fingerprint:
		return fmt.Sprintf("arithmetic %q, not %q: the same bits were promised, which takes hosts that compute alike; --env OPENBLAS_CORETYPE=Haswell gives all that have AVX2 the same kernels of OpenBLAS",
			other.Fingerprint, d.Fingerprint)
	case !slices.Equal(d.Hooks, other.Hooks):
		return fmt.Sprintf("hooks %v, not %v: every worker must pass the same hooks, including those with ChiefOnly", other.Hooks, d.Hooks)
	case d.Model != other.Model:
		return "a graph of other operations or shapes"
	case d.StartMillis != other.StartMillis || d.SilenceMillis != other.SilenceMillis:
		return "other timeouts"
	}
	return ""
}

func (v Variable) difference(i int, o Variable) string {
	switch {
	case v.Name != o.Name:
		return fmt.Sprintf("variable %d is named %q, not %q", i, o.Name, v.Name)
	case !slices.Equal(v.Shape, o.Shape):
		return fmt.Sprintf("variable %q has shape %v, not %v", v.Name, o.Shape, v.Shape)
	case v.Dtype != o.Dtype:
		return fmt.Sprintf("variable %q is %s, not %s", v.Name, o.Dtype, v.Dtype)
	case (v.Sparse == nil) != (o.Sparse == nil):
		return fmt.Sprintf("variable %q is %s, not %s", v.Name, o.density(), v.density())
	case !reflect.DeepEqual(v.Sparse, o.Sparse):
		return fmt.Sprintf("variable %q has rows %+v, not %+v", v.Name, *o.Sparse, *v.Sparse)
	case v.RateFactor != o.RateFactor || v.NoDecay != o.NoDecay:
		return fmt.Sprintf("variable %q has %v times the rate (no decay: %t), not %v times (%t)", v.Name, o.Rate(1), o.NoDecay, v.Rate(1), v.NoDecay)
	case v.Update != o.Update || v.Momentum != o.Momentum:
		return fmt.Sprintf("variable %q is updated by %q with momentum %v, not %q with %v", v.Name, o.Update, o.Momentum, v.Update, v.Momentum)
	}
	return ""
}

func (v Variable) density() string {
	if v.Sparse != nil {
		return "sparse"
	}
	return "dense"
}

func origin(checkpoint string) string {
	if checkpoint == "" {
		return "from scratch"
	}
	return fmt.Sprintf("from checkpoint %q", checkpoint)
}
