package autotune

import (
	"bytes"
	"slices"
	"sync"

	"github.com/plx-run/plx/trainer/autotune/partition"
	"github.com/plx-run/plx/trainer/exchange"
	"github.com/plx-run/plx/trainer/layout"
)

// statistics are what a worker counts between two meetings.
type statistics struct {
	variables, holders int
	counts             []*partition.Histogram // by table: rows that the worker pulled
	touched            []float64              // by table: their number
	before             []float64              // bytes exchanged until the last meeting; nil: none

	mu     sync.Mutex
	filled []float64 // by dense variable: part of its gradient's rows that are not zero; 0: not looked at
}

// The tuner looks for rows of zeros in the gradients of step filledAt of this
// run, in those with at least manyRows rows. This takes about as long as reading
// the gradient once.
const (
	filledAt = 2
	manyRows = 256
)

// totals are the statistics of all workers. Its slices are parts of all, which
// the workers add up.
type totals struct {
	all     []float64
	counts  [][]float64 // by table and bucket
	touched []float64   // by table
	filled  []float64   // by variable
}

func newStatistics(c *Config) *statistics {
	d := &c.Declaration
	s := &statistics{
		variables: len(d.Variables), holders: len(d.Holders),
		touched: make([]float64, len(c.Least)), filled: make([]float64, len(d.Variables)),
	}
	for i := range c.Least {
		s.counts = append(s.counts, partition.NewHistogram(c.table(i).Shape[0]))
	}
	return s
}

func (s *statistics) pulled(table int, rows []int64) {
	s.counts[table].Add(rows)
	s.touched[table] += float64(len(rows))
}

// fills notes how much of a dense variable's gradient is not zero.
func (s *statistics) fills(variable int, v layout.Variable, gradient []byte) {
	if len(v.Shape) < 2 || v.Shape[0] < manyRows {
		return
	}
	width := len(gradient) / v.Shape[0]
	zeros, full := make([]byte, width), 0
	for row := range v.Shape[0] {
		if !bytes.Equal(gradient[row*width:(row+1)*width], zeros) {
			full++
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.filled[variable] = float64(full) / float64(v.Shape[0])
}

// take returns what the worker counted since take was called last.
func (s *statistics) take() totals {
	n := s.room()
	for i, h := range s.counts {
		copy(n.counts[i], h.Counts())
		clear(h.Counts())
	}
	copy(n.touched, s.touched)
	clear(s.touched)
	copy(n.filled, s.filled)
	return n
}

// room returns totals of zeros.
func (s *statistics) room() (n totals) {
	sizes := []int{len(s.touched), len(s.filled)}
	for _, h := range s.counts {
		sizes = append(sizes, len(h.Counts()))
	}
	total := 0
	for _, size := range sizes {
		total += size
	}
	n.all = make([]float64, total)
	rest := n.all
	var cuts [][]float64
	for _, size := range sizes {
		cuts, rest = append(cuts, rest[:size]), rest[size:]
	}
	n.touched, n.filled, n.counts = cuts[0], cuts[1], cuts[2:]
	return n
}

// exchanged are the bytes that this worker sent and received since exchanged was
// called last: by variable, the loss last, and for each of them by holder.
// volumes are those since the start.
func (s *statistics) exchanged(volumes []exchange.Volume) []float64 {
	now := make([]float64, 2*s.holders*(s.variables+1))
	for _, v := range volumes {
		if v.Holder >= 0 { // others stay inside the host
			at := 2 * (v.Variable*s.holders + v.Holder)
			now[at], now[at+1] = float64(v.Sent), float64(v.Received)
		}
	}
	since := slices.Clone(now)
	for i, bytes := range s.before {
		since[i] -= bytes
	}
	s.before = now
	return since
}
