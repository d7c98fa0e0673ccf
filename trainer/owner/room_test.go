package owner

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/plx-run/plx/trainer/optimizer"
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
		want  *RoomError
	}{
		"plenty":         {1, [3]uint64{0, 10 * largeTable, 0}, nil},
		"too little":     {1, [3]uint64{1 << 20, 100, 1 << 20}, &RoomError{server0(1), largeTable + smallTable, 100}},
		"no headroom":    {1, [3]uint64{1 << 20, largeTable + smallTable, 1 << 20}, &RoomError{server0(1), largeTable + smallTable, largeTable + smallTable}},
		"nobody knows":   {1, [3]uint64{0, unknown, 0}, nil},
		"on other hosts": {2, [3]uint64{0, 0, 1 << 20}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			d := movableTables(2, 2, optimizer.Adam)
			j := newJob(t, d, Servers, 3)
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
			var full *RoomError
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
	j := newJob(t, d, Servers, 3)
	var hosts []*host
	for _, s := range j.served {
		hosts = append(hosts, on(s))
	}
	members := j.connect(t)
	must(t, repartition(members, onOwner(&j.d, 0)))
	pieces := onOwner(&j.d, 1)
	pieces[len(pieces)-1].Owner = 2
	for _, h := range hosts {
		h.free.Store(2 * smallTable)
	}
	var full *RoomError
	err := members[0].Room(context.Background(), pieces)
	if !errors.As(err, &full) || *full != (RoomError{server0(0), largeTable + smallTable, 2 * smallTable}) {
		t.Errorf("got %v", err)
	}
	errs := repartition(members, pieces)
	blameAll(t, errs, "has no room")
}

// A worker that owns pieces answers too.
func TestRoomOnWorkers(t *testing.T) {
	j := newJob(t, movableTables(3, 3, optimizer.Adam), AllReduce, 0)
	members := j.connect(t)
	h := on(members[1].local.server)
	if err := members[2].Room(context.Background(), onOwner(&j.d, 1)); err != nil {
		t.Error(err)
	}
	h.free.Store(5)
	for _, m := range members {
		var full *RoomError
		if err := m.Room(context.Background(), onOwner(&j.d, 1)); !errors.As(err, &full) || full.Owner != worker(1) {
			t.Errorf("got %v", err)
		}
	}
	leave(t, j, members)
}

func TestFreeMemory(t *testing.T) {
	const meminfo = "MemTotal: 100 kB\nMemAvailable:    50 kB\n"
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	for name, c := range map[string]struct {
		files fstest.MapFS
		want  uint64
	}{
		"no groups": {fstest.MapFS{}, 50 << 10},
		"version 2": {fstest.MapFS{
			"proc/self/cgroup":                   file("0::/a/b\n"),
			"sys/fs/cgroup/a/b/memory.max":       file("max\n"),
			"sys/fs/cgroup/a/b/memory.current":   file("1\n"),
			"sys/fs/cgroup/a/memory.max":         file("20480\n"),
			"sys/fs/cgroup/a/memory.current":     file("10240\n"),
			"sys/fs/cgroup/a/memory.stat":        file("anon 5\ninactive_file 1024\n"),
			"sys/fs/cgroup/memory.stat":          file("inactive_file 1024\n"),
			"sys/fs/cgroup/elsewhere/memory.max": file("0\n"),
		}, 20480 - 10240 + 1024},
		"version 1": {fstest.MapFS{
			"proc/self/cgroup": file("5:cpu,cpuacct:/x\n4:memory:/job\n0::/unified\n"),
			"sys/fs/cgroup/memory/job/memory.limit_in_bytes": file("4096"),
			"sys/fs/cgroup/memory/job/memory.usage_in_bytes": file("5000"),
			"sys/fs/cgroup/memory/memory.limit_in_bytes":     file("9223372036854771712"),
			"sys/fs/cgroup/memory/memory.usage_in_bytes":     file("1"),
		}, 0},
		"container": {fstest.MapFS{
			"proc/self/cgroup":             file("0::/../../elsewhere\n"),
			"sys/fs/cgroup/memory.max":     file("8192\n"),
			"sys/fs/cgroup/memory.current": file("8000\n"),
			"sys/fs/cgroup/memory.stat":    file("nonsense\ninactive_file x\n"),
		}, 192},
		"the host has less": {fstest.MapFS{
			"proc/self/cgroup":             file("0::/\n"),
			"sys/fs/cgroup/memory.max":     file("1000000\n"),
			"sys/fs/cgroup/memory.current": file("0\n"),
		}, 50 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			c.files["proc/meminfo"] = file(meminfo)
			if got, err := freeOn(c.files); got != c.want || err != nil {
				t.Errorf("got %d, %v; want %d", got, err, c.want)
			}
		})
	}
	for _, files := range []fstest.MapFS{{}, {"proc/meminfo": file("MemAvailable: lots kB")}, {"proc/meminfo": file("MemFree: 1 kB")}} {
		if got, err := freeOn(files); err == nil || !strings.Contains(err.Error(), "free memory") {
			t.Errorf("got %d, %v", got, err)
		}
	}
}
