package kernels

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/plx-run/plx/trainer/optimizer"
)

// Update is the kernel for optimizer.State.Apply on n elements; its result has
// the same bits. The operands are the variable, its gradient, the constants, a
// uint32 named go, and the slots (state arrays) of the optimiser rule.
// [PutUpdateConstants] writes the constants, which change with each step. If
// go is 0, the kernel updates nothing.
func Update(t Type, s optimizer.Settings, n int) (Operation, error) {
	if err := s.Check(); err != nil {
		return Operation{}, err
	}
	operands, scalars := []string{"variable", "gradient", "constants", "go"}, []any{n}
	for i := range s.Slots() {
		operands = append(operands, fmt.Sprintf("slot %d", i))
	}
	if s.Rule == optimizer.Momentum {
		scalars = append(scalars, flag(s.Nesterov))
	}
	return over("update", string(s.Rule)+"_"+t.suffix(), operands, n, scalars...), check("update", n)
}

// Finite is a kernel that computes Update's operand go: 1 if the number x is
// finite, 0 if x is infinite or NaN.
func Finite(t Type) Operation {
	o := Operation{Operands: []string{"go", "x"}}
	return o.then(launch("update", "finite_"+t.suffix(), [3]uint32{1, 1, 1}, blockThreads, all(2)))
}

// Clip computes the norm of all gradients from n sums of squares (float64),
// which it adds in their order. It scales the constants of all updates so that
// the norm is at most limit. The parameter updates is the number of updates,
// each of which has ConstantsBytes of constants.
func Clip(n, updates int, limit float64) (Operation, error) {
	o := Operation{Operands: []string{"constants", "squares"}}
	return o.then(launch("update", "clip", [3]uint32{1, 1, 1}, blockThreads, all(2), limit, n, updates)), check("clip", n, updates)
}

// ConstantsBytes is the size in bytes of Update's operand for its constants:
// 14 numbers, unused bytes, and in the last 4 bytes the size of one number.
const ConstantsBytes = 128

// PutUpdateConstants writes the constants of Update for one step to the slice
// into.
func PutUpdateConstants(into []byte, t Type, s optimizer.Settings, step optimizer.Step) {
	corrected, spread := step.Rate, 1.0
	if s.Rule == optimizer.Adam {
		corrected = step.Rate / (1 - optimizer.Power(s.Beta1, step.Number+1))
		spread = 1 / math.Sqrt(1-optimizer.Power(s.Beta2, step.Number+1))
	}
	decay, shrink := s.Decay, 0.0
	if s.Decoupled {
		decay, shrink = 0, step.Rate*s.Decay
	}
	for i, x := range [...]float64{step.Rate, s.Momentum, 1 - s.Momentum, s.Accumulator, s.Epsilon, s.Beta1, s.Beta2, 1 - s.Beta1, 1 - s.Beta2,
		corrected, spread, step.Scale, decay, shrink} {
		if t == Float64 {
			binary.LittleEndian.PutUint64(into[8*i:], math.Float64bits(x))
		} else {
			binary.LittleEndian.PutUint32(into[4*i:], math.Float32bits(float32(x)))
		}
	}
	binary.LittleEndian.PutUint32(into[ConstantsBytes-4:], uint32(t.Size()))
}
