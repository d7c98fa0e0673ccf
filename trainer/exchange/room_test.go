package exchange

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"

	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/policy"
)

// host is what a test says of an owner's host; nobody knows what it has free.
type host struct{ free atomic.Uint64 }

const unknown = math.MaxUint64

func (h *host) memory() (uint64, error) {
	if free := h.free.Load(); free != unknown {
		return free, nil
	}
	return 0, errors.New("no such file")
}

// on puts a server that nobody has asked for anything yet on a host.
func on(s *server) *host {
	h := &host{}
	h.free.Store(unknown)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.memory = h.memory
	return h
}

// Rows of the larger table take 3 floats with 2 slots, 36 bytes, and a bit;
// of the smaller 24.
const (
	largeTable = 41*36 + 5
	smallTable = 9*24 + 1
)

func TestRoom(t *testing.T) {
	for name, c := range map[string]struct {
		owner int
		free  [3]uint64
		want  *transition.RoomError
	}{
		"plenty":         {1, [3]uint64{0, 10 * largeTable, 0}, nil},
		"too little":     {1, [3]uint64{1 << 20, 100, 1 << 20}, &transition.RoomError{Holder: server0(1), Need: largeTable + smallTable, Free: 100}},
		"no headroom":    {1, [3]uint64{1 << 20, largeTable + smallTable, 1 << 20}, &transition.RoomError{Holder: server0(1), Need: largeTable + smallTable, Free: largeTable + smallTable}},
		"nobody knows":   {1, [3]uint64{0, unknown, 0}, nil},
		"on other hosts": {2, [3]uint64{0, 0, 1 << 20}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			d := movableTables(2, 2, optimizer.Adam)
			j := newJob(t, d, policy.Servers, 3)
			var hosts [3]*host
			for i, s := range j.served {
				hosts[i] = on(s)
			}
			members := j.connect(t)
			start := onOwner(&j.d, 0)
			must(t, repartition(members, start))
			for i := range j.served {
				hosts[i].free.Store(c.free[i])
				j.reroute(i, "host0:1", "host1:1", "host2:1")
			}
			err := members[1].Room(context.Background(), onOwner(&j.d, c.owner))
			var full *transition.RoomError
			switch {
			case c.want == nil && err != nil:
				t.Error(err)
			case c.want != nil && (!errors.As(err, &full) || *full != *c.want):
				t.Errorf("got %v, want %+v", err, c.want)
			}
			if err := members[0].Room(context.Background(), start); err != nil {
				t.Errorf("for what is there: %v", err)
			}
			_, errs := step(members, 0, 0.1)
			must(t, errs)
			leave(t, j, members)
		})
	}
}

// Owners on one host share what it has free.
func TestRoomOfNeighbours(t *testing.T) {
	d := movableTables(2, 2, optimizer.Adam)
	j := newJob(t, d, policy.Servers, 3)
	var hosts []*host
	for _, s := range j.served {
		hosts = append(hosts, on(s))
	}
	members := j.connect(t)
	must(t, repartition(members, onOwner(&j.d, 0)))
	pieces := onOwner(&j.d, 1)
	pieces[len(pieces)-1].Holder = 2
	for _, h := range hosts {
		h.free.Store(2 * smallTable)
	}
	var full *transition.RoomError
	err := members[0].Room(context.Background(), pieces)
	if !errors.As(err, &full) || *full != (transition.RoomError{Holder: server0(0), Need: largeTable + smallTable, Free: 2 * smallTable}) {
		t.Errorf("got %v", err)
	}
	errs := repartition(members, pieces)
	blameAll(t, errs, "has no room")
}

// A worker that owns pieces answers too.
func TestRoomOnWorkers(t *testing.T) {
	j := newJob(t, movableTables(3, 3, optimizer.Adam), policy.AllReduce, 0)
	members := j.connect(t)
	h := on(members[1].local.server)
	if err := members[2].Room(context.Background(), onOwner(&j.d, 1)); err != nil {
		t.Error(err)
	}
	h.free.Store(5)
	for _, m := range members {
		var full *transition.RoomError
		if err := m.Room(context.Background(), onOwner(&j.d, 1)); !errors.As(err, &full) || full.Holder != worker(1) {
			t.Errorf("got %v", err)
		}
	}
	leave(t, j, members)
}
