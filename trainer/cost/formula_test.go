package cost

import (
	"fmt"
	"math"
	"testing"
)

// apart are n hosts with a worker each, and k servers: on the first k of
// these, or on hosts of their own.
func apart(n, k int, own bool) (c Cluster) {
	for i := range n {
		c.Workers = append(c.Workers, fmt.Sprint("w", i))
	}
	for i := range k {
		host := fmt.Sprint("w", i)
		if own {
			host = fmt.Sprint("s", i)
		}
		c.Servers = append(c.Servers, host)
	}
	return c
}

// The closed formulas, for evenly placed owners.
func TestFormulas(t *testing.T) {
	const w, rows, r = 1e6, 1000, 1000
	for n := 1; n <= 9; n++ {
		dense := Variable{Bytes: w}
		ring := 2 * float64(n-1) / float64(n) * w
		for _, a := range []Architecture{PS, AllReduce, Hybrid} {
			if got := Predict(dense, apart(n, n, false), a); !near(got.Busiest, ring, 1e-9) || !near(got.Mean, ring, 1e-9) {
				t.Errorf("%d hosts, dense by %s: %+v, want %.0f", n, a, got, ring)
			}
		}
		for k := 1; k <= 9; k++ {
			want := max(w, float64(n)*w/float64(k))
			if got := Predict(dense, apart(n, k, true), PS); !near(got.Busiest, want, 1e-9) {
				t.Errorf("%d workers, %d servers apart: %+v, want %.0f", n, k, got, want)
			}
		}
		for _, a := range []float64{0.001, 0.1, 1} {
			sparse := Variable{Bytes: w, Rows: rows, RowBytes: r, Touched: a * rows}
			i := indexBytes(a)
			want := 2 * float64(n-1) / float64(n) * a * rows * (r + 1.5*i)
			for _, arch := range []Architecture{PS, AllReduce, Hybrid} {
				if got := Predict(sparse, apart(n, n, false), arch); !near(got.Busiest, want, 1e-9) {
					t.Errorf("%d hosts, %.3f of the rows by %s: %+v, want %.0f", n, a, arch, got, want)
				}
			}
		}
	}
}

func TestIndexBytes(t *testing.T) {
	for _, c := range []struct{ density, want float64 }{
		{1, 1}, {2, 1}, {0.5, 1}, {0.01, 1 + math.Pow(0.99, 128)}, {1e-4, 1 + math.Pow(0.9999, 128) + math.Pow(0.9999, 16384)}, {0, 9},
	} {
		if got := indexBytes(c.density); !near(got, c.want, 1e-6) {
			t.Errorf("at density %v an index has %v bytes, want %v", c.density, got, c.want)
		}
	}
}

func TestUnknown(t *testing.T) {
	dense, sparse := Variable{Bytes: 8}, Variable{Bytes: 80, Rows: 10, RowBytes: 8, Touched: 1}
	lone := Cluster{Workers: []string{"a", "b"}}
	nan, few := sparse, sparse
	nan.Touched, few.Touched = math.NaN(), 0
	for _, c := range []struct {
		v     Variable
		in    Cluster
		a     Architecture
		known bool
	}{
		{dense, lone, AllReduce, true}, {dense, lone, Hybrid, true}, {dense, lone, PS, false},
		{sparse, lone, AllReduce, true}, {sparse, lone, Hybrid, false}, {sparse, lone, PS, false},
		{nan, lone, AllReduce, false}, {few, lone, AllReduce, false},
		{dense, Cluster{}, AllReduce, false}, {dense, Cluster{Servers: []string{"a"}}, PS, false},
	} {
		if got := Predict(c.v, c.in, c.a); got.Known != c.known || !c.known && got != (Bytes{}) {
			t.Errorf("%+v in %v by %s: %+v", c.v, c.in, c.a, got)
		}
	}
}

// One host sends nothing over its link.
func TestOneHost(t *testing.T) {
	c := Cluster{Workers: []string{"", "", ""}, Servers: []string{""}}
	for _, v := range []Variable{{Bytes: 80}, {Bytes: 80, Rows: 10, RowBytes: 8, Touched: 5}} {
		for _, a := range []Architecture{PS, AllReduce, Hybrid} {
			if got := Predict(v, c, a); !got.Known || got.Busiest != 0 || got.Mean != 0 {
				t.Errorf("%+v by %s: %+v", v, a, got)
			}
		}
	}
}

// What is touched by more workers is no less, by all of them what was
// measured, and never more than there are rows.
func TestUnionGrows(t *testing.T) {
	for _, v := range []Variable{
		{Rows: 1000, Touched: 10, Union: 75}, {Rows: 1000, Touched: 10}, {Rows: 1000, Touched: 10, Union: 10}, {Rows: 1000, Touched: 1000, Union: 5},
		{Rows: 1000, Touched: 400, Union: 1e9}, {Rows: 1000, Touched: 999.5, Union: 1000}, {Rows: 1 << 50, Touched: 3, Union: 24}, {Rows: 1, Touched: 7, Union: 9},
	} {
		one, all, _ := v.touched()
		before := 0.0
		for m := 1; m <= 8; m++ {
			got := v.union(m, 8)
			if !(got >= before*(1-1e-9)) || got > min(all, float64(m)*one)*(1+1e-6) || got < one*(1-1e-9) {
				t.Errorf("%+v: %d of 8 workers touch %v rows, one fewer %v", v, m, got, before)
			}
			before = got
		}
		if want := min(all, 8*one); !near(before, want, 1e-6) {
			t.Errorf("%+v: all touch %v, want %v", v, before, want)
		}
	}
}

// With owners evenly placed, rows go to servers just where the formulas say
// that they are fewer bytes than a dense all-reduce.
func TestChooseFollowsTheBytes(t *testing.T) {
	c := apart(4, 4, false)
	routes := map[Architecture]int{}
	for _, r := range []int{1, 4, 8, 64, 512} {
		for touched := 1; touched <= 1000; touched++ {
			sparse := Variable{Bytes: 1000 * r, Rows: 1000, RowBytes: r, Touched: float64(touched)}
			dense := sparse
			dense.RowBytes = 0
			want := AllReduce
			if Predict(sparse, c, PS).Busiest < Predict(dense, c, AllReduce).Busiest {
				want = PS
			}
			got, why := Choose(sparse, c)
			if got != want {
				t.Fatalf("%d of 1000 rows of %d bytes: %s, %s", touched, r, got, why)
			}
			routes[got]++
		}
	}
	if routes[PS] < 1000 || routes[AllReduce] < 500 {
		t.Errorf("the test is one-sided: %v", routes)
	}
}

func TestChooseSaysWhy(t *testing.T) {
	c := apart(4, 4, false)
	sparse := Variable{Bytes: 51200, Rows: 100, RowBytes: 512, Touched: 3}
	full, unknown, nan := sparse, sparse, sparse
	full.Touched, unknown.Touched, nan.Touched = 100, 0, math.NaN()
	for _, test := range []struct {
		v     Variable
		c     Cluster
		route Architecture
		why   string
	}{
		{Variable{Bytes: 8}, c, AllReduce, "dense"},
		{sparse, c, PS, "rows+index 3 % of dense"},
		{full, c, AllReduce, "rows+index 100 % of dense"},
		{unknown, c, PS, "rows touched are not known"},
		{nan, c, PS, "rows touched are not known"},
		{sparse, apart(4, 0, false), AllReduce, "no servers"},
		{sparse, Cluster{Servers: []string{"a"}}, PS, "rows touched are not known"},
	} {
		if route, why := Choose(test.v, test.c); route != test.route || why != test.why {
			t.Errorf("%+v: %s, %q, want %s, %q", test.v, route, why, test.route, test.why)
		}
	}
}
