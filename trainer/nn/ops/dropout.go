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

// Dropout sets each element of x to 0 with probability p in training, and
// multiplies the others by 1/(1-p) (Srivastava et al., "Dropout: a simple way
// to prevent neural networks from overfitting", JMLR 2014). Its gradient drops
// the same elements. In an evaluation, Dropout returns x.
//
// p is rounded to a multiple of 1/65536. Which elements are dropped depends
// only on the seed, the name, the step, the virtual worker and the element's
// index, so every host drops the same ones. The name must be unique among the
// random operations of the graph. Dropout returns an error if p is outside [0,
// 1), if the name is empty or in use, or if x is not of a float type.
//
// Executors that do not call Prepare of operation.Contextual, such as
// Gorgonia's own machines, always run the evaluation form.
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

// mask decides which elements a dropout operation keeps. The operation and its
// gradient share the mask, so that it is drawn only once per step.
type mask struct {
	name  string
	p     float64
	call  operation.Call // parameters of the next run, set by Prepare
	drawn operation.Call // parameters for which keep was drawn; Train is false if keep was not drawn yet
	keep  []byte         // for each element, 1 if it is kept and 0 if it is dropped
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

// draw computes keep for the next run, if it has not done so. Element i is
// dropped if the i-th 16-bit number of the run's random stream is less than
// p*65536.
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

// masked returns v if keep is 1, and 0 if keep is 0. It avoids a branch, which
// the processor would mispredict half of the time, and a product, which would
// keep a NaN.
func masked[T float](v T, keep byte) T {
	if unsafe.Sizeof(v) == 4 {
		return T(math.Float32frombits(math.Float32bits(float32(v)) & -uint32(keep)))
	}
	return T(math.Float64frombits(math.Float64bits(float64(v)) & -uint64(keep)))
}
