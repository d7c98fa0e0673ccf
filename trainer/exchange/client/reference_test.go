package client

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/sparse"
	"github.com/plx-run/plx/trainer/wire"
)

// gradient computes a virtual worker's gradient, which depends only on the
// variable, the virtual worker (leaf) and the step.
func gradient(d *layout.Declaration, into []byte, variable, leaf int, step uint64) {
	from := rand.NewPCG(uint64(leaf)+1000, step*1000+uint64(variable)).Uint64()
	if d.Variable(variable).Dtype == layout.Float32 {
		scatter(noise32, from, wire.Floats[float32](into))
	} else {
		scatter(noise64, from, wire.Floats[float64](into))
	}
}

// scatter fills into with noise from some position on. Computing new random
// numbers would take most of the time of these tests.
func scatter[F wire.Float](noise []F, from uint64, into []F) {
	for at := int(from % uint64(len(noise))); len(into) > 0; at = 0 {
		into = into[copy(into, noise[at:]):]
	}
}

var (
	noise32 = noises[float32]()
	noise64 = noises[float64]()
)

// noises returns random values of many magnitudes, so that additions in
// another order give other bits.
func noises[F wire.Float]() []F {
	random, all := rand.New(rand.NewPCG(5, 8)), make([]F, 1<<15)
	for i := range all {
		all[i] = F(math.Ldexp(random.NormFloat64(), random.IntN(12)-6))
	}
	return all
}

// firstValues returns the first values of dense variables, which the chief
// sends.
func firstValues(d *layout.Declaration, seed int) (values [][]byte) {
	for i, v := range d.Variables {
		if v.Sparse != nil {
			values = append(values, nil)
			continue
		}
		memory := wire.Bytes(make([]float64, (v.NumElements()*v.Dtype.Size()+7)/8))[:v.NumElements()*v.Dtype.Size()]
		gradient(d, memory, i, -seed, 99)
		values = append(values, memory)
	}
	return values
}

// touched returns the rows that a virtual worker (leaf) touches in a step; in
// some steps there are none.
func touched(v layout.Variable, leaf int, step uint64) []int64 {
	random := rand.New(rand.NewPCG(uint64(leaf)+7, step))
	if (leaf+int(step))%5 == 4 {
		return nil
	}
	var index []int64
	for row := random.IntN(17); row < v.Shape[0]; row += 1 + random.IntN(17) {
		index = append(index, int64(row))
	}
	return index
}

// rowsOf returns a virtual worker's gradient of a sparse variable.
func rowsOf(d *layout.Declaration, variable, leaf int, step uint64) (index []int64, values []byte) {
	v := d.Variables[variable]
	index = touched(v, leaf, step)
	n := len(index) * v.UnitBytes()
	values = wire.Bytes(make([]float64, (n+7)/8))[:n]
	gradient(d, values, variable, leaf, step)
	return index, values
}

// reference is a simple implementation of training, to compare results with.
// On one goroutine it computes, for each variable, a recursive sum, a
// division, a norm and the update.
type reference struct {
	d      *layout.Declaration
	values [][]byte
	f32    []*optimizer.State[float32]
	f64    []*optimizer.State[float64]
	tables []*sparse.Table[float32]
	steps  uint64
	norm   float64
	loss   []float64 // and metrics
}

func newReference(d *layout.Declaration) *reference {
	t := &reference{d: d, values: firstValues(d, 1)}
	for i, v := range d.Variables {
		a, _ := optimizer.New[float32](d.Rule(v), len(t.values[i])/4)
		b, _ := optimizer.New[float64](d.Rule(v), len(t.values[i])/8)
		t.f32, t.f64 = append(t.f32, a), append(t.f64, b)
		var table *sparse.Table[float32]
		if v.Sparse != nil {
			table, _ = sparse.NewTable[float32](v.Name, v.Sparse.First, d.Optimizer, 0, int64(v.Shape[0]), v.Width())
		}
		t.tables = append(t.tables, table)
	}
	return t
}

// step takes a step with those virtual workers of [lo, hi) for which present
// returns true.
func (t *reference) step(lo, hi int, step uint64, rate float64, present func(leaf int) bool) {
	var leaves int
	for leaf := range t.d.VirtualWorkers {
		if leaf >= lo && leaf < hi && present(leaf) {
			leaves++
		}
	}
	if leaves == 0 {
		return
	}
	here := func(leaf int) bool { return leaf >= lo && leaf < hi && present(leaf) }
	var apply []func(scale float64)
	total := 0.0
	for i, v := range t.d.Variables {
		switch {
		case v.Sparse != nil:
			g, _ := sumRows(t.d, i, 0, t.d.VirtualWorkers, step, here)
			if v.Sparse.Average {
				average(g.Values, leaves)
			}
			for _, x := range g.SumOfSquares(nil) {
				total += x
			}
			apply = append(apply, func(scale float64) {
				if len(g.Index) > 0 {
					t.tables[i].Apply(optimizer.Step{Number: t.steps, Rate: rate, Scale: scale}, g)
				}
			})
		case v.Dtype == layout.Float32:
			apply = append(apply, denseReference(t, t.f32[i], i, step, rate, leaves, here, &total))
		default:
			apply = append(apply, denseReference(t, t.f64[i], i, step, rate, leaves, here, &total))
		}
	}
	t.norm = math.Sqrt(total)
	for _, f := range apply {
		f(t.d.ClipFactor(t.norm))
	}
	t.loss = make([]float64, 1+t.d.Metrics)
	for i := range t.loss {
		t.loss[i] = sumLoss(i, 0, t.d.VirtualWorkers, step, here)
		if !t.d.Sum || i > 0 {
			t.loss[i] /= float64(leaves)
		}
	}
	t.steps++
}

func denseReference[T wire.Float](t *reference, state *optimizer.State[T], i int, step uint64, rate float64, leaves int, here func(int) bool, total *float64) func(float64) {
	v := t.d.Variables[i]
	g := sumDense[T](t.d, i, 0, t.d.VirtualWorkers, step, here)
	if !t.d.Sum || v.IsStatistic() {
		average(g, leaves)
	}
	for x := g; len(x) > 0 && !v.IsStatistic(); x = x[min(layout.BlockElements, len(x)):] {
		*total += optimizer.SumOfSquares(x[:min(layout.BlockElements, len(x))])
	}
	return func(scale float64) {
		state.Apply(optimizer.Step{Number: t.steps, Rate: rate, Scale: scale}, wire.Floats[T](t.values[i]), g)
	}
}

// sumDense returns the sum of the gradients of present virtual workers in [lo,
// hi), or nil if none is present.
func sumDense[T wire.Float](d *layout.Declaration, variable, lo, hi int, step uint64, here func(int) bool) []T {
	if hi-lo == 1 {
		if !here(lo) {
			return nil
		}
		g := make([]T, d.Variables[variable].NumElements())
		gradient(d, wire.Bytes(g), variable, lo, step)
		return g
	}
	mid := lo + (hi-lo)/2
	a, b := sumDense[T](d, variable, lo, mid, step, here), sumDense[T](d, variable, mid, hi, step, here)
	if a == nil || b == nil {
		return append(a, b...)
	}
	for i := range a {
		a[i] += b[i]
	}
	return a
}

// sumRows returns the sum of sparse gradients, which it adds row by row.
func sumRows(d *layout.Declaration, variable, lo, hi int, step uint64, here func(int) bool) (sum sparse.Rows[float32], any bool) {
	sum.Width = d.Variables[variable].Width()
	if hi-lo == 1 {
		if here(lo) {
			var b []byte
			sum.Index, b = rowsOf(d, variable, lo, step)
			sum.Values = wire.Floats[float32](b)
		}
		return sum, len(sum.Index) > 0
	}
	mid := lo + (hi-lo)/2
	a, _ := sumRows(d, variable, lo, mid, step, here)
	b, _ := sumRows(d, variable, mid, hi, step, here)
	for row := range int64(d.Variables[variable].Shape[0]) {
		x, y := rowIn(a, row), rowIn(b, row)
		if x == nil && y == nil {
			continue
		}
		sum.Index = append(sum.Index, row)
		if x == nil || y == nil {
			sum.Values = append(append(sum.Values, x...), y...)
			continue
		}
		for i := range x {
			sum.Values = append(sum.Values, x[i]+y[i])
		}
	}
	return sum, len(sum.Index) > 0
}

func rowIn(r sparse.Rows[float32], row int64) []float32 {
	if i, found := slices.BinarySearch(r.Index, row); found {
		return r.Row(i)
	}
	return nil
}

// lossOf returns what a virtual worker reports: its loss for metric 0, and
// otherwise a metric.
func lossOf(metric, leaf int, step uint64) float64 {
	return 1/float64(leaf+3+5*metric) + float64(step)/7
}

func sumLoss(metric, lo, hi int, step uint64, here func(int) bool) float64 {
	if hi-lo == 1 {
		if here(lo) {
			return lossOf(metric, lo, step)
		}
		return math.NaN() // absent
	}
	mid := lo + (hi-lo)/2
	a, b := sumLoss(metric, lo, mid, step, here), sumLoss(metric, mid, hi, step, here)
	switch {
	case math.IsNaN(a):
		return b
	case math.IsNaN(b):
		return a
	}
	return a + b
}

// compare fails the test unless values has the same bits as the reference.
func (t *reference) compare(tb testing.TB, values [][]byte, who string) {
	tb.Helper()
	for i, v := range t.d.Variables {
		if v.Sparse == nil && string(t.values[i]) != string(values[i]) {
			tb.Fatalf("%s: %s differs from the reference after %d steps", who, v.Name, t.steps)
		}
	}
}

// reports tells whether an outcome has the loss and the metrics of the
// reference.
func (t *reference) reports(o Outcome) bool {
	return o.Loss == t.loss[0] && slices.Equal(o.Metrics, t.loss[1:])
}

// table returns all rows of a sparse variable of the reference.
func (t *reference) table(variable int) []byte {
	v := t.d.Variables[variable]
	all := make([]float32, v.NumElements())
	if err := t.tables[variable].Copy(0, all); err != nil {
		panic(err)
	}
	return wire.Bytes(all)
}

func everyLeaf(int) bool { return true }

func nan() float64 { return math.NaN() }

// average divides without any thought.
func average[T wire.Float](x []T, by int) {
	for i := range x {
		x[i] /= T(by)
	}
}
