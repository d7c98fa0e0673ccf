package client

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/policy"
)

// With local aggregation a host sends one sum to the servers. Its other
// workers send the servers nothing.
func TestLocalAggregationSavesTraffic(t *testing.T) {
	const steps = 3
	size, sent := 0, map[bool][]uint64{}
	for _, local := range []bool{false, true} {
		d := example(8, 4)
		d.Variables = d.Variables[:3]
		d.Variables[2].Shape = []int{16, 1024}
		if local {
			d.Hosts = []layout.Range{{Lo: 0, Hi: 4}}
		}
		j := newJob(t, d, policy.Servers, 1)
		members := j.connect(t)
		for s := range uint64(steps) {
			_, errs := step(members, s, 0.05)
			must(t, errs)
		}
		leave(t, j, members) // the counters are complete only after all sends have returned
		for i, m := range members {
			traffic := m.Traffic()[0]
			if traffic.Peer != server0(0) {
				t.Fatalf("worker:%d sends to %v first", i, traffic.Peer)
			}
			sent[local] = append(sent[local], traffic.Sent)
		}
		size = 4 * 16 * 1024 * steps
	}
	for i := range 4 {
		if got := sent[false][i]; got < uint64(size) {
			t.Errorf("worker:%d sent %d bytes alone, want at least %d", i, got, size)
		}
	}
	size += 4 * 16 * 1024 // the chief's first values
	if got := sent[true][0]; got < uint64(size) || got > uint64(size)*11/10 {
		t.Errorf("the host's first sent %d bytes, want about %d", got, size)
	}
	for i := 1; i < 4; i++ {
		if got := sent[true][i]; got > 4096 {
			t.Errorf("worker:%d sent %d bytes to the server, want next to nothing", i, got)
		}
	}
}

// In the hybrid architecture, a host sends the gradient of each touched row
// once per part of the summation tree, however many of its workers touched the
// row.
func TestHybridSendsRowsOncePerHost(t *testing.T) {
	const steps, width = 8, 64
	d := example(6, 6)
	d.Variables = append(d.Variables[2:3:3], layout.Variable{Name: "table", Dtype: layout.Float32, Shape: []int{600, width}, Sparse: &layout.Sparse{}})
	d.Hosts = []layout.Range{{Lo: 0, Hi: 4}, {Lo: 4, Hi: 6}}
	j := newJob(t, d, policy.Hybrid, 2)
	members := j.connect(t)
	for s := range uint64(steps) {
		_, errs := step(members, s, 0.05)
		must(t, errs)
	}
	leave(t, j, members) // the counters are complete only after all sends have returned
	for _, host := range d.Hosts {
		rows := 0
		tree := layout.NewTree(6)
		for _, part := range tree.Parts(host.Lo, host.Hi) { // a leaf per worker
			for s := range uint64(steps) {
				rows += distinct(d.Variables[1], tree.Below(part), s)
			}
		}
		for rank := host.Lo; rank < host.Hi; rank++ {
			sent, dense := members[rank].sentTo()
			want, most := uint64(0), uint64(8192) // the limit allows for the declaration, the goodbye and the Step frames
			if rank == host.Lo {
				want, most = uint64(rows*width*4), uint64(rows*(width*4+8)*101/100)+8192
			}
			if sent < want || sent > most {
				t.Errorf("worker:%d sent %d bytes to servers, want %d to %d", rank, sent, want, most)
			}
			if want := uint64(5 * 1024 * 4 * 5 / 6 * steps); dense < want {
				t.Errorf("worker:%d sent %d bytes to workers, want at least %d", rank, dense, want)
			}
		}
	}
}

// distinct returns the number of different rows that the virtual workers in
// below touch in step s.
func distinct(v layout.Variable, below layout.Range, s uint64) int {
	rows := map[int64]bool{}
	for leaf := below.Lo; leaf < below.Hi; leaf++ {
		for _, row := range touched(v, leaf, s) {
			rows[row] = true
		}
	}
	return len(rows)
}

// sentTo returns the bytes sent to parameter servers, and those sent to
// workers that hold pieces.
func (m *member) sentTo() (servers, workers uint64) {
	for _, l := range m.holders.links {
		if l == nil {
			continue
		}
		sent, _ := l.session.Traffic()
		if l.session.Task.Role == cluster.PS {
			servers += sent
		} else {
			workers += sent
		}
	}
	return servers, workers
}

func TestJoinWithLocalAggregation(t *testing.T) {
	lasts := []uint64{3, 1, 5, 0, 2}
	for _, a := range []policy.Architecture{policy.Servers, policy.Hybrid} {
		d := mixed(5, 5)
		d.Hosts = []layout.Range{{Lo: 0, Hi: 2}, {Lo: 2, Hi: 5}}
		j := newJob(t, d, a, 2)
		members := j.connect(t)
		joinAll(t, members, lasts)
		n := newReference(&j.d)
		for s := range slices.Max(lasts) {
			n.step(0, 5, s, 0.05, func(leaf int) bool { return s < lasts[leaf] })
		}
		for rank, m := range members {
			n.compare(t, m.values, worker(rank).String())
			if m.Step() != slices.Max(lasts)+1 {
				t.Errorf("%s: worker:%d took %d steps", a, rank, m.Step())
			}
		}
		leave(t, j, members)
	}
}

func TestDifferentHostsEndTraining(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a deadline")
	}
	t.Parallel()
	for _, a := range []policy.Architecture{policy.Servers, policy.Hybrid} {
		for who := range 3 {
			t.Run(fmt.Sprint(a, who), func(t *testing.T) {
				t.Parallel()
				d := mixed(3, 3)
				d.Hosts = []layout.Range{{Lo: 0, Hi: 3}}
				j := newJob(t, d, a, 1)
				began := time.Now()
				errs := connectAll(t, j, func(rank int, d *layout.Declaration) {
					if rank == who {
						d.Hosts = []layout.Range{{Lo: 0, Hi: 2}, {Lo: 2, Hi: 3}}
					}
				})
				for rank, err := range errs {
					if err == nil || !strings.Contains(err.Error(), "hosts with workers") {
						t.Errorf("worker:%d: %v", rank, err)
					}
				}
				if took := time.Since(began); took > patience.Limit/2 {
					t.Errorf("took %v", took)
				}
			})
		}
	}
}

func TestDifferentLearningRatesOnHostAreRefused(t *testing.T) {
	for _, a := range []policy.Architecture{policy.Servers, policy.Hybrid} {
		d := mixed(3, 3)
		d.Hosts = []layout.Range{{Lo: 0, Hi: 3}}
		j := newJob(t, d, a, 1)
		members := j.connect(t)
		errs := make(chan error, 3)
		for rank, m := range members {
			go func() {
				_, err := m.take(context.Background(), 0, 0.1+float64(rank), everyLeaf)
				errs <- err
			}()
		}
		for range members {
			if err := within(t, errs); err == nil || !strings.Contains(err.Error(), "learning rate") {
				t.Errorf("%s: got %v", a, err)
			}
		}
	}
}

// With local aggregation, the pieces of a variable must all be on servers or
// all on workers. Otherwise some gradients would be sums of hosts and others
// not.
func TestVariableOnServersAndWorkersIsRefusedWithLocalAggregation(t *testing.T) {
	d := mixed(3, 3)
	if err := d.AssignPieces(policy.Hybrid, 1, 0); err != nil {
		t.Fatal(err)
	}
	d.Hosts = []layout.Range{{Lo: 0, Hi: 3}}
	if err := d.Check(); err != nil {
		t.Fatal(err)
	}
	for i, p := range d.Pieces {
		if d.Variables[p.Variable].Name == "big" && d.Holders[p.Holder].Role == cluster.Worker {
			d.Pieces[i].Holder = d.HolderIndex(server0(0))
			break
		}
	}
	if err := d.Check(); err == nil || !strings.Contains(err.Error(), `"big" is held by servers and by workers`) {
		t.Errorf("got %v", err)
	}
	d.Hosts = nil
	if err := d.Check(); err != nil {
		t.Error(err)
	}
}
