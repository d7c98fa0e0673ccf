package nn

import (
	"fmt"
	"math"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Rows looks up rows of a table (rows, width) by index: a vector (n) of int,
// int32, int64, float32 or float64. The result has shape (n, width). An index
// that is not a row is an error of the run.
//
// The gradient has the size of the table, and is zero at rows without an index.
// Use trainer.Embedding for a table of which only the touched rows travel.
func Rows(table, index *gorgonia.Node) (*gorgonia.Node, error) {
	dtype, err := floats("rows", table)
	if err != nil {
		return nil, err
	}
	if index == nil {
		return nil, fmt.Errorf("rows: index: %w", errNil)
	}
	s, read := table.Shape(), classOf(index.Dtype())
	if len(s) != 2 || len(index.Shape()) != 1 || read == nil {
		return nil, fmt.Errorf("rows: the table is %s, the index %s %v: want (rows, width) and (n) whole numbers",
			told(table), told(index), index.Dtype())
	}
	g := gather{rows: s[0], width: s[1], n: index.Shape()[0], index: read}
	o := &op{
		what:  "rows",
		out:   operand{dtype: dtype, shape: tensor.Shape{g.n, g.width}},
		run:   choose(dtype, gatherRows[float32], gatherRows[float64], g),
		fixed: 1,
	}
	o.diff = func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		d := &op{
			what: "gradient of rows",
			out:  operand{dtype: dtype, shape: s},
			run:  choose(dtype, scatterRows[float32], scatterRows[float64], g),
		}
		dx, err := d.apply(in[1], dy)
		return gorgonia.Nodes{dx, nil}, err
	}
	return o.apply(table, index)
}

// gather is the lookup of n rows of a table.
type gather struct {
	rows, width, n int
	index          func(v gorgonia.Value, i int) float64
}

// at returns the row of the i-th index.
func (g gather) at(index gorgonia.Value, i int) (int, error) {
	row := g.index(index, i)
	if !(row >= 0 && row < float64(g.rows)) || row != math.Trunc(row) {
		return 0, fmt.Errorf("index %d is %v, want a row from 0 to %d", i, row, g.rows-1)
	}
	return int(row), nil
}

func gatherRows[T float](g gather) kernel {
	return func(out gorgonia.Value, in []gorgonia.Value) error {
		for i := range g.n {
			at, err := g.at(in[1], i)
			if err != nil {
				return err
			}
			copy(row[T](out, i, g.width), row[T](in[0], at, g.width))
		}
		return nil
	}
}

func scatterRows[T float](g gather) kernel {
	return func(out gorgonia.Value, in []gorgonia.Value) error {
		clear(data[T](out))
		for i := range g.n {
			at, err := g.at(in[0], i)
			if err != nil {
				return err
			}
			to := row[T](out, at, g.width)
			for k, v := range row[T](in[1], i, g.width) {
				to[k] += v
			}
		}
		return nil
	}
}
