package sparse

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/random"
	"github.com/plx-run/plx/trainer/wire"
)

var (
	uniform = Initial{Kind: Uniform, A: -0.5, B: 2, Seed: 7}
	normal  = Initial{Kind: Normal, A: 1, B: 3, Seed: 7}
	plain   = optimizer.Settings{Rule: optimizer.SGD}
)

func newTable[T wire.Float](t testing.TB, first Initial, s optimizer.Settings, lo, hi int64, width int) *Table[T] {
	t.Helper()
	table, err := NewTable[T]("words", first, s, lo, hi, width)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// dense returns the initial values of a dense variable as package trainer
// computes them: two elements for each pair of random numbers.
func dense(first Initial, name string, n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		u, v := random.New(first.Seed, name).Pair(uint64(i / 2))
		radius := first.B * math.Sqrt(-2*math.Log(1-u))
		switch sin, cos := math.Sincos(2 * math.Pi * v); {
		case first.Kind == Uniform && i%2 == 0:
			x[i] = first.A + float64(u*(first.B-first.A))
		case first.Kind == Uniform:
			x[i] = first.A + float64(v*(first.B-first.A))
		case first.Kind == Normal && i%2 == 0:
			x[i] = first.A + float64(radius*cos)
		case first.Kind == Normal:
			x[i] = first.A + float64(radius*sin)
		}
	}
	return x
}

// The initial values of a row must not depend on the shards, and must be those
// of a dense variable of the same name.
func TestInitialValuesMatchDenseVariables(t *testing.T) {
	const rows = 23
	for _, first := range []Initial{uniform, normal, {}, {Kind: Zeros, A: 3}} {
		for _, width := range []int{1, 2, 5} {
			want := dense(first, "words", rows*width)
			for _, cut := range []int64{0, 1, 11, rows} {
				got := make([]float64, rows*width)
				for _, bounds := range [][2]int64{{0, cut}, {cut, rows}} {
					part := got[int(bounds[0])*width : int(bounds[1])*width]
					if err := newTable[float64](t, first, plain, bounds[0], bounds[1], width).Copy(bounds[0], part); err != nil {
						t.Fatal(err)
					}
				}
				sameBits(t, got, want)
			}
			narrow := make([]float32, width)
			if err := newTable[float32](t, first, plain, 5, 20, width).Read([]int64{9}, narrow); err != nil {
				t.Fatal(err)
			}
			for i, x := range narrow {
				if x != float32(want[9*width+i]) {
					t.Errorf("%s: float32 %v, float64 %v", first.Kind, x, want[9*width+i])
				}
			}
		}
	}
}

func TestInitialValuesDependOnSeedAndName(t *testing.T) {
	read := func(name string, seed uint64) (x [4]float32) {
		table, err := NewTable[float32](name, Initial{Kind: Uniform, B: 1, Seed: seed}, plain, 0, 1, 4)
		if err != nil {
			t.Fatal(err)
		}
		table.Read([]int64{0}, x[:])
		return x
	}
	if read("a", 1) == read("b", 1) || read("a", 1) == read("a", 2) {
		t.Error("another name or seed gives the same values")
	}
}

// A table, whole and in two shards, must always have the same values as a
// dense variable whose rows are updated one by one. The steps read, update,
// fill and copy rows.
func TestTableMatchesDenseUpdates(t *testing.T) {
	for _, s := range []optimizer.Settings{
		plain, {Rule: optimizer.SGD, Decay: 0.1}, {Rule: optimizer.Momentum, Momentum: 0.9},
		{Rule: optimizer.Adagrad, Accumulator: 0.1},
		{Rule: optimizer.Adam, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8, Decay: 0.1, Decoupled: true},
	} {
		for _, first := range []Initial{{}, uniform} {
			t.Run(fmt.Sprint(s.Rule, s.Decay, first.Kind), func(t *testing.T) { checkTable(t, first, s) })
		}
	}
}

func checkTable(t *testing.T, first Initial, s optimizer.Settings) {
	const lo, cut, hi, width = 100, 117, 250, 3
	source := rand.New(rand.NewPCG(8, 8))
	tables := []*Table[float64]{newTable[float64](t, first, s, lo, cut, width), newTable[float64](t, first, s, cut, hi, width)}
	want := dense(first, "words", hi*width)[lo*width:]
	var states []*optimizer.State[float64]
	for range hi - lo {
		state, _ := optimizer.New[float64](s, width)
		states = append(states, state)
	}
	for number := range uint64(30) {
		step := optimizer.Step{Number: number, Rate: 0.1, Scale: 1 / float64(1+number%2)}
		g := someRows[float64](source, lo, hi, width, 0.2)
		for i, row := range g.Index {
			states[row-lo].Apply(step, want[(row-lo)*width:(row-lo+1)*width], g.Row(i))
		}
		pieces := []Rows[float64]{g.Cut(lo, cut), g.Cut(cut, hi)}
		for i, table := range tables {
			if err := table.Apply(step, pieces[i]); err != nil {
				t.Fatal(err)
			}
		}
		if number == 20 { // at this step two rows are replaced
			moved := noise[float64](source, 2*width)
			copy(want[(hi-2-lo)*width:], moved)
			fill(tables[1], hi-2, moved)
		}
		compare(t, tables, want, source)
	}
}

// fill replaces the values of rows, beginning with first, but not their
// optimiser state.
func fill[T wire.Float](table *Table[T], first int64, values []T) {
	copy(table.values[int(first-table.lo)*table.width:], values)
	for i := range len(values) / table.width {
		table.store(first + int64(i))
	}
}

// compare compares all rows of the tables with want, read in order, and some
// rows read in arbitrary order.
func compare(t *testing.T, tables []*Table[float64], want []float64, source *rand.Rand) {
	t.Helper()
	base, width := tables[0].lo, tables[0].width
	for _, table := range tables {
		lo, hi := table.lo, table.hi
		all := make([]float64, int(hi-lo)*width)
		if err := table.Copy(lo, all); err != nil {
			t.Fatal(err)
		}
		part := want[int(lo-base)*width : int(hi-base)*width]
		sameBits(t, all, part)
		index := []int64{lo + source.Int64N(hi-lo), hi - 1, lo, lo + source.Int64N(hi-lo)}
		got := make([]float64, len(index)*width)
		if err := table.Read(index, got); err != nil {
			t.Fatal(err)
		}
		for i, row := range index {
			sameBits(t, got[i*width:(i+1)*width], part[int(row-lo)*width:int(row-lo+1)*width])
		}
	}
}

// A shard whose values and optimiser state were copied to another table must
// get the same bits in the next step.
func TestCopiedShardTrainsLikeTheOriginal(t *testing.T) {
	source := rand.New(rand.NewPCG(9, 9))
	s := optimizer.Settings{Rule: optimizer.Adam, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8}
	here := newTable[float32](t, normal, s, 0, 40, 5)
	here.Apply(optimizer.Step{Rate: 0.1, Scale: 1}, someRows[float32](source, 0, 40, 5, 0.5))
	there := newTable[float32](t, normal, s, 10, 30, 5)
	values := make([]float32, 20*5)
	if err := here.Copy(10, values); err != nil {
		t.Fatal(err)
	}
	fill(there, 10, values)
	for i, slot := range there.state.Slots() {
		copy(slot, here.state.Slots()[i][10*5:30*5])
	}
	g := someRows[float32](source, 10, 30, 5, 0.5)
	for _, table := range []*Table[float32]{here, there} {
		if err := table.Apply(optimizer.Step{Number: 1, Rate: 0.1, Scale: 1}, g); err != nil {
			t.Fatal(err)
		}
	}
	moved := make([]float32, len(values))
	here.Copy(10, values)
	there.Copy(10, moved)
	sameBits(t, moved, values)
}

// A rejected Fill changes nothing. After a successful one, all rows have the
// given values, and are saved and moved as if they had been updated.
func TestFillSetsAllRows(t *testing.T) {
	table := newTable[float64](t, Initial{Kind: Given}, plain, 3, 6, 2)
	if err := table.Fill([]float64{1, 2, 3}); err == nil || !strings.Contains(err.Error(), "3 first values for 6 elements") {
		t.Errorf("too few values: %v", err)
	}
	if err := table.Fill([]float64{1, 2, 3, 4, 5, 6}); err != nil {
		t.Fatal(err)
	}
	into := make([]float64, 4)
	if err := table.Read([]int64{5, 3}, into); err != nil || fmt.Sprint(into) != "[5 6 1 2]" {
		t.Errorf("rows 5 and 3: %v, %v", into, err)
	}
	if k := table.Keep(); fmt.Sprint(k.Index) != "[3 4 5]" {
		t.Errorf("rows %v are kept", k.Index)
	}
	if moved := table.Updated(0, 9, 9, nil); fmt.Sprint(moved) != "[3 4 5]" {
		t.Errorf("rows %v move", moved)
	}
}

func TestTableRejectsInvalidCalls(t *testing.T) {
	table := newTable[float32](t, uniform, plain, 10, 20, 2)
	before, after := make([]float32, 20), make([]float32, 20)
	table.Copy(10, before)
	step := optimizer.Step{Rate: 1, Scale: 1}
	for name, err := range map[string]error{
		"outside [10, 20)":  table.Apply(step, Rows[float32]{[]int64{12, 20}, make([]float32, 4), 2}),
		"row 12 after":      table.Apply(step, Rows[float32]{[]int64{13, 12}, []float32{1, 1, 1, 1}, 2}),
		"width 1":           table.Apply(step, Rows[float32]{[]int64{12, 13}, make([]float32, 2), 1}),
		"row 9 is outside":  table.Read([]int64{12, 9}, make([]float32, 4)),
		"row 20 is outside": table.Read([]int64{12, 20}, make([]float32, 4)),
		"into 3 elements":   table.Read([]int64{12, 13}, make([]float32, 3)),
		"no whole rows":     table.Copy(10, make([]float32, 3)),
		"1 rows from row 9": table.Copy(9, make([]float32, 2)),
		"2 rows from":       table.Copy(19, make([]float32, 4)),
		"1 rows from row":   table.Copy(21, make([]float32, 2)),
		"from row -9223372": table.Copy(math.MinInt64, make([]float32, 2)),
	} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want %q", err, name)
		}
	}
	table.Copy(10, after)
	sameBits(t, after, before)
}

func TestNewTableRejectsInvalidSettings(t *testing.T) {
	for _, c := range []struct {
		first  Initial
		rule   optimizer.Rule
		lo, hi int64
		width  int
		want   string
	}{
		{uniform, "sgd", -1, 5, 1, "rows [-1, 5)"},
		{uniform, "sgd", 6, 5, 1, "rows [6, 5)"},
		{uniform, "sgd", 0, 5, 0, "width 0"},
		{uniform, "sgd", 0, 1 << 40, 1, "at most"},
		{uniform, "sgd", 0, math.MaxInt64, math.MaxInt, "at most"},
		{uniform, "newton", 0, 5, 1, `optimiser "newton"`},
		{Initial{Kind: "ones"}, "sgd", 0, 5, 1, `"ones"`},
		{Initial{Kind: Uniform, A: 2, B: 1}, "sgd", 0, 5, 1, "lower bound first"},
		{Initial{Kind: Uniform, A: -math.MaxFloat64, B: math.MaxFloat64}, "sgd", 0, 5, 1, "want numbers"},
		{Initial{Kind: Normal, B: -1}, "sgd", 0, 5, 1, "standard deviation -1"},
		{Initial{Kind: Normal, A: math.NaN()}, "sgd", 0, 5, 1, "want numbers"},
	} {
		_, err := NewTable[float32]("words", c.first, optimizer.Settings{Rule: c.rule}, c.lo, c.hi, c.width)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), `"words"`) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
	if _, err := NewTable[float32]("words", Initial{}, plain, 5, 5, 3); err != nil {
		t.Errorf("an empty partition: %v", err)
	}
}

// Several goroutines may read rows that were never updated. The race detector
// checks that reads change nothing.
func TestConcurrentReads(t *testing.T) {
	table := newTable[float32](t, normal, plain, 0, 64, 3)
	want := make([]float32, 64*3)
	table.Copy(0, want)
	var readers sync.WaitGroup
	got := make([][]float32, 4)
	for i := range got {
		got[i] = make([]float32, len(want))
		readers.Go(func() { table.Copy(0, got[i]) })
	}
	readers.Wait()
	for _, x := range got {
		sameBits(t, x, want)
	}
}
