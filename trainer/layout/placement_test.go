package layout

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/policy"
)

func floats(elements ...int) (vs []Variable) {
	for i, n := range elements {
		vs = append(vs, Variable{Name: fmt.Sprint("v", i), Dtype: Float32, Shape: []int{n}})
	}
	return vs
}

func TestPlaceServers(t *testing.T) {
	for _, c := range []struct {
		variables      []Variable
		holders, limit int
		want           []Piece
	}{
		{floats(), 2, 100, nil},
		{floats(5), 3, 100, []Piece{{0, 0, 0, 5}}},
		{floats(1, 1, 1, 1), 2, 100, []Piece{{0, 0, 0, 1}, {1, 1, 0, 1}, {2, 0, 0, 1}, {3, 1, 0, 1}}},
		{floats(10, 1, 1, 1), 2, 100, []Piece{{0, 0, 0, 10}, {1, 1, 0, 1}, {2, 1, 0, 1}, {3, 1, 0, 1}}},
		{floats(3000), 2, 4096, []Piece{{0, 0, 0, 1024}, {0, 1, 1024, 1976}}},
		{floats(100, 5000), 3, 4096, []Piece{{0, 0, 0, 100}, {1, 1, 0, 1024}, {1, 2, 1024, 2048}, {1, 0, 3072, 1928}}},
		{floats(1500), 4, 4096, []Piece{{0, 0, 0, 1024}, {0, 1, 1024, 476}}},
		{[]Variable{{Name: "t", Dtype: Float32, Shape: []int{7, 100}, Sparse: &Sparse{}}}, 3, 100,
			[]Piece{{0, 0, 0, 2}, {0, 1, 2, 2}, {0, 2, 4, 3}}},
	} {
		if got := placeServers(c.variables, c.holders, c.limit, true); !slices.Equal(got, c.want) {
			t.Errorf("%v on %d: got %v, want %v", c.variables, c.holders, got, c.want)
		}
	}
}

func TestBuckets(t *testing.T) {
	vs := floats(100, 2000, 10, 10, 300, 5000)
	vs[2].Sparse = &Sparse{}
	if got := fmt.Sprint(Buckets(vs, 4*400)); got != "[[5] [4 3] [1] [0]]" {
		t.Errorf("got %s", got)
	}
	if got := fmt.Sprint(Buckets(vs, 0)); got != "[[5 4 3 1 0]]" {
		t.Errorf("got %s", got)
	}
}

// For every placement, each element has one shard holder, blocks are not
// divided, and no worker has much more than its share.
func TestPlaceWorkersIsEven(t *testing.T) {
	random := rand.New(rand.NewPCG(8, 9))
	for range 200 {
		var sizes []int
		for range 1 + random.IntN(12) {
			sizes = append(sizes, 1+random.IntN(1<<(1+random.IntN(16))))
		}
		holders, bucket := 1+random.IntN(9), 4<<random.IntN(20)
		d := Declaration{VirtualWorkers: holders, Workers: ranges(holders, holders), Variables: floats(sizes...), BucketBytes: bucket,
			Optimizer: example(1, 1).Optimizer, StartMillis: 1, SilenceMillis: 1}
		if random.IntN(2) == 0 {
			d.Variables[0].Shape, d.Variables[0].Sparse = []int{sizes[0], 3}, &Sparse{}
		}
		if err := d.AssignPieces(policy.AllReduce, 0, 0); err != nil {
			t.Fatal(err)
		}
		if err := d.Check(); err != nil {
			t.Fatalf("%v: %v", sizes, err)
		}
		loads, total := make([]int, len(d.Holders)), 0
		for _, p := range d.Pieces {
			n := p.Count * d.Variables[p.Variable].UnitBytes()
			loads[p.Holder] += n
			total += n
		}
		largest := 0
		for _, b := range Buckets(d.Variables, bucket) {
			size := 0
			for _, v := range b {
				size += d.Variables[v].NumElements() * 4
			}
			largest = max(largest, size/holders+4*BlockElements)
		}
		if most := total/holders + 2*largest + 3*4; slices.Max(loads) > most+total/holders {
			t.Errorf("%v over %d: loads %v, want at most about %d", sizes, holders, loads, most)
		}
	}
}

func TestPlaceSetsHolders(t *testing.T) {
	for _, c := range []struct {
		a       policy.Architecture
		sparse  bool
		servers int
		want    string
	}{
		{policy.Servers, true, 1, "[ps:0]"},
		{policy.Servers, false, 5, "[ps:0 ps:1 ps:2 ps:3]"}, // each of four servers has one variable, and the fifth has none
		{policy.AllReduce, false, 3, "[worker:0 worker:1]"},
		{policy.Hybrid, true, 1, "[ps:0 worker:0 worker:1]"},
		{policy.Hybrid, false, 2, "[worker:0 worker:1]"},
	} {
		d := example(2, 2)
		if c.sparse {
			d = mixed(2, 2)
		}
		if err := d.AssignPieces(c.a, c.servers, 1<<20); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(d.Holders); got != c.want {
			t.Errorf("%s: shard holders %s, want %s", c.a, got, c.want)
		}
		if err := d.Check(); err != nil {
			t.Error(err)
		}
		for _, p := range d.Pieces {
			onServer := d.Holders[p.Holder].Role == cluster.PS
			if c.a == policy.Hybrid && onServer != (d.Variables[p.Variable].Sparse != nil) {
				t.Errorf("hybrid: %+v is on %s", p, d.Holders[p.Holder])
			}
		}
	}
	none := Declaration{VirtualWorkers: 1, Workers: ranges(1, 1)}
	if err := none.AssignPieces(policy.AllReduce, 0, 0); err != nil || len(none.Holders) != 1 {
		t.Errorf("without variables: %v, %v", none.Holders, err)
	}
	for _, a := range []policy.Architecture{policy.Servers, policy.Hybrid} {
		d := mixed(2, 2)
		if err := d.AssignPieces(a, 0, 0); err == nil {
			t.Errorf("%s without servers: accepted", a)
		}
	}
}
