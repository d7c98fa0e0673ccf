package owner

import (
	"fmt"
	"sync"

	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/sparse"
	"github.com/plx-run/plx/trainer/wire"
)

// rows is a slot of rows of a sparse variable.
type rows[T wire.Float] struct {
	Piece
	average bool
	width   int
	sums    []rowsSum[T]

	mu      sync.RWMutex
	table   *sparse.Table[T]
	updates uint64
	counted bool    // updates is what the owner before said
	uneven  bool    // which may differ by piece: a checkpoint of another mode than sync had it so
	last    []int64 // rows that the last step changed

	wishing sync.Mutex
	wishes  sparse.Wishes
}

// rowsSum is a group's sum.
type rowsSum[T wire.Float] struct {
	*progress[sparse.Rows[T]]
	buffers []rowsBuffer[T] // by input
	total   operand[sparse.Rows[T]]
	counts  bool // leaves took part, with rows here or not
	squares []float64
}

type rowsBuffer[T wire.Float] struct {
	raw   []byte
	read  sparse.Rows[T] // memory for what raw holds
	input sparse.Rows[T]
}

func newRows[T wire.Float](d *Declaration, r *roster, p Piece) (*rows[T], error) {
	v := d.Variables[p.Variable]
	s := &rows[T]{Piece: p, average: v.Sparse.Average, width: v.width(), uneven: d.Checkpoint != ""}
	for _, plan := range r.plans {
		s.sums = append(s.sums, rowsSum[T]{
			progress: newProgress(plan, mergeRows[T]),
			buffers:  make([]rowsBuffer[T], len(plan.inputs)),
		})
	}
	lo, hi := s.bounds()
	var err error
	s.table, err = sparse.NewTable[T](v.Name, v.Sparse.First, v.settings(d.Optimizer), lo, hi, s.width)
	return s, err
}

func mergeRows[T wire.Float](a, b sparse.Rows[T]) sparse.Rows[T] {
	return sparse.Merge(sparse.Rows[T]{}, a, b)
}

func (s *rows[T]) piece() Piece { return s.Piece }

// bounds returns the piece's rows [lo, hi).
func (s *rows[T]) bounds() (lo, hi int64) { return int64(s.Offset), int64(s.Offset + s.Count) }

// maxRows bounds the encoding of so many rows.
func maxRows(rows, rowBytes int) uint64 { return 10 + uint64(rows)*uint64(10+rowBytes) }

func (s *rows[T]) receive(group, input int, length uint64, read func([]byte) error) (bool, error) {
	b := &s.sums[group].buffers[input]
	var err error
	b.input, err = b.receive(s.Piece, s.width, length, read)
	return len(b.input.Index) > 0, err
}

// receive reads rows of a piece; no payload means none.
func (b *rowsBuffer[T]) receive(p Piece, width int, length uint64, read func([]byte) error) (rows sparse.Rows[T], err error) {
	var one [1]T
	rows.Width = width
	if most := maxRows(p.Count, width*len(wire.Bytes(one[:]))); length > most {
		return rows, fmt.Errorf("rows of variable %d of %d bytes, want at most %d", p.Variable, length, most)
	}
	b.raw = sized(b.raw, int(length))
	if err := read(b.raw); err != nil || length == 0 {
		return rows, err
	}
	if b.read, err = sparse.Decode(b.raw, int64(p.Offset), int64(p.Offset+p.Count), width, b.read); err != nil {
		return rows, fmt.Errorf("rows of variable %d: %w", p.Variable, err)
	}
	return b.read, nil
}

func (s *rows[T]) lend(group, input int, memory any) {
	s.sums[group].buffers[input].input = memory.(sparse.Rows[T])
}

func (s *rows[T]) arrive(group, input int, present bool) bool {
	sum := &s.sums[group]
	x := operand[sparse.Rows[T]]{present: present}
	if present {
		x.sum = sum.buffers[input].input
	}
	_, total, done := sum.progress.arrive(input, x)
	if done {
		sum.total = total
	}
	return done
}

func (s *rows[T]) settle(group, leaves int) {
	s.sums[group].counts = leaves > 0
	if total := s.sums[group].total; total.present && s.average {
		divide(total.sum.Values, leaves)
	}
}

func (s *rows[T]) measure(group int) {
	sum := &s.sums[group]
	sum.squares = sum.squares[:0]
	if sum.total.present {
		sum.squares = sum.total.sum.SumOfSquares(sum.squares)
	}
}

func (s *rows[T]) squares(group int) []float64 { return s.sums[group].squares }

// apply counts a step also where no row of the piece was touched: the count,
// which Adam's correction needs, must not depend on how a table is cut.
func (s *rows[T]) apply(group int, rate, scale float64) (err error) {
	sum := &s.sums[group]
	total := sum.total
	sum.total = operand[sparse.Rows[T]]{}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = append(s.last[:0], total.sum.Index...)
	if total.present {
		err = s.table.Apply(optimizer.Step{Number: s.updates, Rate: rate, Scale: scale}, total.sum)
	}
	if sum.counts {
		s.updates++
	}
	return err
}

func (*rows[T]) keep(int)         {}
func (*rows[T]) value(int) []byte { return nil }

// read copies rows by index to into, as bytes.
func (s *rows[T]) read(index []int64, into []byte) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.table.Read(index, wire.Floats[T](into))
}

// copyRows copies whole rows from first on.
func (s *rows[T]) copyRows(first int64, into []byte) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.table.Copy(first, wire.Floats[T](into))
}

// rowBytes is the size of a row.
func (s *rows[T]) rowBytes() int {
	var one [1]T
	return s.width * len(wire.Bytes(one[:]))
}
