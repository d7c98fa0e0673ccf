package owner

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
	// and only touched ones are updated. Nobody but their owners holds them.
	Sparse *Sparse `json:"sparse,omitempty"`
	// Update is the rule where it is not the optimiser's. optimizer.Average
	// with Momentum m keeps running statistics, x = m*x + (1-m)*g: they are
	// averaged over the leaves whatever the loss, and take no part in norm,
	// clipping and decay.
	Update   optimizer.Rule `json:"update,omitempty"`
	Momentum float64        `json:"momentum,omitempty"`
}

// Sparse says how the rows of a variable begin and how their gradients from
// several leaves are put together.
type Sparse struct {
	First   RowInit `json:"first"`
	Average bool    `json:"average,omitempty"` // divided by the leaves that took part, else added
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

// maxElements bounds a variable, so that sizes in bytes never overflow.
const maxElements = math.MaxInt64 / 16

// Elements returns how many elements v has, or an error when its shape or
// type makes no sense.
func (v Variable) Elements() (int, error) {
	if v.Dtype.Size() == 0 {
		return 0, fmt.Errorf("variable %q: type %q: want float32 or float64", v.Name, v.Dtype)
	}
	n := 1
	for _, d := range v.Shape {
		if d <= 0 || n > maxElements/d {
			return 0, fmt.Errorf("variable %q: shape %v: want positive lengths, at most %d elements", v.Name, v.Shape, maxElements)
		}
		n *= d
	}
	return n, nil
}

// elements is Elements of a variable that was checked.
func (v Variable) elements() int {
	n, err := v.Elements()
	if err != nil {
		panic(err)
	}
	return n
}

// units is what pieces count: elements, or rows of a sparse variable.
func (v Variable) units() int {
	if v.Sparse != nil {
		return v.Shape[0]
	}
	return v.elements()
}

// unitSize is the bytes of such a unit.
func (v Variable) unitSize() int { return v.elements() / v.units() * v.Dtype.Size() }

// width is the elements of a row.
func (v Variable) width() int { return v.elements() / v.units() }

// settings returns the rule that updates v.
func (v Variable) settings(of optimizer.Settings) optimizer.Settings {
	if v.Update == optimizer.Average {
		return optimizer.Settings{Rule: optimizer.Average, Momentum: v.Momentum}
	}
	return of
}

// follows reports whether v is a statistic and has no gradient.
func (v Variable) follows() bool { return v.Update == optimizer.Average }

// check says what in v makes no sense.
func (v Variable) check() error {
	if _, err := v.Elements(); err != nil {
		return err
	}
	if v.Update != "" && v.Update != optimizer.Average {
		return fmt.Errorf("variable %q: update %q: want none or %q", v.Name, v.Update, optimizer.Average)
	}
	if err := v.settings(optimizer.Settings{Rule: optimizer.SGD}).Check(); err != nil {
		return fmt.Errorf("variable %q: %w", v.Name, err)
	}
	if v.Sparse == nil {
		return nil
	}
	if len(v.Shape) == 0 || v.follows() {
		return fmt.Errorf("variable %q: a sparse variable has rows, of shape %v, and no statistics", v.Name, v.Shape)
	}
	if err := v.Sparse.First.Check(); err != nil {
		return fmt.Errorf("variable %q: %w", v.Name, err)
	}
	return nil
}
