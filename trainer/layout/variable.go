package layout

import (
	"fmt"
	"math"

	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/sparse"
)

// Variable is a trained tensor.
type Variable struct {
	Name  string `json:"name"`
	Dtype Dtype  `json:"dtype"`
	Shape []int  `json:"shape"`
	// Sparse is set where rows, the first dimension, are looked up by index
	// and only touched ones are updated. Nobody but their holders holds them.
	Sparse *Sparse `json:"sparse,omitempty"`
	// Update is the rule where it is not the optimiser's. optimizer.Average
	// with Momentum m keeps running statistics, x = m*x + (1-m)*g: they are
	// averaged over the virtual workers whatever the loss, and take no part in norm,
	// clipping and decay.
	Update   optimizer.Rule `json:"update,omitempty"`
	Momentum float64        `json:"momentum,omitempty"`
	// Workers are the ranks that contribute to the variable, such as those of
	// a stage of a pipeline. nil: all of them.
	Workers *Range `json:"workers,omitempty"`
}

// HasGradientOf reports whether a worker contributes to v.
func (v Variable) HasGradientOf(rank int) bool {
	return v.Workers == nil || v.Workers.Lo <= rank && rank < v.Workers.Hi
}

// Sparse says how the rows of a variable begin and how their gradients from
// several virtual workers are put together.
type Sparse struct {
	First   RowInit `json:"first"`
	Average bool    `json:"average,omitempty"` // divided by the virtual workers that took part, else added
}

// RowInit is how rows begin. The values follow from the seed, the variable's
// name and the row, not from who owns it.
type RowInit = sparse.Initial

// Dtype is the type of a variable's elements.
type Dtype string

// The types that can be trained.
const (
	Float32 Dtype = "float32"
	Float64 Dtype = "float64"
)

// Size returns the bytes of one element, 0 for an unknown type.
func (d Dtype) Size() int {
	switch d {
	case Float32:
		return 4
	case Float64:
		return 8
	}
	return 0
}

// MaxElements bounds a variable, so that sizes in bytes never overflow.
const MaxElements = math.MaxInt64 / 16

// Elements returns how many elements v has, or an error when its shape or
// type makes no sense.
func (v Variable) Elements() (int, error) {
	if v.Dtype.Size() == 0 {
		return 0, fmt.Errorf("variable %q: type %q: want float32 or float64", v.Name, v.Dtype)
	}
	n := 1
	for _, d := range v.Shape {
		if d <= 0 || n > MaxElements/d {
			return 0, fmt.Errorf("variable %q: shape %v: want positive lengths, at most %d elements", v.Name, v.Shape, MaxElements)
		}
		n *= d
	}
	return n, nil
}

// NumElements is Elements of a variable that was checked.
func (v Variable) NumElements() int {
	n, err := v.Elements()
	if err != nil {
		panic(err)
	}
	return n
}

// Units is what pieces count: elements, or rows of a sparse variable.
func (v Variable) Units() int {
	if v.Sparse != nil {
		return v.Shape[0]
	}
	return v.NumElements()
}

// UnitBytes is the bytes of such a unit.
func (v Variable) UnitBytes() int { return v.NumElements() / v.Units() * v.Dtype.Size() }

// Bytes is the size of a variable that was checked.
func (v Variable) Bytes() int { return v.NumElements() * v.Dtype.Size() }

// Width is the elements of a row.
func (v Variable) Width() int { return v.NumElements() / v.Units() }

// statistic is the rule that updates a variable without a gradient.
func (v Variable) statistic() optimizer.Settings {
	return optimizer.Settings{Rule: optimizer.Average, Momentum: v.Momentum}
}

// IsStatistic reports whether v is a statistic and has no gradient.
func (v Variable) IsStatistic() bool { return v.Update == optimizer.Average }

// check says what in v makes no sense.
func (v Variable) check() error {
	if _, err := v.Elements(); err != nil {
		return err
	}
	if v.Update != "" && v.Update != optimizer.Average {
		return fmt.Errorf("variable %q: update %q: want none or %q", v.Name, v.Update, optimizer.Average)
	}
	if v.IsStatistic() {
		if err := v.statistic().Check(); err != nil {
			return fmt.Errorf("variable %q: %w", v.Name, err)
		}
	}
	if v.Sparse == nil {
		return nil
	}
	if len(v.Shape) == 0 || v.IsStatistic() {
		return fmt.Errorf("variable %q: a sparse variable has rows, of shape %v, and no statistics", v.Name, v.Shape)
	}
	if err := v.Sparse.First.Check(); err != nil {
		return fmt.Errorf("variable %q: %w", v.Name, err)
	}
	return nil
}
