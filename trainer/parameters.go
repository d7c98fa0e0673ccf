package trainer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/mesh"
	"github.com/plx-run/plx/trainer/owner"
	"github.com/plx-run/plx/trainer/wire"
)

// CheckParameters compares every variable that workers hold on every worker,
// bit by bit, and names the first that differs and where. All workers must
// call it, after the same step of synchronous training. Rows of embeddings
// have one owner each and nothing to compare.
func (j *Job) CheckParameters(ctx context.Context) error {
	r := j.replica.Load()
	if r == nil {
		return errors.New("check parameters: the job has no replica: call Parallelize first")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if mode := r.declared.Sync; mode.Mode != "" && mode.Mode != owner.Synchronous {
		return fmt.Errorf("check parameters: with --sync %s workers do not have the same variables at the same time", mode)
	}
	return r.checkParameters(ctx)
}

func (r *Replica) checkParameters(ctx context.Context) error {
	sums := make([]byte, 0, len(r.memory)*sha256.Size)
	for _, memory := range r.memory {
		sum := sha256.Sum256(memory)
		sums = append(sums, sum[:]...)
	}
	all, err := mesh.AllGatherBytes(ctx, r.job.mesh, sums, len(sums))
	if err != nil {
		return fmt.Errorf("check parameters: %w", err)
	}
	for i := range r.memory {
		at := i * sha256.Size
		for rank, other := range all {
			if len(other) != len(sums) || !bytes.Equal(other[at:at+sha256.Size], all[0][at:at+sha256.Size]) {
				return fmt.Errorf("check parameters: after step %d variable %q of %s differs from that of %s",
					r.step, r.declared.Variables[i].Name, cluster.Task{Role: cluster.Worker, Index: rank}, cluster.Chief)
			}
		}
	}
	return nil
}

// digest hashes all variables in the order of their names, as little-endian
// float32.
func (r *Replica) digest(ctx context.Context) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	order := make([]int, len(r.declared.Variables))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return strings.Compare(r.declared.Variables[a].Name, r.declared.Variables[b].Name)
	})
	hash := sha256.New()
	for _, i := range order {
		memory, err := r.value(ctx, i)
		if err != nil {
			return "", fmt.Errorf("digest: variable %q: %w", r.declared.Variables[i].Name, err)
		}
		if r.declared.Variables[i].Dtype == owner.Float64 {
			memory = narrowed(wire.Floats[float64](memory))
		}
		hash.Write(memory) // a hash never fails to write
	}
	return fmt.Sprintf("digest step=%d sha256=%x", r.step, hash.Sum(nil)), nil
}

func narrowed(x []float64) []byte {
	b := make([]byte, 0, 4*len(x))
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)))
	}
	return b
}
