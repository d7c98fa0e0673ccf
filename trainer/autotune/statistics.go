package autotune

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/plx-run/plx/trainer/autotune/cost"
	"github.com/plx-run/plx/trainer/autotune/partition"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/exchange/client"
	"github.com/plx-run/plx/trainer/layout"
)

// statistics are the counts that one worker collects between two meetings,
// where the workers sum them.
type statistics struct {
	variables, holders int                    // numbers of variables and of shard holders
	counts             []*partition.Histogram // by table: number of requests of this worker for rows of each bucket (a range of rows) since the last meeting
	touched            []float64              // by table: number of rows that this worker requested since the workers last met to sum their counts
	before             []float64              // bytes that this worker exchanged from the start until the last meeting of the workers, in the layout of exchanged; nil before the first meeting

	mu     sync.Mutex
	filled []float64 // by variable: fraction of gradient rows that are not zero; 0 if it was not measured
}

// In step filledAt of this run, the tuner counts the zero rows of dense
// gradients. It skips gradients with fewer than manyRows rows. The count takes
// about as long as reading the gradient once.
const (
	filledAt = 2
	manyRows = 256
)

// totals are the sums of all workers' statistics since the workers last met to
// sum them.
type totals struct {
	counts  [][]float64 // by table and bucket of rows: how often rows were requested
	touched []float64   // by table: number of rows requested
	filled  []float64   // by variable: sum over all workers of the fraction of gradient rows that are not zero
}

func newStatistics(c *Config) *statistics {
	d := &c.Declaration
	s := &statistics{
		variables: len(d.Variables), holders: len(d.Holders),
		touched: make([]float64, len(c.Least)), filled: make([]float64, len(d.Variables)),
	}
	for _, table := range d.Variables[len(d.Variables)-len(c.Least):] {
		s.counts = append(s.counts, partition.NewHistogram(table.Shape[0]))
	}
	return s
}

// fills measures which fraction of the rows in a dense variable's gradient is
// not zero.
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

// take returns the counts since its last call as one vector, and resets them.
// The workers then sum these vectors.
func (s *statistics) take() []float64 {
	all := slices.Concat(s.touched, s.filled)
	clear(s.touched)
	for _, h := range s.counts {
		all = append(all, h.Counts()...)
		clear(h.Counts())
	}
	return all
}

// split is the inverse of take: it splits the summed vector into named counts.
func (s *statistics) split(all []float64) (n totals) {
	n.touched, all = all[:len(s.touched)], all[len(s.touched):]
	n.filled, all = all[:len(s.filled)], all[len(s.filled):]
	for _, h := range s.counts {
		n.counts, all = append(n.counts, all[:len(h.Counts())]), all[len(h.Counts()):]
	}
	return n
}

// exchanged returns the bytes that this worker has sent and received since the
// last call. For each variable, and last for the loss, the result has two
// numbers per shard holder: bytes sent and received. volumes has the bytes
// since the start.
func (s *statistics) exchanged(volumes []client.Volume) []float64 {
	now := make([]float64, 2*s.holders*(s.variables+1))
	for _, v := range volumes {
		if v.Holder >= 0 { // A negative Holder means a task that sums gradients on this host.
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

// mostListed is the number of variables that get a line of their own in the
// report: the largest variables. All others share one line.
const mostListed = 20

// touched returns, by table, the mean number of rows that one worker used in a
// step. sum has the counts of all workers in the last window steps.
func (c *Config) touched(sum totals, window int) []float64 {
	touched := make([]float64, len(sum.touched))
	for i, n := range sum.touched {
		touched[i] = n / float64(window*len(c.Declaration.Workers))
	}
	return touched
}

// describe returns variable i in the form that package cost expects.
func (c *Config) describe(i int, touched float64) cost.Variable {
	d := &c.Declaration
	v := cost.Variable{Name: d.Variables[i].Name, Route: cost.AllReduce, Bytes: d.Variables[i].Bytes(), Touched: touched}
	if shape := d.Variables[i].Shape; len(shape) > 0 {
		v.Rows = shape[0]
	}
	if d.Variables[i].Sparse != nil {
		v.RowBytes = d.Variables[i].UnitBytes()
	}
	if slices.ContainsFunc(d.Pieces, func(p layout.Piece) bool { return p.Variable == i && d.Holders[p.Holder].Role == cluster.PS }) {
		v.Route = cost.PS
	}
	return v
}

// report logs the bytes that were transferred in the last window steps. all
// joins one slice of each worker, by rank. [statistics.exchanged] describes
// the layout of such a slice.
func (c *Config) report(window int, sum totals, all []float64) {
	if len(c.Cluster.Hosts()) < 2 {
		return
	}
	r, line := c.listed(window, sum)
	holders := len(c.Declaration.Holders)
	each := 2 * holders * len(line)
	for at := 0; at < len(all); at += 2 {
		r.Exchanged = append(r.Exchanged, cost.Exchange{
			Variable: line[at%each/(2*holders)], Worker: at / each, Holder: c.holder(at % (2 * holders) / 2),
			Sent: all[at], Received: all[at+1],
		})
	}
	c.log(r.Lines())
	c.log(r.Notes())
}

// listed prepares the report: the largest variables get entries of their own,
// and all others share one entry. line[i] is the index of the entry of
// variable i; the last element of line is for the loss.
func (c *Config) listed(window int, sum totals) (r cost.Report, line []int) {
	r.Cluster, r.Steps = c.Cluster, window
	var all []cost.Variable
	tables := len(sum.filled) - len(c.Least)
	for i, part := range sum.filled[:tables] {
		v := c.describe(i, 0)
		v.Touched = part / float64(len(c.Declaration.Workers)) * float64(v.Rows)
		all = append(all, v)
	}
	for i, touched := range c.touched(sum, window) {
		all = append(all, c.describe(tables+i, touched))
	}
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(all[b].Bytes, all[a].Bytes) })
	line = make([]int, len(all)+1)
	rest := 0 // total bytes of the variables that share the last entry
	for at, i := range order {
		if line[i] = min(at, mostListed); at < mostListed {
			r.Variables = append(r.Variables, all[i])
		} else {
			rest += all[i].Bytes
		}
	}
	if more := len(all) - mostListed; more > 0 {
		r.Variables = append(r.Variables, cost.Variable{Name: fmt.Sprintf("(%d more)", more), Route: r.Variables[0].Route, Bytes: rest})
	}
	line[len(all)] = len(r.Variables)
	return r, line
}

// holder returns the number of a shard holder in package cost: servers come
// first, then workers.
func (c *Config) holder(index int) int {
	t := c.Declaration.Holders[index]
	if t.Role == cluster.PS {
		return t.Index
	}
	return len(c.Cluster.Servers) + t.Index
}

func (c *Config) log(lines []string) {
	for _, line := range lines {
		c.Logf(cluster.VerboseLevel, "%s", line)
	}
}
