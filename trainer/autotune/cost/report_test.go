package cost

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// model returns a report over the given number of steps for a language model
// on four hosts, each with one worker and one server.
func model(steps int) Report {
	hosts := []string{"w0", "w1", "w2", "w3"}
	r := Report{Cluster: Cluster{Workers: hosts, Servers: hosts}, Steps: steps}
	for _, v := range []struct {
		Variable
		sent float64
	}{
		{Variable{Name: "embedding", Bytes: 51_200_000, Rows: 100_000, RowBytes: 512, Touched: 3211}, 2.72e6},
		{Variable{Name: "lstm/layer1/kernel/gates", Bytes: 2_097_152, Rows: 512}, 3.46e6},
		{Variable{Name: "softmax", Bytes: 51_200_000, Rows: 100_000, Touched: 900}, 84.5e6},
		{Variable{Name: "types", Bytes: 4000, Rows: 1000, RowBytes: 4, Touched: 1000}, 9.08e3},
		{Variable{Name: "later", Bytes: 4000, Rows: 1000, RowBytes: 4}, 0},
	} {
		v.Route = AllReduce
		if v.Sparse() {
			v.Route, _ = Choose(v.Variable)
		}
		r.Variables = append(r.Variables, v.Variable)
		for worker := range hosts {
			for holder := range hosts {
				each := float64(steps) * v.sent / float64(2*(len(hosts)-1))
				if v.Route == AllReduce {
					holder += len(hosts)
				}
				r.Exchanged = append(r.Exchanged, Exchange{Variable: len(r.Variables) - 1, Worker: worker, Holder: holder, Sent: each, Received: each})
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

func TestLines(t *testing.T) {
	expect(t, model(50).Lines(), `
bytes per step at the busiest link, measured over 50 steps: 4 workers, 4 servers, 4 hosts
variable                  size     rows touched  bytes    by
embedding                 51.2 MB  3211 3.2 %    2.72 MB  ps
lstm/layer1/kernel/gates  2.10 MB  -             3.46 MB  allreduce
softmax                   51.2 MB  900 0.9 %     84.5 MB  allreduce
types                     4.00 kB  1000 100 %    9.08 kB  allreduce
later                     4.00 kB  -             0 B      ps
total                     105 MB                 90.7 MB  busiest: w0
mean over hosts: 90.7 MB
`)
}

// The load of a network link is the larger of its two directions. Bytes inside
// a host do not count.
func TestBusiestLinkCountsLargerDirection(t *testing.T) {
	r := Report{Cluster: Cluster{Workers: []string{"a", "b", "c"}, Servers: []string{"c"}}, Steps: 2,
		Variables: []Variable{{Name: "w", Bytes: 8, Route: PS}}}
	for worker, bytes := range []float64{100, 300, 5000} {
		r.Exchanged = append(r.Exchanged, Exchange{Worker: worker, Sent: bytes, Received: bytes / 2})
	}
	_, all := r.measured()
	if host, most, mean := all.busiest(r.Cluster.Hosts()); host != "c" || most != 200 || mean != (50.0+150+200)/3 {
		t.Errorf("%s has %v bytes, the mean is %v", host, most, mean)
	}
}

func TestNotes(t *testing.T) {
	expect(t, model(50).Notes(), `
softmax looks sparse: 0.9 % of its gradient's rows are not zero; an Embedding would send these rows only
types is sparse, yet a worker touches 100 % of its rows; a dense variable would send less
`)
}

// Notes names a server that exchanges much more than the others, and the
// variable that causes it. Bytes inside the server's host count here.
func TestNotesNameHotServer(t *testing.T) {
	r := model(10)
	r.Variables[2].Touched, r.Variables[3].Touched = 0, 0
	if notes := r.Notes(); len(notes) > 0 {
		t.Errorf("nothing is hot: %q", notes)
	}
	r.Exchanged = append(r.Exchanged, Exchange{Variable: 0, Worker: 2, Holder: 2, Sent: 5e7, Received: 5e7},
		Exchange{Variable: 5, Worker: 2, Holder: 2, Sent: 2e7})
	expect(t, r.Notes(), `
ps:2 on w2 is hot: 15.6 MB per step, the others have 3.63 MB on average; 87 % of it is embedding
`)
	r.Cluster.Servers = r.Cluster.Servers[:1]
	if notes := r.hotNotes(); len(notes) > 0 {
		t.Errorf("a single server is hot: %q", notes)
	}
}

func TestSize(t *testing.T) {
	for bytes, want := range map[float64]string{
		0: "0 B", 1: "1 B", 999.4: "999 B", 999.5: "1.00 kB", 1234: "1.23 kB", 9994: "9.99 kB", 9996: "10.0 kB", 99_949: "99.9 kB", 99_960: "100 kB",
		999_499: "999 kB", 999_500: "1.00 MB", 51.2e6: "51.2 MB", 1e9: "1.00 GB", 3e12: "3.00 TB", 1e15: "1.00 PB", 1e18: "1.00 EB", 12e21: "12000 EB",
	} {
		if got := size(bytes); got != want {
			t.Errorf("size of %v: %q, want %q", bytes, got, want)
		}
	}
}

// For any names, the report is reproducible, and its lines are short and have
// no control characters.
func FuzzReport(f *testing.F) {
	f.Add("words", "a", 1000, 100, 4, 50.0, 3, 2, uint8(3), uint32(15))
	f.Add("\x1b[31m\n\t\xff"+strings.Repeat("long ", 50), "\x00"+strings.Repeat("h", 99), 1<<62, 1, 1<<40, math.NaN(), 1, 1<<30, uint8(16), uint32(1<<31))
	f.Add("", "", -1, -1, -1, -1.0, 0, 0, uint8(255), uint32(0))
	f.Fuzz(func(t *testing.T, name, host string, bytes, rows, rowBytes int, touched float64, holder, steps int, tasks uint8, sent uint32) {
		c := Cluster{}
		for i := range 1 + int(tasks%5) {
			c.Workers = append(c.Workers, fmt.Sprint(host, i%3))
		}
		for i := range int(tasks / 5 % 5) {
			c.Servers = append(c.Servers, fmt.Sprint(host, i))
		}
		v := Variable{Name: name, Bytes: bytes, Rows: rows, RowBytes: rowBytes, Touched: touched}
		v.Route, _ = Choose(v)
		r := Report{Cluster: c, Variables: []Variable{v, v}, Steps: max(steps, 1)}
		for i := range 3 {
			at := int(uint(holder) % uint(len(c.Servers)+len(c.Workers)))
			r.Exchanged = append(r.Exchanged, Exchange{Variable: i, Worker: at % len(c.Workers), Holder: at, Sent: float64(sent), Received: float64(i)})
		}
		lines, again := append(r.Lines(), r.Notes()...), append(r.Lines(), r.Notes()...)
		for i, line := range lines {
			if utf8.RuneCountInString(line) > 140 || strings.ContainsFunc(line, unicode.IsControl) || line != again[i] || strings.Contains(line, "NaN") {
				t.Errorf("%q, again %q", line, again[i])
			}
		}
	})
}
