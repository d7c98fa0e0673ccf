package aggregate

import (
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/sparse"
	"github.com/plx-run/plx/trainer/wire"
)

// Sum is a sum of gradients of a variable or a piece: elements, or rows.
type Sum interface {
	// Cut returns the part of the sum that belongs to a piece. It shares memory.
	Cut(p layout.Piece) Sum
	// Encode returns the payload that carries the sum: rows are appended to
	// into, elements lie in memory as they travel.
	Encode(into []byte) []byte
	// Rows is how many rows there are; -1: elements.
	Rows() int
}

// total is a complete Sum.
type total interface {
	divide(by int)
	squares(into []float64) []float64
}

// elements is a sum of a dense variable or piece.
type elements[T wire.Float] []T

func (e elements[T]) Cut(p layout.Piece) Sum { return e[p.Offset : p.Offset+p.Count] }
func (e elements[T]) Encode([]byte) []byte   { return wire.Bytes(e) }
func (elements[T]) Rows() int                { return -1 }

func (e elements[T]) divide(by int) {
	divisor := T(by)
	switch {
	case by == 1:
	case by&(by-1) == 0: // the same bits, faster: the reciprocal of a power of two is exact
		factor := 1 / divisor
		for i := range e {
			e[i] *= factor
		}
	default:
		for i := range e {
			e[i] /= divisor
		}
	}
}

func (e elements[T]) squares(into []float64) []float64 {
	for len(e) > 0 {
		n := min(layout.BlockElements, len(e))
		into = append(into, optimizer.SumOfSquares(e[:n]))
		e = e[n:]
	}
	return into
}

func addElements[T wire.Float](into, from elements[T]) elements[T] {
	from = from[:len(into)]
	for i := range into {
		into[i] += from[i]
	}
	return into
}

// rows is a sum of rows of a sparse variable.
type rows[T wire.Float] sparse.Rows[T]

func (r rows[T]) Cut(p layout.Piece) Sum {
	return rows[T](sparse.Rows[T](r).Cut(int64(p.Offset), int64(p.Offset+p.Count)))
}

func (r rows[T]) Encode(into []byte) []byte {
	if len(r.Index) == 0 {
		return into // no payload means none
	}
	return sparse.Append(into, sparse.Rows[T](r))
}

func (r rows[T]) Rows() int     { return len(r.Index) }
func (r rows[T]) divide(by int) { elements[T](r.Values).divide(by) }

func (r rows[T]) squares(into []float64) []float64 { return sparse.Rows[T](r).SumOfSquares(into) }

func mergeRows[T wire.Float](a, b rows[T]) rows[T] {
	return rows[T](sparse.Merge(sparse.Rows[T]{}, sparse.Rows[T](a), sparse.Rows[T](b)))
}

// MaxRows bounds the encoding of so many rows of so many bytes.
func MaxRows(rows, rowBytes int) uint64 { return 10 + uint64(rows)*uint64(10+rowBytes) }

// accumulator adds the inputs of a plan of one piece, one run after the other.
// Different inputs may come side by side.
type accumulator interface {
	// receive reads an input from a payload of length bytes, and reports
	// whether there is anything in it.
	receive(input int, length uint64, read func([]byte) error) (present bool, err error)
	// lend gives an input memory of the caller instead, for all runs until it
	// is given another.
	lend(input int, s Sum)
	// arrive says that an input is there, or absent. It reports an output,
	// done, to the one caller that completes it; s is nil if all is absent.
	arrive(input int, present bool) (output int, s Sum, done bool)
}

// newAccumulator adds what plan says for a piece of a variable.
func newAccumulator(v layout.Variable, p layout.Piece, plan *layout.Plan) accumulator {
	switch {
	case v.Sparse != nil && v.Dtype == layout.Float32:
		return newRowsAccumulator[float32](v, p, plan)
	case v.Sparse != nil:
		return newRowsAccumulator[float64](v, p, plan)
	case v.Dtype == layout.Float32:
		return newElementsAccumulator[float32](p, plan)
	}
	return newElementsAccumulator[float64](p, plan)
}

type elementsAccumulator[T wire.Float] struct {
	piece     layout.Piece
	reduction *layout.Reduction[elements[T]]
	buffers   []elements[T] // by input; nil until something is received
	inputs    []elements[T]
}

func newElementsAccumulator[T wire.Float](p layout.Piece, plan *layout.Plan) *elementsAccumulator[T] {
	n := len(plan.Inputs)
	return &elementsAccumulator[T]{p, layout.NewReduction(plan, addElements[T]), make([]elements[T], n), make([]elements[T], n)}
}

func (a *elementsAccumulator[T]) receive(input int, length uint64, read func([]byte) error) (bool, error) {
	var one [1]T
	if want := a.piece.Count * len(wire.Bytes(one[:])); length != uint64(want) {
		return false, fmt.Errorf("gradient of variable %d of %d bytes, want %d", a.piece.Variable, length, want)
	}
	if a.buffers[input] == nil {
		a.buffers[input] = make(elements[T], a.piece.Count)
	}
	a.inputs[input] = a.buffers[input]
	return true, read(wire.Bytes(a.buffers[input]))
}

func (a *elementsAccumulator[T]) lend(input int, s Sum) { a.inputs[input] = s.(elements[T]) }

func (a *elementsAccumulator[T]) arrive(input int, present bool) (int, Sum, bool) {
	output, x, done := a.reduction.Arrive(input, layout.Operand[elements[T]]{Present: present, Sum: a.inputs[input]})
	if !done || !x.Present {
		return output, nil, done
	}
	return output, x.Sum, true
}

type rowsAccumulator[T wire.Float] struct {
	piece     layout.Piece
	width     int
	reduction *layout.Reduction[rows[T]]
	buffers   []rowsBuffer[T] // by input
	inputs    []rows[T]
}

type rowsBuffer[T wire.Float] struct {
	raw  []byte
	read sparse.Rows[T] // memory for what raw holds
}

// room returns memory for a payload.
func (b *rowsBuffer[T]) room(n int) []byte {
	b.raw = slices.Grow(b.raw[:0], n)[:n]
	return b.raw
}

// decode reads the rows of a piece from the payload.
func (b *rowsBuffer[T]) decode(p layout.Piece, width int) (err error) {
	if b.read, err = sparse.Decode(b.raw, int64(p.Offset), int64(p.Offset+p.Count), width, b.read); err != nil {
		return fmt.Errorf("rows of variable %d: %w", p.Variable, err)
	}
	return nil
}

func newRowsAccumulator[T wire.Float](v layout.Variable, p layout.Piece, plan *layout.Plan) *rowsAccumulator[T] {
	n := len(plan.Inputs)
	return &rowsAccumulator[T]{p, v.Width(), layout.NewReduction(plan, mergeRows[T]), make([]rowsBuffer[T], n), make([]rows[T], n)}
}

func (a *rowsAccumulator[T]) receive(input int, length uint64, read func([]byte) error) (bool, error) {
	var one [1]T
	b := &a.buffers[input]
	a.inputs[input] = rows[T]{Width: a.width}
	if most := MaxRows(a.piece.Count, a.width*len(wire.Bytes(one[:]))); length > most {
		return false, fmt.Errorf("rows of variable %d of %d bytes, want at most %d", a.piece.Variable, length, most)
	}
	if err := read(b.room(int(length))); err != nil || length == 0 {
		return false, err
	}
	if err := b.decode(a.piece, a.width); err != nil {
		return false, err
	}
	a.inputs[input] = rows[T](b.read)
	return len(b.read.Index) > 0, nil
}

func (a *rowsAccumulator[T]) lend(input int, s Sum) { a.inputs[input] = s.(rows[T]) }

func (a *rowsAccumulator[T]) arrive(input int, present bool) (int, Sum, bool) {
	x := layout.Operand[rows[T]]{Present: present}
	if present {
		x.Sum = a.inputs[input]
	}
	output, sum, done := a.reduction.Arrive(input, x)
	if !done || !sum.Present {
		return output, nil, done
	}
	return output, sum.Sum, true
}
