package ps

import (
	"fmt"
	"math"
	"sync"

	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/wire"
)

// Store holds the pieces of one owner: their values, the optimiser's state,
// and a place for every contribution. It does no input or output.
type Store struct {
	pieces []piece
	where  map[place]int
	loss   *slot[float64]

	mu    sync.Mutex
	begun []bool // contributions that have begun the current step
	count int
	rate  float64
	total float64 // the batch's loss, once begin said that it is known
}

// place names a piece within a declaration.
type place struct{ variable, offset int }

// piece is a slot of either type.
type piece interface {
	place() place
	value() []byte
	gradient(contribution int) []byte
	// arrive says that gradient(contribution) is filled. It reports true to
	// the caller that thereby completed the update.
	arrive(contribution int, step uint64, rate float64) bool
}

// memory gives the bytes that a piece uses for its value and for the first
// contribution; nil: the store allocates.
type memory func(p Piece) (value, gradient []byte)

// NewStore returns the owner's side of d for the pieces of one server.
func NewStore(d Declaration, server int) (*Store, error) { return newStore(d, server, nil) }

func newStore(d Declaration, server int, m memory) (*Store, error) {
	tree := NewTree(d.Workers)
	s := &Store{where: map[place]int{}, begun: make([]bool, d.Workers)}
	for _, p := range d.Pieces {
		if p.Server != server {
			continue
		}
		var made piece
		var err error
		if d.Variables[p.Variable].Dtype == Float32 {
			made, err = newSlot[float32](p, tree, d, m)
		} else {
			made, err = newSlot[float64](p, tree, d, m)
		}
		if err != nil {
			return nil, err
		}
		s.where[made.place()] = len(s.pieces)
		s.pieces = append(s.pieces, made)
	}
	s.loss = bareSlot[float64](Piece{Count: 1}, tree, d.Sum)
	s.loss.allocate(nil)
	return s, nil
}

// begin notes that a contribution starts a step. All must bring the same
// rate. It reports whether the batch's loss is thereby known.
func (s *Store) begin(contribution int, step uint64, rate, loss float64) (known bool, err error) {
	s.mu.Lock()
	switch {
	case s.begun[contribution]:
		err = fmt.Errorf("step %d was begun twice", step)
	case s.count > 0 && math.Float64bits(rate) != math.Float64bits(s.rate):
		err = fmt.Errorf("learning rate %v at step %d, another worker has %v", rate, step, s.rate)
	}
	if err != nil {
		s.mu.Unlock()
		return false, err
	}
	s.rate, s.begun[contribution] = rate, true
	if s.count++; s.count == len(s.begun) {
		clear(s.begun)
		s.count = 0
	}
	s.mu.Unlock()
	s.loss.gradients[contribution][0] = loss
	if !s.loss.arrive(contribution, step, rate) {
		return false, nil
	}
	s.total = s.loss.gradients[0][0] // a fast worker's next loss may overwrite that one
	return true, nil
}

// events is how many things happen in a step: every piece is updated and the
// loss becomes known.
func (s *Store) events() int { return len(s.pieces) + 1 }

// slot is a piece with elements of type T.
type slot[T wire.Float] struct {
	Piece
	values    []T
	gradients [][]T // by contribution; sums grow in place
	sum       progress
	divisor   T // what the sum is divided by
	state     *optimizer.State[T]
}

func newSlot[T wire.Float](p Piece, tree *Tree, d Declaration, m memory) (*slot[T], error) {
	s := bareSlot[T](p, tree, d.Sum)
	s.allocate(m)
	var err error
	s.state, err = optimizer.New[T](d.Optimizer, p.Count)
	return s, err
}

// bareSlot sums and normalises; without a state it updates nothing.
func bareSlot[T wire.Float](p Piece, tree *Tree, sum bool) *slot[T] {
	s := &slot[T]{Piece: p, sum: newProgress(tree), divisor: 1}
	if !sum {
		s.divisor = T(tree.Count())
	}
	return s
}

func (s *slot[T]) allocate(m memory) {
	s.gradients = make([][]T, s.sum.tree.Count())
	if m != nil {
		value, gradient := m(s.Piece)
		s.values, s.gradients[0] = wire.Floats[T](value), wire.Floats[T](gradient)
	} else {
		s.values = make([]T, s.Count)
	}
	for i := range s.gradients {
		if s.gradients[i] == nil {
			s.gradients[i] = make([]T, s.Count)
		}
	}
}

func (s *slot[T]) place() place          { return place{s.Variable, s.Offset} }
func (s *slot[T]) value() []byte         { return wire.Bytes(s.values) }
func (s *slot[T]) gradient(i int) []byte { return wire.Bytes(s.gradients[i]) }

func (s *slot[T]) arrive(i int, step uint64, rate float64) bool {
	if !s.sum.arrive(i, s.add) {
		return false
	}
	g := s.gradients[0]
	if s.divisor != 1 {
		for i := range g {
			g[i] /= s.divisor
		}
	}
	if s.state != nil {
		s.state.Apply(step, rate, s.values, g)
	}
	return true
}

func (s *slot[T]) add(into, from int) {
	a := s.gradients[into]
	b := s.gradients[from][:len(a)]
	for i := range a {
		a[i] += b[i]
	}
}

// Local owns every variable of a process that trains alone.
type Local struct {
	store *Store
	step  uint64
}

// NewLocal returns the owner of all of d's variables, which must have one
// worker. It works in the caller's memory: by variable, values and gradients
// as wire.Bytes gives them.
func NewLocal(d Declaration, values, gradients [][]byte) (*Local, error) {
	d.Workers = 1
	if err := d.Check(1); err != nil {
		return nil, err
	}
	store, err := newStore(d, 0, func(p Piece) (value, gradient []byte) {
		size := d.Variables[p.Variable].Dtype.Size()
		from, to := p.Offset*size, (p.Offset+p.Count)*size
		return values[p.Variable][from:to], gradients[p.Variable][from:to]
	})
	return &Local{store: store}, err
}

// Step updates the values by the gradients. It returns the loss it was given.
func (l *Local) Step(rate, loss float64) (float64, error) {
	if _, err := l.store.begin(0, l.step, rate, loss); err != nil {
		return 0, err
	}
	for _, p := range l.store.pieces {
		p.arrive(0, l.step, rate)
	}
	l.step++
	return l.store.total, nil
}
