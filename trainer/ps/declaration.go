package ps

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/plx-run/plx/trainer/optimizer"
)

// Declaration says what is trained and how. All workers of a job must declare
// the same; servers know nothing else of the program.
type Declaration struct {
	Workers   int                `json:"workers"`
	Variables []Variable         `json:"variables"`
	Pieces    []Piece            `json:"pieces"`
	Optimizer optimizer.Settings `json:"optimizer"`
	Sum       bool               `json:"sum"` // gradients are added, not averaged
	Batch     int                `json:"batch"`
	// StartMillis bounds the wait for all workers, SilenceMillis how long a
	// peer may say nothing.
	StartMillis   int64 `json:"start_ms"`
	SilenceMillis int64 `json:"silence_ms"`
}

// Variable is a trained tensor.
type Variable struct {
	Name  string `json:"name"`
	Dtype Dtype  `json:"dtype"`
	Shape []int  `json:"shape"`
}

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

// Piece is the part [Offset, Offset+Count) of a variable, in elements, and
// the server that owns it.
type Piece struct {
	Variable int `json:"variable"`
	Server   int `json:"server"`
	Offset   int `json:"offset"`
	Count    int `json:"count"`
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

// Place gives every variable to the server with the fewest bytes so far, the
// first of them where several have as few. Same variables, same placement.
// The variables must have passed Elements.
func Place(variables []Variable, servers int) []Piece {
	bytes := make([]int, max(servers, 1))
	pieces := make([]Piece, len(variables))
	for i, v := range variables {
		n, err := v.Elements()
		if err != nil {
			panic(err) // the caller checked
		}
		to := slices.Index(bytes, slices.Min(bytes))
		bytes[to] += n * v.Dtype.Size()
		pieces[i] = Piece{Variable: i, Server: to, Count: n}
	}
	return pieces
}

// Check says what in d makes no sense, without regard to other workers.
func (d Declaration) Check(servers int) error {
	if d.Workers < 1 || d.StartMillis < 1 || d.SilenceMillis < 1 {
		return errors.New("declaration: workers, start and silence must be positive")
	}
	if err := d.Optimizer.Check(); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, v := range d.Variables {
		if v.Name == "" || seen[v.Name] {
			return fmt.Errorf("variable %q: names must be distinct and not empty", v.Name)
		}
		seen[v.Name] = true
	}
	return d.checkPieces(servers)
}

// checkPieces wants every element of every variable to be owned exactly once.
func (d Declaration) checkPieces(servers int) error {
	sorted := slices.SortedFunc(slices.Values(d.Pieces), func(a, b Piece) int {
		return cmp.Or(cmp.Compare(a.Variable, b.Variable), cmp.Compare(a.Offset, b.Offset))
	})
	for i, v := range d.Variables {
		n, err := v.Elements()
		if err != nil {
			return err
		}
		end := 0
		for len(sorted) > 0 && sorted[0].Variable == i {
			p := sorted[0]
			if p.Offset != end || p.Count <= 0 || p.Count > n-end || p.Server < 0 || p.Server >= servers {
				return fmt.Errorf("variable %q: bad piece %+v with %d servers", v.Name, p, servers)
			}
			end += p.Count
			sorted = sorted[1:]
		}
		if end != n {
			return fmt.Errorf("variable %q: %d of %d elements have an owner", v.Name, end, n)
		}
	}
	if len(sorted) > 0 {
		return fmt.Errorf("piece of an undeclared variable: %+v", sorted[0])
	}
	return nil
}

// Difference says in words where other departs from d; "" means nowhere.
func (d Declaration) Difference(other Declaration) string {
	if a, b := len(d.Variables), len(other.Variables); a != b {
		return fmt.Sprintf("%d variables, not %d", b, a)
	}
	for i, v := range d.Variables {
		o := other.Variables[i]
		switch {
		case v.Name != o.Name:
			return fmt.Sprintf("variable %d is named %q, not %q", i, o.Name, v.Name)
		case !slices.Equal(v.Shape, o.Shape):
			return fmt.Sprintf("variable %q has shape %v, not %v", v.Name, o.Shape, v.Shape)
		case v.Dtype != o.Dtype:
			return fmt.Sprintf("variable %q is %s, not %s", v.Name, o.Dtype, v.Dtype)
		}
	}
	switch {
	case d.Workers != other.Workers:
		return fmt.Sprintf("%d workers, not %d", other.Workers, d.Workers)
	case !slices.Equal(d.Pieces, other.Pieces):
		return "another placement of the variables on the servers"
	case d.Optimizer != other.Optimizer:
		return fmt.Sprintf("optimiser %+v, not %+v", other.Optimizer, d.Optimizer)
	case d.Sum != other.Sum:
		return fmt.Sprintf("loss kind %s, not %s", lossKind(other.Sum), lossKind(d.Sum))
	case d.Batch != other.Batch:
		return fmt.Sprintf("global batch %d, not %d", other.Batch, d.Batch)
	case d.StartMillis != other.StartMillis || d.SilenceMillis != other.SilenceMillis:
		return "other timeouts"
	}
	return ""
}

func lossKind(sum bool) string {
	if sum {
		return "sum"
	}
	return "mean"
}
