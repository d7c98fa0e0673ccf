package nn

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/plx-run/plx/trainer/executor"
	"github.com/plx-run/plx/trainer/random"
	"gorgonia.org/gorgonia"
)

// Dropout sets each element of x to 0 with probability p in training and
// multiplies the others by 1/(1-p); its gradient does the same to the same
// elements. In an evaluation it returns x (Srivastava et al., "Dropout: a
// simple way to prevent neural networks from overfitting", JMLR 2014).
//
// A p that is no multiple of 1/65536 is rounded to one when elements are drawn.
// Which elements are dropped depends on the seed, the name, the step, the
// virtual worker and the element's index alone, so it is the same whatever
// host computes it. The name belongs to one dropout of the graph. A p outside
// [0, 1), a name that is empty or was used before, and an x that holds no
// floats are refused.
//
// A machine that does not call Prepare of executor.Contextual, such as
// Gorgonia's own, evaluates.
func Dropout(x *gorgonia.Node, p float64, name string) (*gorgonia.Node, error) {
	what := fmt.Sprintf("dropout %q", name)
	if _, err := floats(what, x); err != nil {
		return nil, err
	}
	if !(p >= 0 && p < 1) {
		return nil, fmt.Errorf("%s: the probability to drop is %v, want at least 0 and less than 1", what, p)
	}
	if name == "" {
		return nil, fmt.Errorf("%s: it has no name: give each dropout its own", what)
	}
	for _, n := range x.Graph().AllNodes() {
		if other, ok := n.Op().(*contextual); ok && other.stream == name {
			return nil, fmt.Errorf("%s: the graph has one of this name: two would drop the same elements", what)
		}
	}
	return (&mask{name: name, p: p, keep: make([]byte, elements(x.Shape()))}).apply(x)
}

// mask is what the dropout of a value and that of its gradient share. It is
// drawn once for both.
type mask struct {
	name  string
	p     float64
	call  executor.Call // of the run
	drawn executor.Call // keep belongs to it, once Train is set
	keep  []byte        // 1 for the elements that are kept, 0 for the others
}

func (m *mask) apply(x *gorgonia.Node) (*gorgonia.Node, error) {
	o := &operation{
		what: fmt.Sprintf("dropout %q p %v", m.name, m.p),
		out:  operand{dtype: x.Dtype(), shape: x.Shape()},
		run:  choose(x.Dtype(), dropout[float32], dropout[float64], m),
		diff: func(_ gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) { return one(m.apply(dy)) },
	}
	return (&contextual{operation: o, stream: m.name, call: &m.call}).apply(x)
}

func dropout[T float](m *mask) kernel {
	scale := T(1 / (1 - m.p))
	return func(out gorgonia.Value, in []gorgonia.Value) error {
		y, x := data[T](out), data[T](in[0])
		if !m.call.Train {
			copy(y, x)
			return nil
		}
		m.draw()
		for i, v := range x {
			y[i] = masked(v*scale, m.keep[i])
		}
		return nil
	}
}

// draw makes keep that of the call: element i is kept when the i-th 16 bits of
// the call's stream are not among the lowest p of all 16 bits.
func (m *mask) draw() {
	if m.drawn == m.call {
		return
	}
	stream := random.New(m.call.Seed, m.name).Derive(m.call.Step, uint64(m.call.Leaf))
	lowest := min(uint64(math.Round(m.p*(1<<16))), 1<<16-1)
	for i := 0; i < len(m.keep); i += 8 {
		words := stream.Bits(uint64(i / 8))
		for k := range m.keep[i:min(i+8, len(m.keep))] {
			number := uint64(words[k/2]>>(k%2*16)) & 0xffff
			m.keep[i+k] = 1 ^ byte((number-lowest)>>63)
		}
	}
	m.drawn = m.call
}

// masked is v where keep is 1 and 0 where it is 0. A branch on random numbers
// would be guessed wrong half of the time, and a product would keep a NaN.
func masked[T float](v T, keep byte) T {
	if unsafe.Sizeof(v) == 4 {
		return T(math.Float32frombits(math.Float32bits(float32(v)) & -uint32(keep)))
	}
	return T(math.Float64frombits(math.Float64bits(float64(v)) & -uint64(keep)))
}
