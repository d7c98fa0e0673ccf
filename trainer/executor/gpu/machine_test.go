package gpu

import (
	"slices"
	"testing"

	"github.com/plx-run/plx/trainer/executor/compile"
	"github.com/plx-run/plx/trainer/executor/device"
	"github.com/plx-run/plx/trainer/executor/gpu/kernels"
	"github.com/plx-run/plx/trainer/optimizer"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// idle is a device.GPU that computes nothing and finishes all work at once.
type idle struct {
	next            device.Pointer
	launches, plays int
	allocs          int
}

func (d *idle) Alloc(n int) (device.Pointer, error) {
	d.next += 1 << 32
	d.allocs++
	return d.next, nil
}
func (*idle) Info() (device.Info, error) {
	return device.Info{Major: 7, Driver: 12000, Total: 1 << 40, Free: 1 << 40}, nil
}
func (*idle) Free(device.Pointer) error            { return nil }
func (*idle) AllocHost(n int) ([]byte, error)      { return make([]byte, n), nil }
func (*idle) FreeHost([]byte) error                { return nil }
func (d *idle) Load(string) (device.Module, error) { return d, nil }
func (d *idle) NewEvent() (device.Event, error)    { return d, nil }
func (d *idle) NewStream() (device.Stream, error)  { return d, nil }
func (*idle) Do(f func() error) error              { return f() }
func (*idle) Kernel(string) (device.Kernel, error) { return 1, nil }
func (*idle) Done() (bool, error)                  { return true, nil }
func (*idle) Close() error                         { return nil }
func (*idle) In(device.Pointer, []byte) error      { return nil }
func (*idle) Out([]byte, device.Pointer) error     { return nil }
func (d *idle) Launch(device.Kernel, device.Shape, []byte) error {
	d.launches++
	return nil
}
func (*idle) Record(device.Event) error { return nil }
func (*idle) Wait(device.Event) error   { return nil }
func (*idle) Handle() uintptr           { return 0 }
func (d *idle) Capture(put func() error) (device.Graph, error) {
	return d, put()
}
func (d *idle) Replay(device.Graph) error {
	d.plays++
	return nil
}

// on returns a Device for the test's GPU g.
func on(t *testing.T, g device.GPU) *Device {
	t.Helper()
	d, err := On(g)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// example returns a program with one variable of 80 bytes.
func example(t *testing.T) *compile.Program {
	t.Helper()
	g := gorgonia.NewGraph()
	x := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(3, 4), gorgonia.WithName("x"))
	w := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(4, 5), gorgonia.WithName("w"))
	loss := gorgonia.Must(gorgonia.Mean(gorgonia.Must(gorgonia.Tanh(gorgonia.Must(gorgonia.Mul(x, w))))))
	value := tensor.New(tensor.WithShape(4, 5), tensor.Of(tensor.Float32))
	p, err := compile.Graph(g, compile.Plan{Inputs: gorgonia.Nodes{x}, Fixed: gorgonia.Nodes{w}, FixedValues: []gorgonia.Value{value},
		Loss: loss, Differentiate: gorgonia.Nodes{w}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A run allocates nothing, and calls ready once for each gradient.
func TestRunAllocatesNothing(t *testing.T) {
	p := example(t)
	d := &idle{}
	m, err := New(p, [][]byte{make([]byte, 80)}, gorgonia.WhichBLAS(), on(t, d))
	if err != nil {
		t.Fatal(err)
	}
	announced, gradients := 0, [][]byte{make([]byte, 80)}
	ready := func(int) { announced++ }
	run := func() {
		if err := m.Run(gradients, ready); err != nil {
			t.Fatal(err)
		}
	}
	run() // waits after each operation
	run() // records graphs
	once := d.launches / 2
	if n := testing.AllocsPerRun(9, run); n != 0 || announced != 12 {
		t.Errorf("%v allocations a run, %d announcements of 12 runs", n, announced)
	}
	if d.plays == 0 || d.launches-2*once >= 10*once {
		t.Errorf("%d launches of the first two runs, %d later, %d graphs replayed", 2*once, d.launches-2*once, d.plays)
	}
}

// copies is an idle GPU that records the number of bytes of each copy and its
// direction.
type copies struct {
	*idle
	in  map[device.Pointer]int
	out []int // number of bytes of each copy to the host
	err error // of the next copies
}

func (d *copies) Out(to []byte, _ device.Pointer) error {
	d.out = append(d.out, len(to))
	return nil
}

func (d *copies) In(to device.Pointer, from []byte) error {
	d.in[to] += len(from)
	return d.err
}

func (d *copies) NewStream() (device.Stream, error) { return d, nil }

// Renew starts the copy of a new value to the GPU at once, and the next run
// does not copy the value again.
func TestRenewCopiesAtOnce(t *testing.T) {
	d, value := &copies{idle: &idle{}, in: map[device.Pointer]int{}}, make([]byte, 80)
	m, err := New(example(t), [][]byte{value}, gorgonia.WhichBLAS(), on(t, d))
	if err != nil {
		t.Fatal(err)
	}
	run := func() error { return m.Run([][]byte{make([]byte, 80)}, nil) }
	at := m.feeds.all[m.feeds.fixed].at
	copied := func(what string, first, second int) {
		t.Helper()
		if d.in[at] != first || d.in[at+40] != second {
			t.Errorf("%s: %d bytes were copied, %d of them to the second half; want %d and %d", what, d.in[at], d.in[at+40], first, second)
		}
		clear(d.in)
	}
	for range 2 {
		if err := run(); err != nil {
			t.Fatal(err)
		}
	}
	copied("two runs", 80, 0)
	for i := range value {
		value[i] = 1
	}
	m.Renew(0, 40, 80)
	copied("the second half", 0, 40)
	m.Renew(0, 0, 40)
	copied("the first half", 40, 0)
	if err := run(); err != nil {
		t.Fatal(err)
	}
	copied("a run after both", 0, 0)
	value[3] = 2
	if err := run(); err != nil {
		t.Fatal(err)
	}
	copied("a change that nobody reported", 80, 0)
	d.err = &device.Error{Call: "copy", Code: device.IllegalAddress}
	m.Renew(0, 0, 40)
	d.err = nil
	if err := run(); err == nil {
		t.Error("a copy failed, and the next run does not report it")
	}
}

// After Reside, the machine starts each step as one graph. It only copies the
// input and the constants of the update to the GPU, and the loss to the host.
func TestResidentRunIsOneGraph(t *testing.T) {
	d := &copies{idle: &idle{}, in: map[device.Pointer]int{}, out: make([]int, 0, 100)}
	m, err := New(example(t), [][]byte{make([]byte, 80)}, gorgonia.WhichBLAS(), on(t, d))
	if err != nil {
		t.Fatal(err)
	}
	r, err := m.Reside(Updates{Rules: []optimizer.Settings{{Rule: optimizer.Adam, Beta1: 0.9, Beta2: 0.99}}, Block: 7, Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	r.Hold(0, [][]byte{make([]byte, 80), make([]byte, 80)})
	number, gradients := uint64(0), [][]byte{make([]byte, 80)}
	step := func() {
		r.Update(0, optimizer.Step{Number: number, Rate: 0.1, Scale: 1})
		number++
		if err := m.Run(gradients, func(int) { t.Error("a gradient is announced") }); err != nil {
			t.Fatal(err)
		}
	}
	step() // waits after each operation
	step() // records the graph
	if d.plays != 1 {
		t.Errorf("the second step is %d graphs", d.plays)
	}
	launches, allocs := d.launches, d.allocs
	d.plays, d.out = 0, d.out[:0]
	clear(d.in)
	if n := testing.AllocsPerRun(9, step); n != 0 {
		t.Errorf("%v allocations a step", n)
	}
	if d.plays != 10 || d.launches != launches || d.allocs != allocs {
		t.Errorf("10 steps are %d graphs, %d more launches and %d allocations", d.plays, d.launches-launches, d.allocs-allocs)
	}
	total := 0
	for _, n := range d.in {
		total += n
	}
	if len(d.in) != 2 || total != 10*(48+kernels.ConstantsBytes) {
		t.Errorf("10 steps copy %v, want 48 bytes of the input and %d of constants each", d.in, kernels.ConstantsBytes)
	}
	if want := slices.Repeat([]int{4, 8 * 3}, 10); !slices.Equal(d.out, want) {
		t.Errorf("10 steps copy %v to the host, want the loss and 3 sums of squares each", d.out)
	}
	d.out = d.out[:0]
	for range 2 {
		if err := r.Fetch(); err != nil {
			t.Fatal(err)
		}
	}
	if len(d.out) != 3 {
		t.Errorf("fetched %v, want the variable and two slots, once", d.out)
	}
}
