package transition

import (
	"fmt"
	"math"
	"net"
	"runtime/debug"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/layout"
)

// RoomError says that a holder's host has not the memory for what is to move
// to the holders on it.
type RoomError struct {
	Holder     cluster.Task
	Need, Free uint64 // bytes
}

func (e *RoomError) Error() string {
	return fmt.Sprintf("%s has no room for what is to move to its host: that takes up to %d MiB, %d MiB are free",
		e.Holder, e.Need>>20, e.Free>>20)
}

// headroom is the part of the free memory that Fits virtual workers free: a tenth.
// Repartition then finds room also if there is a little less of it.
const headroom = 10

// Fits reports whether there is room, with some to spare.
func (e *RoomError) Fits() bool { return e.Need <= e.Free-e.Free/headroom }

// Room returns the bytes that new pieces take on the holder's host, those of
// other holders on it included, and what the host has free. If nobody can say
// what is free, there is no end to it.
func (c Config) Room(now, next *layout.Declaration) RoomError {
	r := RoomError{Holder: c.self()}
	for i, t := range next.Holders {
		if t == c.self() || c.neighbour(t) {
			r.Need += next.Growth(now, i)
		}
	}
	var err error
	r.Free, err = c.Memory()
	if err == nil && r.Free < r.Need { // what Go has not given back yet is free as well
		debug.FreeOSMemory()
		r.Free, err = c.Memory()
	}
	if err != nil {
		r.Free = math.MaxUint64
	}
	return r
}

// neighbour reports whether another holder is on the same host.
func (c Config) neighbour(t cluster.Task) bool {
	mine, _, err := net.SplitHostPort(c.Cluster.Addr(c.self()))
	if err != nil {
		return false
	}
	other, _, err := net.SplitHostPort(c.Cluster.Addr(t))
	return err == nil && mine == other
}
