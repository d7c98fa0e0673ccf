package cost

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/plx-run/plx/trainer/random"
)

// wires counts the bytes of imaginary messages between hosts.
type wires struct{ out, in map[string]float64 }

func newWires() *wires { return &wires{map[string]float64{}, map[string]float64{}} }

func (w *wires) send(from, to string, bytes float64) {
	w.out[from] += 0 // a host that sends nothing has a link too
	w.out[to] += 0
	if from != to {
		w.out[from] += bytes
		w.in[to] += bytes
	}
}

func (w *wires) bytes() (busiest, mean float64) {
	for host := range w.out {
		through := max(w.out[host], w.in[host])
		busiest = max(busiest, through)
		mean += through / float64(len(w.out))
	}
	return busiest, mean
}

// first is the rank of the first worker of each worker's host.
func first(c Cluster) (ranks []int) {
	for _, host := range c.Workers {
		ranks = append(ranks, slices.Index(c.Workers, host))
	}
	return ranks
}

// simulateDense sends what a step of a dense variable sends, message by
// message.
func simulateDense(bytes float64, c Cluster, a Architecture) *wires {
	w := newWires()
	owners := c.Workers
	if a == PS {
		owners = c.Servers
	}
	for rank, host := range c.Workers {
		if a == PS && first(c)[rank] != rank {
			continue // the first of the host adds its gradient, and tells it the value
		}
		for _, owner := range owners {
			share := bytes / float64(len(owners))
			w.send(host, owner, share)
			w.send(owner, host, share)
		}
	}
	return w
}

// simulateRows does the same with rows: touched are those of each worker.
// Owners have contiguous ranges.
func simulateRows(v Variable, touched [][]int, c Cluster, a Architecture) *wires {
	w := newWires()
	owners, lists := c.Workers, touched
	if a != AllReduce {
		owners, lists = c.Servers, make([][]int, len(touched))
		for rank, to := range first(c) {
			lists[to] = append(lists[to], touched[rank]...)
		}
	}
	for _, host := range slices.Concat(c.Workers, c.Servers) {
		w.send(host, host, 0)
	}
	for rank, list := range lists {
		slices.Sort(list)
		list = slices.Compact(list)
		for o, owner := range owners {
			var wanted []int
			for _, row := range list {
				if row*len(owners)/v.Rows == o {
					wanted = append(wanted, row)
				}
			}
			index, rows := float64(len(encode(wanted))), float64(len(wanted)*v.RowBytes)
			w.send(c.Workers[rank], owner, index)
			w.send(owner, c.Workers[rank], index+rows)
			w.send(c.Workers[rank], owner, index+rows)
		}
	}
	return w
}

// encode writes the differences of rows.
func encode(rows []int) (b []byte) {
	for i, row := range rows {
		if i > 0 {
			row -= rows[i-1] + 1
		}
		b = binary.AppendUvarint(b, uint64(row))
	}
	return b
}

// drawCluster puts workers and servers on hosts at random.
func drawCluster(s random.Stream) Cluster {
	var c Cluster
	draw := func(i uint64, n int) int { u, _ := s.Pair(i); return int(u * float64(n)) }
	for i := range uint64(1 + draw(0, 9)) {
		c.Workers = append(c.Workers, fmt.Sprint("host", draw(10+i, 6)))
	}
	for i := range uint64(1 + draw(1, 6)) {
		c.Servers = append(c.Servers, fmt.Sprint("host", draw(100+i, 9)))
	}
	return c
}

func near(a, b, part float64) bool { return math.Abs(a-b) <= part*max(math.Abs(a), math.Abs(b)) }

func TestDenseAsSimulated(t *testing.T) {
	for i := range uint64(300) {
		c := drawCluster(random.New(1, "dense").Derive(i))
		v := Variable{Bytes: 1 << 20}
		for _, a := range []Architecture{PS, AllReduce, Hybrid} {
			got := Predict(v, c, a)
			sent := simulateDense(float64(v.Bytes), c, a)
			for _, host := range slices.Concat(c.Workers, c.Servers) {
				sent.send(host, host, 0)
			}
			busiest, mean := sent.bytes()
			if !got.Known || !near(got.Busiest, busiest, 1e-9) || !near(got.Mean, mean, 1e-9) {
				t.Errorf("%v by %s: %+v, simulated %.0f, mean %.0f", c, a, got, busiest, mean)
			}
			if through := max(sent.out[got.Host], sent.in[got.Host]); !near(through, busiest, 1e-9) {
				t.Errorf("%v by %s: %s is not the busiest", c, a, got.Host)
			}
		}
	}
}

// drawRows draws so many words of a text for each worker: Zipf with an
// exponent, or evenly with 0; ids are in no order.
func drawRows(s random.Stream, rows, workers, words int, exponent float64) [][]int {
	sums := make([]float64, rows)
	total := 0.0
	for i := range sums {
		total += math.Pow(float64(i+1), -exponent)
		sums[i] = total
	}
	touched := make([][]int, workers)
	for rank := range touched {
		for i := range uint64(words) {
			u, _ := s.Derive(uint64(rank)).Pair(i)
			word, _ := slices.BinarySearch(sums, u*total)
			touched[rank] = append(touched[rank], min(word, rows-1)*7919%rows)
		}
		slices.Sort(touched[rank])
		touched[rank] = slices.Compact(touched[rank])
	}
	return touched
}

func union(touched [][]int) int {
	all := slices.Concat(touched...)
	slices.Sort(all)
	return len(slices.Compact(all))
}

// With one worker per host the prediction is very near; with more it depends
// on how fast rows add up, which is a guess.
func TestRowsAsSimulated(t *testing.T) {
	for i := range uint64(120) {
		s := random.New(2, "rows").Derive(i)
		c := drawCluster(s)
		v := Variable{Rows: 20_000, RowBytes: 64, Bytes: 20_000 * 64}
		u, exponent := s.Pair(1000)
		touched := drawRows(s.Derive(5), v.Rows, len(c.Workers), 100+int(u*20_000), exponent)
		for _, list := range touched {
			v.Touched += float64(len(list)) / float64(len(touched))
		}
		v.Union = float64(union(touched))
		for _, a := range []Architecture{PS, AllReduce, Hybrid} {
			got := Predict(v, c, a)
			busiest, mean := simulateRows(v, touched, c, a).bytes()
			bound := 0.12
			if slices.Max(newLinks(c).workers) == 1 || a == AllReduce {
				bound = 0.05 // the workers do not touch equally many rows
			}
			if !got.Known || !near(got.Busiest, busiest, bound) || !near(got.Mean, mean, bound) {
				t.Errorf("%v by %s, %.0f rows, exponent %.2f: %+v, simulated %.0f, mean %.0f", c, a, v.Touched, exponent, got, busiest, mean)
			}
		}
	}
}
