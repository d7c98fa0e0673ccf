package sparse

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/random"
	"github.com/plx-run/plx/trainer/wire"
)

// Table is a shard of a sparse variable: the rows [lo, hi) and their optimiser
// state.
//
// A row's initial values are drawn from the seed whenever the row is read, and
// are stored only when it is updated. Address space is reserved for all rows,
// but the operating system provides memory only for updated ones.
//
// Read and Copy change nothing and may run at the same time. Apply, Fill,
// Import and Put must not run at the same time as any other method.
type Table[T wire.Float] struct {
	lo, hi  int64
	width   int
	initial Initial
	stream  random.Stream
	values  []T
	stored  []uint64 // one bit per row: the row was updated or restored, so field values contains its values
	state   *optimizer.State[T]
}

// maxBytes is the maximum number of bytes of a table's values, which prevents
// integer overflows. The caller must check that the host has the memory.
const maxBytes = 1 << 40

// NewTable returns the rows [lo, hi) of a variable in their state before the
// first step. width is the number of elements per row.
func NewTable[T wire.Float](name string, initial Initial, settings optimizer.Settings, lo, hi int64, width int) (*Table[T], error) {
	t := &Table[T]{lo: lo, hi: hi, width: width, initial: initial, stream: random.New(initial.Seed, name)}
	var one T
	if lo < 0 || hi < lo || width < 1 || hi-lo > maxBytes/int64(unsafe.Sizeof(one))/int64(width) {
		return nil, fmt.Errorf("table %q: rows [%d, %d) of width %d: want a range of at most %d bytes", name, lo, hi, width, int64(maxBytes))
	}
	if err := initial.Check(); err != nil {
		return nil, fmt.Errorf("table %q: %w", name, err)
	}
	n := int(hi-lo) * width
	var err error
	if t.state, err = optimizer.New[T](settings, n); err != nil {
		return nil, fmt.Errorf("table %q: %w", name, err)
	}
	t.values = make([]T, n)
	t.stored = make([]uint64, (hi-lo+63)/64)
	return t, nil
}

// Read fills a slice (into) with the rows whose numbers index lists, in this
// order. The slice must have len(index)*width elements.
func (t *Table[T]) Read(index []int64, into []T) error {
	if len(into) != len(index)*t.width {
		return fmt.Errorf("read %d rows of width %d into %d elements", len(index), t.width, len(into))
	}
	for _, row := range index {
		if row < t.lo || row >= t.hi {
			return outside(row, t.lo, t.hi)
		}
	}
	for i, row := range index {
		t.read(row, into[i*t.width:(i+1)*t.width])
	}
	return nil
}

func (t *Table[T]) read(row int64, into []T) {
	if t.has(row) {
		copy(into, t.row(t.values, row))
		return
	}
	t.draw(row, into)
}

// Apply updates the rows that have a gradient, and no others. After an error
// the table is unchanged.
func (t *Table[T]) Apply(step optimizer.Step, gradients Rows[T]) error {
	if err := gradients.Check(t.lo, t.hi, t.width); err != nil {
		return err
	}
	for _, row := range gradients.Index {
		if !t.has(row) {
			t.draw(row, t.row(t.values, row))
			t.store(row)
		}
	}
	t.state.ApplyRows(step, t.values, t.lo, gradients.Index, gradients.Values)
	return nil
}

// Fill sets the initial values of all rows, from the first to the last. These
// rows then count as updated: they are part of checkpoints, and are sent along
// when the table moves to another task.
func (t *Table[T]) Fill(values []T) error {
	if len(values) != len(t.values) {
		return fmt.Errorf("%d first values for %d elements", len(values), len(t.values))
	}
	copy(t.values, values)
	for row := t.lo; row < t.hi; row++ {
		t.store(row)
	}
	return nil
}

// Copy fills a slice (into) with consecutive rows. first is the number of the
// first row.
func (t *Table[T]) Copy(first int64, into []T) error {
	n := int64(len(into) / t.width)
	switch {
	case len(into)%t.width != 0:
		return fmt.Errorf("%d elements are no whole rows of width %d", len(into), t.width)
	case first < t.lo || first > t.hi || n > t.hi-first:
		return fmt.Errorf("%d rows from row %d are not all in [%d, %d)", n, first, t.lo, t.hi)
	}
	for row := first; row < first+n; row++ {
		t.read(row, into[:t.width])
		into = into[t.width:]
	}
	return nil
}

// row returns the elements that belong to a row. The parameter of is the slice
// with the values of all rows, or a slice of the optimiser state.
func (t *Table[T]) row(of []T, row int64) []T {
	at := int(row-t.lo) * t.width
	return of[at : at+t.width]
}

func (t *Table[T]) draw(row int64, into []T) {
	drawValues(&t.initial, &t.stream, uint64(row)*uint64(t.width), into)
}

func (t *Table[T]) has(row int64) bool {
	i := row - t.lo
	return t.stored[i/64]>>(i%64)&1 == 1
}

func (t *Table[T]) store(row int64) {
	i := row - t.lo
	t.stored[i/64] |= 1 << (i % 64)
}

// Kind is a way to set the initial values of a table.
type Kind string

// The ways to set initial values. An empty Kind means Zeros.
const (
	Zeros   Kind = "zeros"
	Uniform Kind = "uniform" // uniformly distributed in [A, B)
	Normal  Kind = "normal"  // normally distributed with mean A and standard deviation B (Box and Muller 1958)
	Given   Kind = "given"   // set by Table.Fill
)

// Initial describes the initial values of a table. Workers send it to the
// tasks that hold the table's rows.
type Initial struct {
	Kind Kind    `json:"kind"`
	A    float64 `json:"a,omitempty"` // minimum of Uniform, or mean of Normal
	B    float64 `json:"b,omitempty"` // upper bound of Uniform, or standard deviation of Normal
	Seed uint64  `json:"seed,omitempty"`
}

// Check returns an error if a number is invalid for the Kind.
func (s Initial) Check() error {
	switch {
	case s.zero(), s.Kind == Given:
		return nil
	case s.Kind != Uniform && s.Kind != Normal:
		return fmt.Errorf("first values %q: want zeros, uniform, normal or given", s.Kind)
	case math.IsNaN(s.A-s.B) || math.IsInf(s.A-s.B, 0):
		return fmt.Errorf("first values %s: %v and %v, want numbers", s.Kind, s.A, s.B)
	case s.Kind == Uniform && s.A > s.B:
		return fmt.Errorf("first values uniform: from %v to %v, want the lower bound first", s.A, s.B)
	case s.Kind == Normal && s.B < 0:
		return fmt.Errorf("first values normal: standard deviation %v, want at least 0", s.B)
	}
	return nil
}

func (s Initial) zero() bool { return s.Kind == "" || s.Kind == Zeros }

// Given reports whether the chief sends the initial values, which are set by
// Table.Fill.
func (s Initial) Given() bool { return s.Kind == Given }

// drawValues fills x with the initial values of consecutive elements of a
// variable. The parameter at is the index of the first element. Elements 2i
// and 2i+1 come from the i-th pair of random numbers, as in dense variables.
func drawValues[T wire.Float](s *Initial, stream *random.Stream, at uint64, x []T) {
	if s.zero() || s.Given() {
		clear(x) // rows with given values are never drawn: Fill stores them before any read
		return
	}
	var pair [2]float64
	for i := range x {
		n := at + uint64(i)
		if i == 0 || n%2 == 0 {
			pair[0], pair[1] = s.pair(stream, n/2)
		}
		x[i] = T(pair[n%2])
	}
}

// pair returns the stream's i-th pair of random numbers, transformed to the
// distribution of s.
func (s *Initial) pair(stream *random.Stream, i uint64) (a, b float64) {
	u, v := stream.Pair(i)
	if s.Kind == Uniform {
		return s.A + float64(u*(s.B-s.A)), s.A + float64(v*(s.B-s.A))
	}
	radius := s.B * math.Sqrt(-2*math.Log(1-u)) // u is less than 1, so 1-u is never 0
	sin, cos := math.Sincos(2 * math.Pi * v)
	return s.A + float64(radius*cos), s.A + float64(radius*sin)
}
