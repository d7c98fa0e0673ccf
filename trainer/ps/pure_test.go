package ps

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/plx-run/plx/trainer/optimizer"
)

// twin adds as Tree promises, without any of its machinery.
func twin(x []float32) float32 {
	if len(x) == 1 {
		return x[0]
	}
	mid := len(x) / 2
	return twin(x[:mid]) + twin(x[mid:])
}

// Whoever comes first, the sum has the bits of the naive twin.
func TestTreeSumsAsItsTwin(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for n := 1; n <= 33; n++ {
		tree := NewTree(n)
		run := newProgress(tree)
		for range 5 { // the progress is used again for every sum
			x := make([]float32, n)
			for i := range x {
				x[i] = float32(math.Ldexp(random.Float64()-0.5, random.IntN(40)-20))
			}
			want := twin(x)
			var all sync.WaitGroup
			completed := make(chan int, n)
			for _, i := range random.Perm(n) {
				all.Go(func() {
					if run.arrive(i, func(into, from int) { x[into] += x[from] }) {
						completed <- i
					}
				})
			}
			all.Wait()
			if len(completed) != 1 {
				t.Fatalf("n=%d: completed %d times", n, len(completed))
			}
			if math.Float32bits(x[0]) != math.Float32bits(want) {
				t.Fatalf("n=%d: got %v, want %v", n, x[0], want)
			}
		}
	}
}

func TestPlace(t *testing.T) {
	sized := func(elements ...int) (vs []Variable) {
		for i, n := range elements {
			vs = append(vs, Variable{Name: fmt.Sprint("v", i), Dtype: Float32, Shape: []int{n}})
		}
		return vs
	}
	for _, c := range []struct {
		variables []Variable
		servers   int
		want      []int
	}{
		{sized(), 2, nil},
		{sized(5), 3, []int{0}},
		{sized(1, 1, 1, 1), 2, []int{0, 1, 0, 1}},
		{sized(10, 1, 1, 1), 2, []int{0, 1, 1, 1}},
		{sized(4, 3, 2, 1, 1), 3, []int{0, 1, 2, 2, 1}},
		{[]Variable{{"a", Float64, []int{4}}, {"b", Float32, []int{4}}, {"c", Float32, []int{4}}}, 2, []int{0, 1, 1}},
		{[]Variable{{"scalar", Float32, nil}, {"b", Float32, []int{2, 3}}}, 2, []int{0, 1}},
	} {
		pieces := Place(c.variables, c.servers)
		var got []int
		for _, p := range pieces {
			got = append(got, p.Server)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v on %d: got %v, want %v", c.variables, c.servers, got, c.want)
		}
		d := Declaration{Workers: 1, Variables: c.variables, Pieces: pieces, StartMillis: 1, SilenceMillis: 1,
			Optimizer: optimizer.Settings{Rule: optimizer.SGD}}
		if err := d.Check(c.servers); err != nil {
			t.Errorf("%v on %d: %v", c.variables, c.servers, err)
		}
	}
}

// example is a declaration with two variables on two servers.
func example(workers int) Declaration {
	d := Declaration{
		Workers:       workers,
		Variables:     []Variable{{"w", Float32, []int{3, 5}}, {"b", Float64, []int{4}}, {"s", Float32, nil}},
		Optimizer:     optimizer.Settings{Rule: optimizer.Momentum, Momentum: 0.9},
		Batch:         12,
		StartMillis:   20000,
		SilenceMillis: 20000,
	}
	d.Pieces = Place(d.Variables, 2)
	return d
}

func TestDeclarationCheck(t *testing.T) {
	for name, spoil := range map[string]func(d *Declaration){
		"workers":        func(d *Declaration) { d.Workers = 0 },
		"silence":        func(d *Declaration) { d.SilenceMillis = 0 },
		"optimiser":      func(d *Declaration) { d.Optimizer.Rule = "?" },
		"no name":        func(d *Declaration) { d.Variables[0].Name = "" },
		"name twice":     func(d *Declaration) { d.Variables[1].Name = "w" },
		"type":           func(d *Declaration) { d.Variables[0].Dtype = "int" },
		"negative shape": func(d *Declaration) { d.Variables[0].Shape = []int{-3, -5} },
		"huge shape":     func(d *Declaration) { d.Variables[0].Shape = []int{1 << 40, 1 << 40} },
		"no owner":       func(d *Declaration) { d.Pieces = d.Pieces[1:] },
		"owned twice":    func(d *Declaration) { d.Pieces = append(d.Pieces, d.Pieces[0]) },
		"no such server": func(d *Declaration) { d.Pieces[0].Server = 2 },
		"gap":            func(d *Declaration) { d.Pieces[0].Offset = 1 },
		"too long":       func(d *Declaration) { d.Pieces[0].Count = math.MaxInt },
		"empty piece":    func(d *Declaration) { d.Pieces[0].Count = 0 },
		"unknown":        func(d *Declaration) { d.Pieces[0].Variable = 9 },
	} {
		d := example(2)
		if err := d.Check(2); err != nil {
			t.Fatal(err)
		}
		if spoil(&d); d.Check(2) == nil {
			t.Errorf("%s: accepted %+v", name, d)
		}
	}
}

func TestDifferenceIsNamed(t *testing.T) {
	for want, change := range map[string]func(d *Declaration){
		`variable 1 is named "bias", not "b"`:     func(d *Declaration) { d.Variables[1].Name = "bias" },
		`variable "w" has shape [5 3], not [3 5]`: func(d *Declaration) { d.Variables[0].Shape = []int{5, 3} },
		`variable "w" is float64, not float32`:    func(d *Declaration) { d.Variables[0].Dtype = Float64 },
		"4 variables, not 3":                      func(d *Declaration) { d.Variables = append(d.Variables, Variable{Name: "x"}) },
		"another placement of the variables":      func(d *Declaration) { d.Pieces[0].Server = 1 },
		"Momentum:0.5":                            func(d *Declaration) { d.Optimizer.Momentum = 0.5 },
		"loss kind sum, not mean":                 func(d *Declaration) { d.Sum = true },
		"global batch 24, not 12":                 func(d *Declaration) { d.Batch = 24 },
		"other timeouts":                          func(d *Declaration) { d.SilenceMillis = 1 },
		"3 workers, not 2":                        func(d *Declaration) { d.Workers = 3 },
	} {
		a, b := example(2), example(2)
		if got := a.Difference(b); got != "" {
			t.Fatalf("equal ones differ: %s", got)
		}
		if change(&b); !strings.Contains(a.Difference(b), want) {
			t.Errorf("got %q, want %q", a.Difference(b), want)
		}
	}
}

func TestLocalIsTheServersArithmetic(t *testing.T) {
	d := example(1)
	d.Pieces = Place(d.Variables, 1)
	m := newMemory(d)
	m.fill(1)
	local, err := NewLocal(d, m.values, m.gradients)
	if err != nil {
		t.Fatal(err)
	}
	n := newNaive(d, m)
	for step := range uint64(10) {
		m.grow(0, step)
		n.step([]*memories{m}, 0.1)
		if loss, err := local.Step(0.1, 7); err != nil || loss != 7 {
			t.Fatal(loss, err)
		}
		n.compare(t, m, 0)
	}
}
