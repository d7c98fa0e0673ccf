package cost

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// model is a language model on four hosts.
func model() Report {
	r := Report{
		Cluster: apart(4, 4, false),
		Variables: []Variable{
			{Name: "embedding", Bytes: 51_200_000, Rows: 100_000, RowBytes: 512, Touched: 3211, Union: 9000},
			{Name: "lstm/layer1/kernel/gates", Bytes: 2_097_152, Rows: 512},
			{Name: "softmax", Bytes: 51_200_000, Rows: 100_000, Touched: 900},
			{Name: "types", Bytes: 4000, Rows: 1000, RowBytes: 4, Touched: 1000, Union: 1000},
			{Name: "later", Bytes: 4000, Rows: 1000, RowBytes: 4},
		},
	}
	for _, v := range r.Variables {
		route, why := Choose(v, r.Cluster)
		r.Routes, r.Why = append(r.Routes, route), append(r.Why, why)
	}
	return r
}

// asPredicted are exchanges of so many steps in which everything took what was
// predicted, times a factor; owners are workers or servers by the route.
func (r Report) asPredicted(steps int, factor float64) Report {
	r.Steps = steps
	n := len(r.Cluster.Workers)
	for i := range r.Variables {
		if b := Predict(r.Variables[i], r.Cluster, r.Routes[i]); b.Known {
			for worker := range n {
				for owner := range n {
					each := factor * float64(steps) * b.Busiest / float64(2*(n-1))
					o := owner
					if r.Routes[i] == AllReduce {
						o += len(r.Cluster.Servers)
					}
					r.Exchanged = append(r.Exchanged, Exchange{Variable: i, Worker: worker, Owner: o, Sent: each, Received: each})
				}
			}
		}
	}
	return r
}

func expect(t *testing.T, got []string, want string) {
	t.Helper()
	if all := strings.Join(got, "\n"); all != strings.Trim(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", all, strings.Trim(want, "\n"))
	}
}

func TestLinesBeforeTheFirstStep(t *testing.T) {
	expect(t, model().Lines(), `
bytes per step at the busiest link, predicted: 4 workers, 4 servers, 4 hosts
variable                 size   rows touched       ps allreduce   hybrid        measured  by        why
embedding             51.2 MB     3211 3.2 %  2.47 MB   2.47 MB  2.47 MB                  ps        rows+index 3.2 % of dense
…layer1/kernel/gates  2.10 MB              -  3.15 MB   3.15 MB  3.15 MB                  allreduce dense
softmax               51.2 MB      900 0.9 %  76.8 MB   76.8 MB  76.8 MB                  allreduce dense
types                 4.00 kB     1000 100 %  8.25 kB   8.25 kB  8.25 kB                  allreduce rows+index 138 % of dense
later                 4.00 kB              -        -         -        -                  ps        rows touched are not known
total                  105 MB                 82.4 MB   82.4 MB  82.4 MB
mean over hosts: predicted 82.4 MB
`)
}

func TestLinesWhenMeasured(t *testing.T) {
	expect(t, model().asPredicted(50, 1.1).Lines(), `
bytes per step at the busiest link, predicted: 4 workers, 4 servers, 4 hosts; measured over 50 steps
variable                 size   rows touched       ps allreduce   hybrid        measured  by        why
embedding             51.2 MB     3211 3.2 %  2.47 MB   2.47 MB  2.47 MB   2.72 MB +10 %  ps        rows+index 3.2 % of dense
…layer1/kernel/gates  2.10 MB              -  3.15 MB   3.15 MB  3.15 MB   3.46 MB +10 %  allreduce dense
softmax               51.2 MB      900 0.9 %  76.8 MB   76.8 MB  76.8 MB   84.5 MB +10 %  allreduce dense
types                 4.00 kB     1000 100 %  8.25 kB   8.25 kB  8.25 kB   9.08 kB +10 %  allreduce rows+index 138 % of dense
later                 4.00 kB              -        -         -        -             0 B  ps        rows touched are not known
total                  105 MB                 82.4 MB   82.4 MB  82.4 MB   90.7 MB +10 %            busiest: w0
mean over hosts: predicted 82.4 MB, measured 90.7 MB +10 %
`)
}

func TestNotes(t *testing.T) {
	expect(t, model().Notes(), `
softmax looks sparse: 0.9 % of its gradient's rows are not zero; an Embedding would send 694 kB instead of 76.8 MB
types is sparse, yet 100 % of its rows are touched: it sends 8.25 kB, a dense variable would send 6.00 kB
`)
}

// A server that does much more than the others is named, with the variable
// that makes it so; what a host keeps to itself counts as well.
func TestHotServer(t *testing.T) {
	r := model().asPredicted(10, 1)
	r.Variables[2].Touched, r.Variables[3].Touched = 0, 0
	if notes := r.Notes(); len(notes) > 0 {
		t.Errorf("nothing is hot: %q", notes)
	}
	r.Exchanged = append(r.Exchanged, Exchange{Variable: 0, Worker: 2, Owner: 2, Sent: 5e7, Received: 5e7},
		Exchange{Variable: 5, Worker: 2, Owner: 2, Sent: 2e7})
	expect(t, r.Notes(), `
ps:2 on w2 is hot: 15.3 MB per step, the others have 3.30 MB on average; 87 % of it is embedding
`)
	r.Cluster.Servers = r.Cluster.Servers[:1]
	if notes := r.hotNotes(); len(notes) > 0 {
		t.Errorf("a single server is hot: %q", notes)
	}
}

// Few servers for many workers: rows would be better off with the workers.
func TestTooFewServers(t *testing.T) {
	r := model()
	r.Cluster, r.Variables = apart(8, 1, true), r.Variables[:1]
	expect(t, r.Notes(), `
embedding loads the link of s0 with 13.2 MB; with workers as owners, or more servers, the busiest would carry 2.89 MB
`)
}

func TestSize(t *testing.T) {
	for bytes, want := range map[float64]string{
		0: "0 B", 1: "1 B", 999.4: "999 B", 999.5: "1.00 kB", 1234: "1.23 kB", 9994: "9.99 kB", 9996: "10.0 kB", 99_949: "99.9 kB", 99_960: "100 kB",
		999_499: "999 kB", 999_500: "1.00 MB", 51.2e6: "51.2 MB", 1e9: "1.00 GB", 3e12: "3.00 TB", 1e15: "1.00 PB", 1e18: "1.00 EB", 12e21: "12000 EB",
		math.Inf(1): "-",
	} {
		if got := size(bytes); got != want {
			t.Errorf("size of %v: %q, want %q", bytes, got, want)
		}
	}
	for _, c := range []struct {
		measured, predicted float64
		want                string
	}{{1100, 1000, "1.10 kB +10 %"}, {900, 1000, "900 B -10 %"}, {5, 0, "5 B"}, {1e6, 1e3, "1.00 MB x1000"}, {0, 10, "0 B -100 %"}} {
		if got := compare(c.measured, c.predicted); got != c.want {
			t.Errorf("%v for %v: %q, want %q", c.measured, c.predicted, got, c.want)
		}
	}
}

// Whatever it is told, the report has lines of a bounded length without
// control characters, and the same ones each time.
func FuzzReport(f *testing.F) {
	f.Add("words", "a", 1000, 100, 4, 50.0, 80.0, 3, 2, uint8(3), 1.5)
	f.Add("\x1b[31m\n\xff"+strings.Repeat("long ", 50), "\x00"+strings.Repeat("h", 99), 1<<62, 1, 1<<40, math.NaN(), math.Inf(1), -1, 1<<30, uint8(0), math.NaN())
	f.Add("", "", -1, -1, -1, -1.0, -1.0, 0, 0, uint8(255), math.Inf(-1))
	f.Fuzz(func(t *testing.T, name, host string, bytes, rows, rowBytes int, touched, union float64, owner, steps int, tasks uint8, sent float64) {
		c := Cluster{}
		for i := range int(tasks % 5) {
			c.Workers = append(c.Workers, fmt.Sprint(host, i%3))
		}
		for i := range int(tasks / 5 % 5) {
			c.Servers = append(c.Servers, fmt.Sprint(host, i))
		}
		v := Variable{Name: name, Bytes: bytes, Rows: rows, RowBytes: rowBytes, Touched: touched, Union: union}
		route, why := Choose(v, c)
		r := Report{Cluster: c, Variables: []Variable{v, v}, Routes: []Architecture{route}, Why: []string{why}, Steps: steps}
		for i := range 4 {
			r.Exchanged = append(r.Exchanged, Exchange{Variable: i - 1, Worker: owner % 7, Owner: owner, Sent: sent, Received: touched})
		}
		lines, again := append(r.Lines(), r.Notes()...), append(r.Lines(), r.Notes()...)
		for i, line := range lines {
			if utf8.RuneCountInString(line) > 140 || strings.ContainsFunc(line, unicode.IsControl) || line != again[i] || strings.Contains(line, "NaN") {
				t.Errorf("%q, again %q", line, again[i])
			}
		}
	})
}
