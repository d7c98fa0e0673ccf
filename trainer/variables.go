package trainer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/collective"
	"github.com/plx-run/plx/trainer/exchange/client"
	floats "github.com/plx-run/plx/trainer/executor/memory"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/resident"
	"github.com/plx-run/plx/trainer/summary"
	"github.com/plx-run/plx/trainer/telemetry"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// variables gives access to the values of all variables: those in this
// worker's memory, and those that shard holders (tasks that store parts of
// variables) keep.
type variables struct {
	declared []layout.Variable
	memory   [][]byte            // bytes of each variable of which every worker has a full copy; declared lists these first
	resident *resident.Variables // copies newer values from the GPU to the slices in memory, if the GPU updates variables
	rows     *client.Rows        // fetches rows of the other variables, which are tables, from the tasks that store them
}

// value returns the bytes of the i-th variable. If the variable is a table,
// value fetches all rows from the tasks that store them.
func (v variables) value(ctx context.Context, i int) ([]byte, error) {
	if i < len(v.memory) {
		return v.memory[i], v.resident.Fetch()
	}
	memory := make([]byte, v.declared[i].Bytes())
	if err := v.rows.Whole(ctx, i, memory); err != nil {
		return nil, fmt.Errorf("variable %q: %w", v.declared[i].Name, err)
	}
	return memory, nil
}

// histograms returns a histogram for each variable of which every worker has a
// full copy, which excludes tables.
func (v variables) histograms() ([]summary.Histogram, error) {
	if err := v.resident.Fetch(); err != nil {
		return nil, err
	}
	return telemetry.Histograms(v.declared[:len(v.memory)], v.memory), nil
}

// all returns a copy of every variable, by its name.
func (v variables) all(ctx context.Context) (map[string]*tensor.Dense, error) {
	values := make(map[string]*tensor.Dense, len(v.declared))
	for i, of := range v.declared {
		memory, err := v.value(ctx, i)
		if err != nil {
			return nil, err
		}
		values[of.Name] = tensorOf(of, memory)
	}
	return values, nil
}

// digest returns the line that --digest prints: the step and a SHA-256 of all
// variables. They are hashed in the order of their names, as little-endian
// float32.
func (v variables) digest(ctx context.Context, step int) (string, error) {
	order := make([]int, len(v.declared))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(v.declared[a].Name, v.declared[b].Name) })
	hash := sha256.New()
	for _, i := range order {
		memory, err := v.value(ctx, i)
		if err != nil {
			return "", fmt.Errorf("digest: %w", err)
		}
		if v.declared[i].Dtype == layout.Float64 {
			memory = floats.Narrowed(memory)
		}
		hash.Write(memory) // Write of a hash never returns an error
	}
	return fmt.Sprintf("digest step=%d sha256=%x", step, hash.Sum(nil)), nil
}

// compare checks that every worker has the same bits in the variables of which
// each worker has a full copy. The workers exchange hashes of the variables.
// The error names a variable that differs.
func (v variables) compare(ctx context.Context, group *collective.Group, step int) error {
	if err := v.resident.Fetch(); err != nil {
		return fmt.Errorf("check parameters: %w", err)
	}
	sums := make([]byte, 0, len(v.memory)*sha256.Size)
	for _, memory := range v.memory {
		sum := sha256.Sum256(memory)
		sums = append(sums, sum[:]...)
	}
	all, err := group.AllGatherBytes(ctx, sums, len(sums))
	if err != nil {
		return fmt.Errorf("check parameters: %w", err)
	}
	for i := range v.memory {
		at := i * sha256.Size
		for rank, other := range all {
			if len(other) != len(sums) || !bytes.Equal(other[at:at+sha256.Size], all[0][at:at+sha256.Size]) {
				return fmt.Errorf("check parameters: after step %d variable %q of %s differs from that of %s",
					step, v.declared[i].Name, cluster.Task{Role: cluster.Worker, Index: rank}, cluster.Chief)
			}
		}
	}
	return nil
}

// tensorOf returns a copy of a variable as a tensor. A scalar becomes a tensor
// without dimensions.
func tensorOf(v layout.Variable, memory []byte) *tensor.Dense {
	if v.Dtype == layout.Float32 {
		return floats.Copied[float32](v.Shape, memory)
	}
	return floats.Copied[float64](v.Shape, memory)
}

// declared returns descriptions of all variables of a model: first the trained
// ones, then running averages, then tables. combine is the value of
// --combine-rows.
func (m Model) declared(combine string) (all []layout.Variable, err error) {
	for i, n := range m.kept() {
		v, err := declared(n)
		if err != nil {
			return nil, err
		}
		if i >= len(m.Variables) {
			v.Update, v.Momentum = optimizer.Average, m.States[i-len(m.Variables)].Momentum
		}
		all = append(all, v)
	}
	for _, e := range m.Embeddings {
		v, err := e.declared(m.LossKind, combine)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

// declared returns a description of the variable n: its name, type and shape.
func declared(n *gorgonia.Node) (layout.Variable, error) {
	v := layout.Variable{Name: n.Name(), Dtype: layout.Dtype(n.Dtype().String()), Shape: []int{}}
	if !n.IsScalar() {
		v.Shape = append(v.Shape, n.Shape()...)
	}
	_, err := v.Elements()
	return v, err
}
