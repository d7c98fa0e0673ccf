package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/exchange/localsum"
	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/sparse"
)

// Rows requests rows of sparse variables from the tasks that hold them.
type Rows struct {
	holders  *holders
	progress *progress
	asking   *asking // prefetch request for which Await has not returned; nil if there is none
	asked    uint64  // step of the last prefetch request, plus 1; 0 means that there was none
}

// Pull copies the current values of rows of a sparse variable to into, one row
// after the other. index lists the rows in strictly ascending order. During a
// step, a virtual worker must call Pull before it contributes its gradient.
// Several goroutines may call Pull at the same time. After an error the client
// cannot be used.
func (r *Rows) Pull(ctx context.Context, variable int, index []int64, into []byte) error {
	if err := r.requestable(variable, index, into); err != nil {
		return err
	}
	var waiting []*pull
	pieces := r.holders.shards.Load().d.Pieces
	for _, p := range portions(r.holders.d, pieces, []message.RowRequest{{Variable: variable, Index: index, Into: into}}) {
		w, err := r.pull(p.Piece, 0, p.index, p.into)
		if err != nil {
			return err
		}
		waiting = append(waiting, w)
	}
	return r.collect(ctx, waiting...)
}

// Whole copies all values of a variable to into, for example to save or
// compare them. It requests the rows of a sparse variable from the tasks that
// hold them. If workers take steps meanwhile, the values of different rows may
// be from different steps.
func (r *Rows) Whole(ctx context.Context, variable int, into []byte) error {
	h := r.holders
	if variable < 0 || variable >= len(h.d.Variables) {
		return fmt.Errorf("variable %d of %d", variable, len(h.d.Variables))
	}
	v := h.d.Variables[variable]
	if want := v.NumElements() * v.Dtype.Size(); len(into) != want {
		return fmt.Errorf("variable %q: %d bytes for %d", v.Name, len(into), want)
	}
	most := message.RangeRows(v.UnitBytes())
	for _, p := range h.shards.Load().d.Pieces {
		if p.Variable != variable {
			continue
		}
		if v.Sparse == nil {
			copy(into[p.Offset*v.UnitBytes():], h.memory.of(p))
			continue
		}
		if err := h.working(); err != nil {
			return err
		}
		for from := p.Offset; from < p.Offset+p.Count; from += most {
			n := min(most, p.Offset+p.Count-from)
			w, err := r.pull(p, from, nil, into[from*v.UnitBytes():(from+n)*v.UnitBytes()])
			if err = cmp.Or(err, r.collect(ctx, w)); err != nil {
				return err
			}
		}
	}
	return nil
}

// requestable returns an error if a request for rows is invalid.
func (r *Rows) requestable(variable int, index []int64, into []byte) error {
	d := r.holders.d
	if variable < 0 || variable >= len(d.Variables) || d.Variables[variable].Sparse == nil {
		return fmt.Errorf("rows of variable %d, which is not sparse", variable)
	}
	if err := r.holders.working(); err != nil {
		return err
	}
	v := d.Variables[variable]
	check := sparse.Rows[float64]{Index: index}
	if err := check.Check(0, int64(v.Shape[0]), 0); err != nil {
		return fmt.Errorf("rows of variable %q: %w", v.Name, err)
	}
	if len(into) != len(index)*v.UnitBytes() {
		return fmt.Errorf("rows of variable %q: %d bytes for %d rows of %d", v.Name, len(into), len(index), v.UnitBytes())
	}
	return nil
}

// pull requests the rows of a piece that index lists. If index is nil, it
// requests consecutive rows from row first on, as many as fit into the memory
// into. If this worker holds the piece, pull copies the rows immediately and
// returns nil.
func (r *Rows) pull(p layout.Piece, first int, index []int64, into []byte) (*pull, error) {
	l := r.holders.links[p.Holder]
	switch {
	case l == nil && index == nil:
		return nil, r.holders.local.shard(p).CopyRows(int64(first), into)
	case l == nil:
		return nil, r.holders.local.shard(p).Read(index, into)
	}
	w, err := l.requests.pull(p, first, index, into)
	if err != nil {
		l.check(err)
		return nil, cmp.Or(r.holders.reason(), err)
	}
	return w, nil
}

// collect waits until the rows of all given pull requests have arrived.
func (r *Rows) collect(ctx context.Context, waiting ...*pull) error {
	for _, w := range waiting {
		if w != nil {
			if _, err := await(ctx, r.holders, w.done); err != nil {
				return err
			}
		}
	}
	return nil
}

// Prefetch requests all rows that this worker needs in a step, with one
// request to each task that holds such rows. During a step, it requests the
// rows for the step after that. Between two steps, it requests the rows for
// the next step. While a step runs, these tasks send the requested rows that
// the step does not change, and the others after the step. Prefetch does not
// wait for the rows; Await does. Until Await returns, the caller must not use
// requests.
//
// Each step allows one prefetch request, which must be followed by Await.
// Prefetch works only in mode sync.
func (r *Rows) Prefetch(requests []message.RowRequest) error {
	step := r.progress.step
	if r.progress.within {
		step++
	}
	if err := r.prefetchable(step, requests); err != nil {
		return err
	}
	r.asked, r.asking = step+1, r.request(step, requests)
	return r.holders.reason()
}

func (r *Rows) prefetchable(step uint64, requests []message.RowRequest) error {
	h := r.holders
	switch {
	case h.reason() != nil:
		return h.reason()
	case !h.d.Sync.InStep():
		return fmt.Errorf("rows are prefetched with synchronisation %s: workers must take their steps together; use Pull", h.d.Sync)
	case r.asking != nil:
		return fmt.Errorf("rows of step %d are requested, those of step %d were not awaited", step, r.asking.step)
	case r.asked == step+1:
		return fmt.Errorf("rows of step %d are requested twice", step)
	}
	for i, w := range requests {
		if err := r.requestable(w.Variable, w.Index, w.Into); err != nil {
			return err
		}
		if slices.ContainsFunc(requests[:i], func(other message.RowRequest) bool { return other.Variable == w.Variable }) {
			return fmt.Errorf("rows of variable %q are requested twice", h.d.Variables[w.Variable].Name)
		}
	}
	return nil
}

// Await waits until all rows of the last prefetch request have arrived. Their
// values include all steps before the step for which they were requested. Call
// Await before that step begins.
func (r *Rows) Await(ctx context.Context) error {
	h, a, step := r.holders, r.asking, r.progress.step
	switch {
	case h.reason() != nil:
		return h.reason()
	case a == nil:
		return errors.New("rows are awaited without a prefetch request")
	case r.progress.within || step != a.step:
		return fmt.Errorf("rows of step %d are awaited at step %d", a.step, step)
	}
	began := time.Now()
	if _, err := await(ctx, h, a.done); err != nil {
		return err
	}
	h.config.Trace.Span("wait", "rows", began, time.Now(), "step", a.step)
	r.asking = nil
	for _, p := range a.own {
		if err := h.local.shard(p.Piece).Read(p.index, p.into); err != nil {
			return err
		}
	}
	if !a.direct.Load() {
		return nil
	}
	for _, w := range a.host {
		if err := r.Pull(ctx, w.Variable, w.Index, w.Into); err != nil {
			return err
		}
	}
	return nil
}

// request sends the requests for rows of a step to the tasks that hold the
// rows. If the first worker of the host combines the requests of its host,
// request sends them to that worker.
func (r *Rows) request(step uint64, requests []message.RowRequest) *asking {
	h := r.holders
	var host, others []message.RowRequest
	for _, w := range requests {
		if r.travelsWithHost(w.Variable) {
			host = append(host, w)
		} else {
			others = append(others, w)
		}
	}
	var own []portion
	if h.local != nil {
		own = portions(h.d, h.local.serves.Load().pieces, others)
	}
	a := newAsking(step, own, host, nil)
	switch {
	case h.up != nil:
		h.up.requests.prefetch(a, portions(h.d, h.up.holds.Load().pieces, host))
	case h.aggregator != nil:
		a.left.Add(1)
		mine := localsum.Request{Rank: h.rank, Done: func(direct bool) {
			a.direct.Store(direct)
			a.answered()
		}}
		for _, w := range host {
			mine.Rows = append(mine.Rows, message.Rows{Place: layout.Place{Variable: w.Variable}, Index: w.Index})
			mine.Into = append(mine.Into, w.Into)
		}
		h.aggregator.Rows.Add(step, mine)
	}
	for _, p := range own {
		h.local.shard(p.Piece).Ask(step, p.index)
		h.local.volumes[p.Variable].pulled.Add(uint64(len(p.index)))
	}
	r.ask(a, others)
	return a
}

// ask sends each other task that holds requested rows its part of the
// requests. a.left counts the expected answers, plus 1 that newAsking added so
// that it cannot reach 0 too early. The last line removes this 1.
func (r *Rows) ask(a *asking, requests []message.RowRequest) {
	for _, l := range r.holders.links {
		if l == nil {
			continue
		}
		if share := portions(r.holders.d, l.holds.Load().pieces, requests); len(share) > 0 {
			l.requests.prefetch(a, share)
		}
	}
	a.answered()
}

// travelsWithHost reports whether the first worker of the host requests the
// rows of a variable for all workers of the host.
func (r *Rows) travelsWithHost(variable int) bool {
	h := r.holders
	if h.up == nil && h.aggregator == nil {
		return false
	}
	i := slices.IndexFunc(h.d.Pieces, func(p layout.Piece) bool { return p.Variable == variable })
	return h.d.Holders[h.d.Pieces[i].Holder].Role == cluster.PS
}

// host implements localsum.Holders on the first worker of a host. It sends the
// host's sums and requests to the tasks that hold the variables.
type host struct {
	gate     *gate
	progress *progress
	rows     *Rows
}

// Begin implements localsum.Holders: it opens the gate, which holds back sums
// until all workers of the host have begun the step. The gate first sends the
// Step frame.
func (h *host) Begin(payload []byte) { h.gate.open(job{begin: payload, step: h.progress.step}) }

// Push implements localsum.Holders: it passes a bucket (a group of variables)
// to the gate, which sends it once the step has begun.
func (h *host) Push(bucket, part int) {
	h.gate.post(job{bucket: bucket, part: part, step: h.progress.step})
}

// Request implements localsum.Holders: it requests rows of embedding tables
// from the tasks that store them.
func (h *host) Request(step uint64, requests []message.RowRequest, done func()) {
	h.rows.ask(newAsking(step, nil, nil, done), requests)
}
