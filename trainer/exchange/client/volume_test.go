package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/policy"
	"github.com/plx-run/plx/trainer/wire"
)

// The sum of all volumes equals the bytes on the connections.
func TestVolumesAddUpToTraffic(t *testing.T) {
	for _, c := range []struct {
		a     policy.Architecture
		hosts []layout.Range
	}{{policy.Servers, nil}, {policy.Hybrid, nil}, {policy.AllReduce, nil}, {policy.Servers, []layout.Range{{Lo: 0, Hi: 2}, {Lo: 2, Hi: 3}}}} {
		d := wide(6, 3)
		d.Hosts, d.SilenceMillis = c.hosts, 600_000 // a long silence limit, because volumes exclude heartbeats
		j := newJob(t, d, c.a, 2)
		members := j.connect(t)
		carried := func(m *member) (sent, received uint64) {
			for _, l := range m.holders.connected() {
				a, b := l.session.Traffic()
				sent, received = sent+a, received+b
			}
			return sent, received
		}
		var before [3][2]uint64
		for i, m := range members {
			for _, l := range m.holders.connected() {
				eventually(t, "the declaration left", func() bool { // the counters are complete only after the send has returned
					sent, _ := l.session.Traffic()
					return sent > 0
				})
			}
			before[i][0], before[i][1] = carried(m)
		}
		all := seekers(members)
		for step := range uint64(5) {
			must(t, allOf(all, func(s *seeker) error { return s.await(context.Background()) }))
			must(t, allOf(all, func(s *seeker) error {
				_, err := s.take(context.Background(), step, 0.1, everyLeaf)
				return err
			}))
		}
		for i, m := range members {
			var sent, received uint64
			for _, v := range m.Placement.Volumes() {
				if sent, received = sent+v.Sent, received+v.Received; v.Holder >= 0 && v.Sent > 0 &&
					m.holders.d.Holders[v.Holder] == worker(m.rank) {
					t.Errorf("%s: worker:%d sent to itself: %+v", c.a, i, v)
				}
			}
			eventually(t, fmt.Sprintf("%v: what worker:%d counted was carried", c, i), func() bool {
				a, b := carried(m)
				return a-before[i][0] == sent && b-before[i][1] == received
			})
		}
		leave(t, j, members)
	}
}

// The bytes of a step match the formulas of the documentation within a tenth,
// although the formulas ignore indices and headers.
//
// Every host has a worker and a server, whose traffic with each other stays on
// the host. So each direction of a host's network link carries 2(n-1)/n of the
// rows that a worker touches: one half for the worker, the other for the
// server. The same holds for a dense variable, with or without all-reduce.
func TestVolumesMatchFormulas(t *testing.T) {
	const (
		rows, width = 8000, 64
		dense       = 64 << 10 // elements
		touched     = 800      // rows that each worker touches; no two workers touch the same row
		steps       = 2
	)
	for _, workers := range []int{2, 4} {
		for _, a := range []policy.Architecture{policy.Servers, policy.Hybrid} {
			t.Run(fmt.Sprint(a, workers), func(t *testing.T) {
				d := layout.Declaration{
					VirtualWorkers: workers, Workers: ranges(workers, workers), Batch: workers, StartMillis: patience.Limit.Milliseconds(), SilenceMillis: 600_000,
					Optimizer: optimizer.Settings{Rule: optimizer.SGD},
					Variables: []layout.Variable{
						{Name: "dense", Dtype: layout.Float32, Shape: []int{dense}},
						{Name: "table", Dtype: layout.Float32, Shape: []int{rows, width}, Sparse: &layout.Sparse{}},
					},
				}
				j := newJob(t, d, a, workers)
				members := j.connect(t)
				index := differ(workers, rows, touched)
				for range steps {
					must(t, allOf(seekers(members), func(s *seeker) error { return s.takeRows(index[s.rank]) }))
				}
				n := float64(workers)
				want := map[string]float64{
					"sent for table": 2 * (n - 1) / n * touched * width * 4 * steps, "sent for dense": 2 * (n - 1) / n * dense * 4 * steps,
				}
				got := map[string]float64{} // mean bytes per host, by variable and direction
				for _, m := range members {
					for _, v := range m.Placement.Volumes() {
						if v.Variable == m.holders.d.LossIndex() {
							v.Variable = 0 // count traffic that belongs to no variable for variable 0
						}
						if m.holders.d.Holders[v.Holder].Index != m.rank { // bytes that a worker sends are received by a server's host, and vice versa
							got["sent for "+m.holders.d.Variables[v.Variable].Name] += float64(v.Sent+v.Received) / n
						}
					}
				}
				for what, want := range want {
					t.Logf("%s: %.4f of the formula", what, got[what]/want)
					if got[what] < want || got[what] > 1.1*want {
						t.Errorf("%s: %v bytes, want %v to 1.1 of it", what, got[what], want)
					}
				}
				leave(t, j, members)
			})
		}
	}
}

// For the norm of the gradients, holders send one number for each touched row,
// whatever its width.
func TestHolderSendsOneSquareSumPerRow(t *testing.T) {
	const rows, touched, workers = 4000, 300, 2
	index := differ(workers, rows, touched)
	carried := func(width int, clip float64) (bytes uint64) { // carried returns the bytes of one step that belong to no variable
		d := layout.Declaration{
			VirtualWorkers: workers, Workers: ranges(workers, workers), Batch: workers, StartMillis: 20000, SilenceMillis: 600_000,
			Optimizer: optimizer.Settings{Rule: optimizer.SGD}, Clip: clip,
			Variables: []layout.Variable{
				{Name: "dense", Dtype: layout.Float32, Shape: []int{10}},
				{Name: "table", Dtype: layout.Float32, Shape: []int{rows, width}, Sparse: &layout.Sparse{First: layout.RowInit{Kind: "uniform", A: 1, B: 2}}},
			},
		}
		j := newJob(t, d, policy.Servers, 2)
		members := j.connect(t)
		must(t, allOf(seekers(members), func(s *seeker) error { return s.takeRows(index[s.rank]) }))
		for _, m := range members {
			for _, v := range m.Placement.Volumes() {
				if v.Variable == m.holders.d.LossIndex() {
					bytes += v.Sent + v.Received
				}
			}
		}
		leave(t, j, members)
		return bytes
	}
	narrow, wide := carried(400, 1), carried(1600, 1) // both tables are divided between two servers
	if narrow != wide {
		t.Errorf("%d bytes for rows of 400 numbers, %d for rows of 1600", narrow, wide)
	}
	least := uint64(8 * workers * touched) // no two workers touch the same row
	if norm := narrow - carried(400, 0); norm < least || norm > least+500 {
		t.Errorf("the norm takes %d bytes, want %d and some headers", norm, least)
	}
}

// differ draws the same number of random rows for each worker. No two workers
// get the same row, and each server has equally many.
func differ(workers, rows, each int) (index [][]int64) {
	index = make([][]int64, workers)
	part := each / workers
	for server := range workers {
		order := rand.New(rand.NewPCG(1, 2)).Perm(rows / workers)
		for w := range workers {
			for _, row := range order[w*part : (w+1)*part] {
				index[w] = append(index[w], int64(server*rows/workers+row))
			}
		}
	}
	for _, own := range index {
		slices.Sort(own)
	}
	return index
}

// takeRows takes a step whose gradient has the given rows of variable 1.
func (s *seeker) takeRows(index []int64) error {
	ctx := context.Background()
	into := make([]float32, len(index)*s.holders.d.Variables[1].Width())
	if err := s.Rows.Prefetch([]message.RowRequest{{Variable: 1, Index: index, Into: wire.Bytes(into)}}); err != nil {
		return err
	}
	if err := s.Rows.Await(ctx); err != nil {
		return err
	}
	if err := s.Begin(0.1); err != nil {
		return err
	}
	gradient(s.holders.d, s.Gradient(s.rank, 0), 0, s.rank, 0)
	s.Contribute(s.rank, 0)
	s.ContributeRows(s.rank, 1, index, wire.Bytes(into))
	_, err := s.Finish(ctx, [][]float64{{1}})
	return err
}
