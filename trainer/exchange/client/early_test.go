package client

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/policy"
	"github.com/plx-run/plx/trainer/wire"
)

// pulledRows returns the number of rows of a variable that a worker has
// received.
func (m *member) pulledRows(variable int) (n uint64) {
	for _, v := range m.Placement.Volumes() {
		if v.Variable == variable {
			n += v.Pulled
		}
	}
	return n
}

// rowsFrom returns a request for rows [lo, hi) of variable 5.
func rowsFrom(lo, hi int64) []message.RowRequest {
	w := message.RowRequest{Variable: 5}
	for row := lo; row < hi; row++ {
		w.Index = append(w.Index, row)
	}
	w.Into = wire.Bytes(make([]float64, (12*len(w.Index)+7)/8))[:12*len(w.Index)]
	return []message.RowRequest{w}
}

// contribute contributes gradients of all variables. The gradient of variable
// 5 has the rows in index.
func (m *member) contribute(step uint64, index ...int64) {
	for i, v := range m.holders.d.Variables {
		switch {
		case i == 5:
			values := make([]float32, 3*len(index))
			for j := range values {
				values[j] = float32(m.rank + j + 1)
			}
			m.ContributeRows(m.virtual.Lo, i, index, wire.Bytes(values))
		case v.Sparse != nil:
			m.ContributeRows(m.virtual.Lo, i, nil, nil)
		default:
			gradient(m.holders.d, m.Gradient(m.virtual.Lo, i), i, m.virtual.Lo, step)
			m.Contribute(m.virtual.Lo, i)
		}
	}
}

// During a step, a holder already sends rows that no worker requested for that
// step, even if a worker has not begun it. After the step it sends the other
// rows, and again those early rows that the step has changed.
func TestEarlyReplyArrivesDuringStep(t *testing.T) {
	for _, a := range []policy.Architecture{policy.Servers, policy.Hybrid} {
		for _, clip := range []float64{0, 1} {
			d := wide(2, 2)
			d.Clip = clip
			j := newJob(t, d, a, 1)
			members := j.connect(t)
			ctx := context.Background()
			for i, m := range members {
				if err := errors.Join(m.Rows.Prefetch(rowsFrom(int64(10*i), int64(10*i+10))), m.Rows.Await(ctx)); err != nil {
					t.Fatal(err)
				}
			}
			m := members[0]
			if err := m.Begin(0.1); err != nil {
				t.Fatal(err)
			}
			wanted := rowsFrom(5, 105) // one of the workers requested rows 5 to 19 for the current step
			if err := m.Rows.Prefetch(wanted); err != nil {
				t.Fatal(err)
			}
			eventually(t, "85 rows came", func() bool { return m.pulledRows(5) == 10+85 })
			if serverOf(t, j, 0).Shards().Steps()[0] != 0 {
				t.Fatal("the step was applied although a worker did not begin it")
			}
			other := make(chan error, 1)
			go func() {
				err := members[1].Begin(0.1)
				members[1].contribute(0, 12, 30, 99, 400) // rows 30 and 99 were sent early, and no worker requested row 400
				_, finish := members[1].Finish(ctx, [][]float64{{1, 0, 0}})
				other <- errors.Join(err, finish)
			}()
			m.contribute(0, 5, 30)
			if _, err := m.Finish(ctx, [][]float64{{1, 0, 0}}); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(m.Rows.Await(ctx), within(t, other)); err != nil {
				t.Fatal(err)
			}
			if got := m.pulledRows(5); got != 10+85+15+2 {
				t.Errorf("%s: %d rows came, want 2 of 100 twice", a, got-10)
			}
			whole := make([]byte, 700*12)
			if err := m.Rows.Whole(ctx, 5, whole); err != nil {
				t.Fatal(err)
			}
			if string(wanted[0].Into) != string(whole[5*12:105*12]) {
				t.Errorf("%s: the rows are not those of the table", a)
			}
			leave(t, j, members)
		}
	}
}

// If all workers request in time exactly the rows that they change, no row is
// sent twice. A host receives each row once for all its workers.
func TestUnchangedRowsAreSentOnce(t *testing.T) {
	for _, c := range []struct {
		a       policy.Architecture
		servers int
		hosts   []layout.Range
	}{{policy.Servers, 2, nil}, {policy.Hybrid, 3, nil}, {policy.AllReduce, 0, nil}, {policy.Servers, 2, []layout.Range{{Lo: 0, Hi: 2}, {Lo: 2, Hi: 3}}}} {
		const steps = 12
		d := wide(6, 3)
		d.Hosts = c.hosts
		j := newJob(t, d, c.a, c.servers)
		members := j.connect(t)
		var want [3]uint64
		var first sync.WaitGroup // waits until all workers have sent their first request; later, steps ensure this
		first.Add(len(members))
		must(t, allOf(seekers(members), func(s *seeker) error {
			s.wanted = s.touched(0)
			for step := range uint64(steps) {
				if step == 0 {
					if err := s.Rows.Prefetch(s.wanted); err != nil {
						return err
					}
				}
				want[s.rank] += s.count()
				if err := s.Rows.Await(context.Background()); err != nil {
					return err
				}
				if step == 0 {
					first.Done()
					first.Wait()
				}
				if err := s.Begin(0.05); err != nil {
					return err
				}
				if s.wanted = s.touched(step + 1); step+1 < steps {
					if err := s.Rows.Prefetch(s.wanted); err != nil {
						return err
					}
				}
				var sums [][]float64
				for leaf := s.virtual.Lo; leaf < s.virtual.Hi; leaf++ {
					s.compute(context.Background(), leaf, step)
					sums = append(sums, []float64{1, 0, 0})
				}
				if _, err := s.Finish(context.Background(), sums); err != nil {
					return err
				}
			}
			return nil
		}))
		for rank, m := range members {
			got, fromServers := uint64(0), uint64(0)
			for _, v := range m.Placement.Volumes() {
				if got += v.Pulled; v.Holder >= 0 {
					fromServers += v.Pulled
				}
			}
			shared := len(c.hosts) > 0 && rank < 2
			if !shared && got != want[rank] || shared && rank == 1 && (got != want[1] || fromServers > 0) {
				t.Errorf("%v: %d rows came to worker:%d, %d from servers, want %d once", c, got, rank, fromServers, want[rank])
			}
			if shared && rank == 0 && (got >= want[0]+want[1] || got < max(want[0], want[1])) {
				t.Errorf("%v: %d rows came to the host, whose workers wanted %d and %d", c, got, want[0], want[1])
			}
		}
		leave(t, j, members)
	}
}

// touched returns requests for the rows that this worker's virtual workers
// change in a step.
func (s *seeker) touched(step uint64) (wanted []message.RowRequest) {
	for _, i := range tables(s.holders.d) {
		v := s.holders.d.Variables[i]
		rows := map[int64]bool{}
		for leaf := s.virtual.Lo; leaf < s.virtual.Hi; leaf++ {
			for _, row := range touched(v, leaf, step) {
				rows[row] = true
			}
		}
		w := message.RowRequest{Variable: i}
		for row := range int64(v.Shape[0]) {
			if rows[row] {
				w.Index = append(w.Index, row)
			}
		}
		n := len(w.Index) * v.UnitBytes()
		w.Into = wire.Bytes(make([]float64, (n+7)/8))[:n]
		wanted = append(wanted, w)
	}
	return wanted
}

func (s *seeker) count() (n uint64) {
	for _, w := range s.wanted {
		n += uint64(len(w.Index))
	}
	return n
}
