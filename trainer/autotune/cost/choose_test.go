package cost

import (
	"math"
	"testing"
)

func near(a, b, part float64) bool { return math.Abs(a-b) <= part*max(math.Abs(a), math.Abs(b)) }

func TestIndexBytes(t *testing.T) {
	for _, c := range []struct{ density, want float64 }{
		{1, 1}, {2, 1}, {0.5, 1}, {0.01, 1 + math.Pow(0.99, 128)}, {1e-4, 1 + math.Pow(0.9999, 128) + math.Pow(0.9999, 16384)}, {0, 9},
	} {
		if got := indexBytes(c.density); !near(got, c.want, 1e-6) {
			t.Errorf("at density %v an index has %v bytes, want %v", c.density, got, c.want)
		}
	}
}

// Choose picks servers exactly if the messages of one step, added up by host,
// have fewer bytes than a dense all-reduce.
func TestChooseTakesRouteWithFewerBytes(t *testing.T) {
	const hosts, rows = 4, 1000
	routes := map[Route]int{}
	for _, r := range []int{1, 4, 8, 64, 512} {
		for touched := 1; touched <= rows; touched++ {
			away := float64(touched) * (hosts - 1) / hosts // used rows that lie on the servers of other hosts
			index := indexBytes(float64(touched) / rows)
			// Bytes that leave a host: requests and gradients of its worker,
			// and rows that its server sends to the other hosts' workers.
			out := away*(index+index+float64(r)) + away*(index+float64(r))
			dense := 2.0 * (hosts - 1) / hosts * rows * float64(r)
			want := AllReduce
			if out < dense {
				want = PS
			}
			v := Variable{Bytes: rows * r, Rows: rows, RowBytes: r, Touched: float64(touched)}
			got, why := Choose(v)
			if got != want {
				t.Fatalf("%d of %d rows of %d bytes: %s, %s", touched, rows, r, got, why)
			}
			routes[got]++
		}
	}
	if routes[PS] < 1000 || routes[AllReduce] < 500 {
		t.Errorf("the test is one-sided: %v", routes)
	}
}

func TestChooseReturnsReason(t *testing.T) {
	sparse := Variable{Bytes: 51200, Rows: 100, RowBytes: 512, Touched: 3}
	full, unknown, nan := sparse, sparse, sparse
	full.Touched, unknown.Touched, nan.Touched = 100, 0, math.NaN()
	for _, test := range []struct {
		v     Variable
		route Route
		why   string
	}{
		{sparse, PS, "rows+index 3 % of dense"},
		{full, AllReduce, "rows+index 100 % of dense"},
		{unknown, PS, "rows touched are not known"},
		{nan, PS, "rows touched are not known"},
	} {
		if route, why := Choose(test.v); route != test.route || why != test.why {
			t.Errorf("%+v: %s, %q, want %s, %q", test.v, route, why, test.route, test.why)
		}
	}
}
