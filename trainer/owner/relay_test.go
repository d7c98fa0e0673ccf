package owner

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// Workers of a host that add first give the same bits, whatever the hosts.
func TestBitsOfLocalAggregation(t *testing.T) {
	for _, c := range []struct {
		leaves  int
		workers []Range
		hosts   []Range
	}{
		{8, ranges(8, 4), []Range{{0, 2}, {2, 4}}},
		{8, ranges(8, 8), []Range{{0, 8}}},
		{8, ranges(8, 5), []Range{{0, 3}, {3, 4}, {4, 5}}},
		{6, ranges(6, 6), []Range{{0, 1}, {1, 6}}},
		{6, ranges(6, 4), []Range{{0, 2}, {2, 4}}},
		{6, []Range{{0, 1}, {1, 4}, {4, 6}}, []Range{{0, 2}, {2, 3}}},
		{3, ranges(3, 3), []Range{{0, 1}, {1, 2}, {2, 3}}},
	} {
		for _, servers := range []int{1, 3} {
			t.Run(fmt.Sprint(c.workers, c.hosts, servers), func(t *testing.T) {
				t.Parallel()
				d := mixed(c.leaves, 1)
				d.Workers, d.Hosts = c.workers, c.hosts
				checkSteps(t, newJob(t, d, Servers, servers), 6)
			})
		}
	}
}

func TestAbsentLeavesOfAHost(t *testing.T) {
	d := mixed(6, 6)
	d.Hosts = []Range{{0, 4}, {4, 6}}
	j := newJob(t, d, Servers, 2)
	members := j.connect(t)
	n := newTwin(&j.d)
	for s, absent := range []string{"", "1", "0123", "45", "035", "12345", "012345"} {
		present := func(leaf int) bool { return !strings.Contains(absent, fmt.Sprint(leaf)) }
		ends, errs := stepPresent(members, uint64(s), 0.05, present)
		must(t, errs)
		n.step(0, 6, uint64(s), 0.05, present)
		for i, m := range members {
			n.compare(t, m.values, worker(i).String())
			if ends[i].Leaves != 6-len(absent) {
				t.Errorf("worker:%d: step %d: %+v", i, s, ends[i])
			}
		}
	}
	leave(t, j, members)
}

// One contribution per host travels to the servers, and nothing of the others.
func TestLocalAggregationSavesTraffic(t *testing.T) {
	const steps = 10
	size, sent := 0, map[bool][]uint64{}
	for _, local := range []bool{false, true} {
		d := example(8, 4)
		d.Variables = d.Variables[:3]
		d.Variables[2].Shape = []int{64, 1024}
		if local {
			d.Hosts = []Range{{0, 4}}
		}
		j := newJob(t, d, Servers, 1)
		members := j.connect(t)
		for s := range uint64(steps) {
			_, errs := step(members, s, 0.05)
			must(t, errs)
		}
		leave(t, j, members) // a send is counted when it has returned
		for i, m := range members {
			traffic := m.Traffic()[0]
			if traffic.Peer != server0(0) {
				t.Fatalf("worker:%d sends to %v first", i, traffic.Peer)
			}
			sent[local] = append(sent[local], traffic.Sent)
		}
		size = 4 * 64 * 1024 * steps
	}
	for i := range 4 {
		if got := sent[false][i]; got < uint64(size) {
			t.Errorf("worker:%d sent %d bytes alone, want at least %d", i, got, size)
		}
	}
	size += 4 * 64 * 1024 // the chief's first values
	if got := sent[true][0]; got < uint64(size) || got > uint64(size)*11/10 {
		t.Errorf("the host's first sent %d bytes, want about %d", got, size)
	}
	for i := 1; i < 4; i++ {
		if got := sent[true][i]; got > 4096 {
			t.Errorf("worker:%d sent %d bytes to the server, want next to nothing", i, got)
		}
	}
}

func TestLostWorkersOfAHostAreNamed(t *testing.T) {
	for _, dead := range []int{0, 1, 3} { // the first, one of its host, the first of the other
		d := mixed(5, 5)
		d.Hosts = []Range{{0, 3}, {3, 5}}
		j := newJob(t, d, Servers, 2)
		members := j.connect(t)
		_, errs := step(members, 0, 0.1)
		must(t, errs)
		die(members[dead])
		_, errs = step(members, 1, 0.1)
		for rank, err := range errs {
			if rank != dead {
				blames(t, err, worker(dead), "connection lost")
			}
		}
	}
}

func TestOtherHostsAreADisagreement(t *testing.T) {
	t.Parallel()
	d := example(3, 3)
	d.Hosts = []Range{{0, 3}}
	j := newJob(t, d, Servers, 1)
	errs := connectAll(t, j, func(rank int, d *Declaration) {
		if rank == 2 {
			d.Hosts = nil
		}
	})
	for _, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "hosts with workers") {
			t.Errorf("got %v", err)
		}
	}
}

func TestDifferentRatesOfAHostAreRefused(t *testing.T) {
	d := example(3, 3)
	d.Hosts = []Range{{0, 3}}
	j := newJob(t, d, Servers, 1)
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
			t.Errorf("got %v", err)
		}
	}
}
