package trainer

import (
	"bytes"
	"net"
	"slices"
	"sync"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/owner"
	"github.com/plx-run/plx/trainer/partition"
)

// marks are what a worker measures between two meetings.
type marks struct {
	counts  []*partition.Histogram // by table: rows that travelled
	touched []float64              // by table: how many
	before  []float64              // exchanged until the last meeting

	mu     sync.Mutex
	filled []float64 // by dense variable: part of the rows of its gradient that are not zero
}

// filledAt is the step in which gradients are looked at for rows of zeros,
// and manyRows from how many rows on. Looking takes about as long as reading
// the gradient once.
const (
	filledAt = 2
	manyRows = 256
)

// numbers are the marks of all workers, in one vector that is added up.
type numbers struct {
	all     []float64
	counts  [][]float64 // by table and bucket
	touched []float64   // by table
	filled  []float64   // by variable
}

func newMarks(r *Replica) *marks {
	m := &marks{touched: make([]float64, len(r.tables)), filled: make([]float64, len(r.declared.Variables))}
	for _, v := range r.declared.Variables[len(r.declared.Variables)-len(r.tables):] {
		m.counts = append(m.counts, partition.NewHistogram(v.Shape[0]))
	}
	return m
}

// pulled notes the rows of a table that a step asks for.
func (m *marks) pulled(table int, rows []int64) {
	m.counts[table].Add(rows)
	m.touched[table] += float64(len(rows))
}

// fills notes how much of a dense variable's gradient is there.
func (m *marks) fills(variable int, v owner.Variable, gradient []byte) {
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
	m.mu.Lock()
	defer m.mu.Unlock()
	m.filled[variable] = float64(full) / float64(v.Shape[0])
}

// take returns what was measured since it was called last.
func (m *marks) take() numbers {
	n := newNumbers(m)
	for i, h := range m.counts {
		copy(n.counts[i], h.Counts())
		clear(h.Counts())
	}
	copy(n.touched, m.touched)
	clear(m.touched)
	copy(n.filled, m.filled)
	return n
}

func newNumbers(m *marks) (n numbers) {
	sizes := []int{len(m.touched), len(m.filled)}
	for _, h := range m.counts {
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

// exchanged are the bytes that this worker sent and received since it was
// called last: by variable, the tally last, and for each of them by owner.
func (m *marks) exchanged(r *Replica) []float64 {
	owners := len(r.declared.Owners)
	now := make([]float64, 2*owners*(len(r.declared.Variables)+1))
	for _, v := range r.client.Volumes() {
		if v.Owner >= 0 { // else it stays within the host
			at := 2 * (v.Variable*owners + v.Owner)
			now[at], now[at+1] = float64(v.Sent), float64(v.Received)
		}
	}
	since := slices.Clone(now)
	for i, bytes := range m.before {
		since[i] -= bytes
	}
	m.before = now
	return since
}

// address names the host of a task, by its data address.
func (j *Job) address(t cluster.Task) string {
	addr := j.contract.Cluster.Addr(t)
	if host, _, err := net.SplitHostPort(addr); err == nil {
		return host
	}
	return addr
}
