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

// statistics are what a worker counts between two meetings.
type statistics struct {
	variables, holders int                    // numbers of variables and of shard holders
	counts             []*partition.Histogram // by table: how often the worker pulled rows since the last meeting
	touched            []float64              // by table: number of rows pulled since the last meeting
	before             []float64              // bytes exchanged up to the last meeting; nil before the first

	mu     sync.Mutex
	filled []float64 // by variable: fraction of its gradient's rows that are not zero; 0 if not looked at
}

// The tuner looks for rows of zeros in the gradients of step filledAt of this
// run, in those with at least manyRows rows. This takes about as long as reading
// the gradient once.
const (
	filledAt = 2
	manyRows = 256
)

// totals are the statistics of all workers.
type totals struct {
	counts  [][]float64 // by table and bucket of rows: number of rows pulled
	touched []float64   // by table: number of rows pulled
	filled  []float64   // by variable: the workers' fractions of gradient rows that are not zero, added
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

// take returns what the worker counted since take was called last, for all
// workers to add up.
func (s *statistics) take() []float64 {
	all := slices.Concat(s.touched, s.filled)
	clear(s.touched)
	for _, h := range s.counts {
		all = append(all, h.Counts()...)
		clear(h.Counts())
	}
	return all
}

// split names the parts of what the workers have added up.
func (s *statistics) split(all []float64) (n totals) {
	n.touched, all = all[:len(s.touched)], all[len(s.touched):]
	n.filled, all = all[:len(s.filled)], all[len(s.filled):]
	for _, h := range s.counts {
		n.counts, all = append(n.counts, all[:len(h.Counts())]), all[len(h.Counts()):]
	}
	return n
}

// exchanged are the bytes that this worker sent and received since exchanged was
// called last: by variable, the loss last, and for each of them by holder.
// volumes are those since the start.
func (s *statistics) exchanged(volumes []client.Volume) []float64 {
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

// mostListed is how many variables the report lists, the largest; the others
// share a line.
const mostListed = 20

// touched is the mean number of rows of each table that one worker touched in a
// step.
func (c *Config) touched(sum totals, window int) []float64 {
	touched := make([]float64, len(sum.touched))
	for i, n := range sum.touched {
		touched[i] = n / float64(window*len(c.Declaration.Workers))
	}
	return touched
}

// describe returns a variable as package cost knows it.
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

// report logs what was measured in a window of steps. all is what each worker
// exchanged, see [statistics.exchanged].
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

// listed lists the largest variables, and the others as one. line is the index in
// the list of each variable, and at last of the loss.
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
	rest := 0 // bytes of those that share a line
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

// holder is a holder as package cost numbers them: servers, then workers.
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
