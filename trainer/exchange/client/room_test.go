package client

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/policy"
)

// freeMemory is the simulated free memory of a shard holder's host.
type freeMemory struct{ free atomic.Uint64 }

const unknown = math.MaxUint64

func (h *freeMemory) memory() (uint64, error) {
	if free := h.free.Load(); free != unknown {
		return free, nil
	}
	return 0, errors.New("no such file")
}

// on returns the simulated free memory for a task's host. Call it before the
// task starts.
func (j *testJob) on(task cluster.Task) *freeMemory {
	h := &freeMemory{}
	h.free.Store(unknown)
	j.free.Store(task, h)
	return h
}

// memory returns the function that reports the free memory of a task's host:
// the simulated value if there is one, and otherwise the real one.
func (j *testJob) memory(task cluster.Task) func() (uint64, error) {
	return func() (uint64, error) {
		if h, ok := j.free.Load(task); ok {
			return h.(*freeMemory).memory()
		}
		return transition.FreeMemory()
	}
}

// A row of the larger table has 3 floats of 4 bytes, each with 2 numbers of
// optimiser state: 36 bytes plus one bit. A row of the smaller table has 24
// bytes.
const (
	largeTable = 41*36 + 5
	smallTable = 9*24 + 1
)

func TestRoom(t *testing.T) {
	for name, c := range map[string]struct {
		holder int
		free   [3]uint64
		want   *transition.RoomError
	}{
		"plenty":              {1, [3]uint64{0, 10 * largeTable, 0}, nil},
		"too little":          {1, [3]uint64{1 << 20, 100, 1 << 20}, &transition.RoomError{Holder: server0(1), Need: largeTable + smallTable, Free: 100}},
		"no headroom":         {1, [3]uint64{1 << 20, largeTable + smallTable, 1 << 20}, &transition.RoomError{Holder: server0(1), Need: largeTable + smallTable, Free: largeTable + smallTable}},
		"unknown free memory": {1, [3]uint64{0, unknown, 0}, nil},
		"on other hosts":      {2, [3]uint64{0, 0, 1 << 20}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			d := movableTables(2, 2, optimizer.Adam)
			j := newJob(t, d, policy.Servers, 3)
			var hosts [3]*freeMemory
			for i := range j.served {
				hosts[i] = j.on(server0(i))
			}
			members := j.connect(t)
			start := onHolder(&j.d, 0)
			must(t, repartition(members, start))
			for i := range j.served {
				hosts[i].free.Store(c.free[i])
				j.reroute(i, "host0:1", "host1:1", "host2:1")
			}
			err := members[1].Placement.Room(context.Background(), onHolder(&j.d, c.holder))
			var full *transition.RoomError
			switch {
			case c.want == nil && err != nil:
				t.Error(err)
			case c.want != nil && (!errors.As(err, &full) || *full != *c.want):
				t.Errorf("got %v, want %+v", err, c.want)
			}
			if err := members[0].Placement.Room(context.Background(), start); err != nil {
				t.Errorf("for what is there: %v", err)
			}
			_, errs := step(members, 0, 0.1)
			must(t, errs)
			leave(t, j, members)
		})
	}
}

// Shard holders on the same host share its free memory.
func TestRoomAddsHoldersOfSameHost(t *testing.T) {
	d := movableTables(2, 2, optimizer.Adam)
	j := newJob(t, d, policy.Servers, 3)
	var hosts []*freeMemory
	for i := range j.served {
		hosts = append(hosts, j.on(server0(i)))
	}
	members := j.connect(t)
	must(t, repartition(members, onHolder(&j.d, 0)))
	pieces := onHolder(&j.d, 1)
	pieces[len(pieces)-1].Holder = 2
	for _, h := range hosts {
		h.free.Store(2 * smallTable)
	}
	var full *transition.RoomError
	err := members[0].Placement.Room(context.Background(), pieces)
	if !errors.As(err, &full) || *full != (transition.RoomError{Holder: server0(0), Need: largeTable + smallTable, Free: 2 * smallTable}) {
		t.Errorf("got %v", err)
	}
	errs := repartition(members, pieces)
	blameAll(t, errs, "has no room")
}

// A worker that holds pieces also reports its memory.
func TestRoomOnWorkers(t *testing.T) {
	j := newJob(t, movableTables(3, 3, optimizer.Adam), policy.AllReduce, 0)
	members := j.connect(t)
	h := j.on(worker(1))
	if err := members[2].Placement.Room(context.Background(), onHolder(&j.d, 1)); err != nil {
		t.Error(err)
	}
	h.free.Store(5)
	for _, m := range members {
		var full *transition.RoomError
		if err := m.Placement.Room(context.Background(), onHolder(&j.d, 1)); !errors.As(err, &full) || full.Holder != worker(1) {
			t.Errorf("got %v", err)
		}
	}
	leave(t, j, members)
}
