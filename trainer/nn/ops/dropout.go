package ops

import (
	"fmt"
	"math"
	"unsafe"

	gpu "github.com/plx-run/plx/trainer/executor/gpu/kernels"

	"github.com/plx-run/plx/trainer/executor/memory"
	"github.com/plx-run/plx/trainer/operation"
	"github.com/plx-run/plx/trainer/random"
	"gorgonia.org/gorgonia"
)

// Dropout sets each element of x to 0 with probability p in training and
// multiplies the others by 1/(1-p). Its gradient does the same to the same
// elements. In an evaluation it returns x (Srivastava et al., "Dropout: a
// simple way to prevent neural networks from overfitting", JMLR 2014).
//
// p is rounded to a multiple of 1/65536. The dropped elements depend only on
// the seed, the name, the step, the virtual worker and the element's index, so
// every host computes the same. The name belongs to one dropout of the graph.
// It refuses a p outside [0, 1), a name that is empty or used, and an x that
// holds no floats.
//
// A machine that does not call Prepare of operation.Contextual, such as
// Gorgonia's own, evaluates.
func Dropout(x *gorgonia.Node, p float64, name string) (*gorgonia.Node, error) {
	what := fmt.Sprintf("dropout %q", name)
	if _, err := floats(what, x); err != nil {
		return nil, err
	}
	if !(p >= 0 && p < 1) {
		return nil, fmt.Errorf("%s: the probability to drop is %v, want at least 0 and less than 1", what, p)
	}
	if err := claim(x.Graph(), what, name); err != nil {
		return nil, err
	}
	return (&mask{name: name, p: p, keep: make([]byte, memory.Elements(x.Shape()))}).apply(x)
}

// mask is shared by the dropout of a value and the dropout of its gradient. It
// is drawn once for both.
type mask struct {
	name  string
	p     float64
	call  operation.Call // of the next run
	drawn operation.Call // the call that keep was drawn for; without Train: none yet
	keep  []byte         // by element: 1 means kept, 0 means dropped
}

func (m *mask) apply(x *gorgonia.Node) (*gorgonia.Node, error) {
	diff := func(_ gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) { return one(m.apply(dy)) }
	o := newOp(fmt.Sprintf("dropout %q p %v", m.name, m.p), x.Dtype(), x.Shape(),
		choose(x.Dtype(), dropout[float32], dropout[float64], m)).with(diff, 0).on(m.gpu(memory.Elements(x.Shape())))
	return (&contextual{op: o, stream: m.name, call: &m.call}).apply(x)
}

func (m *mask) gpu(n int) *operation.GPU {
	return &operation.GPU{
		Kernels: func(t gpu.Type, train bool) (gpu.Operation, error) {
			if !train {
				return gpu.Copy(t, n)
			}
			return gpu.Dropout(t, m.p, n)
		},
		Call: &m.call,
		Stream: func() random.Stream {
			return random.New(m.call.Seed, m.name).Derive(m.call.Step, uint64(m.call.VirtualWorker))
		},
	}
}

func dropout[T float](m *mask, out []T, in [][]T) {
	scale := T(1 / (1 - m.p))
	y, x := out, in[0]
	if !m.call.Train {
		copy(y, x)
		return
	}
	m.draw()
	for i, v := range x {
		y[i] = masked(v*scale, m.keep[i])
	}
}

// draw computes keep for the call. Element i is kept if the i-th 16 bits of the
// call's stream are not among the lowest p of all 16-bit numbers.
func (m *mask) draw() {
	if m.drawn == m.call {
		return
	}
	stream := random.New(m.call.Seed, m.name).Derive(m.call.Step, uint64(m.call.VirtualWorker))
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

// masked returns v if keep is 1, and 0 if keep is 0. A branch on random numbers
// would be mispredicted half of the time; a product would keep a NaN.
func masked[T float](v T, keep byte) T {
	if unsafe.Sizeof(v) == 4 {
		return T(math.Float32frombits(math.Float32bits(float32(v)) & -uint32(keep)))
	}
	return T(math.Float64frombits(math.Float64bits(float64(v)) & -uint64(keep)))
}
