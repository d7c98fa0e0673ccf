package transition

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/layout"
)

// RoomError reports that a holder's host lacks the memory for what is to move to
// the holders on it.
type RoomError struct {
	Holder     cluster.Task
	Need, Free uint64 // bytes
}

func (e *RoomError) Error() string {
	return fmt.Sprintf("%s has no room for what is to move to its host: that takes up to %d MiB, %d MiB are free",
		e.Holder, e.Need>>20, e.Free>>20)
}

// headroom is the part of the free memory that Fits does not count on: a tenth.
// Repartition then finds room even if a little less is free.
const headroom = 10

// Fits reports whether there is room, with headroom to spare.
func (e *RoomError) Fits() bool { return e.Need <= e.Free-e.Free/headroom }

// Room returns the bytes that new pieces take on the holder's host, those of
// other holders on it included, and what the host has free. If that is unknown,
// there is no end to it.
func (c Config) Room(now, next *layout.Declaration) RoomError {
	r := RoomError{Holder: c.self()}
	for i, t := range next.Holders {
		if t == c.self() || c.neighbour(t) {
			r.Need += next.Growth(now, i)
		}
	}
	var err error
	r.Free, err = c.Memory()
	if err == nil && r.Free < r.Need { // what Go has not returned to the system yet is free as well
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

// FreeMemory returns the bytes that this process could still take: what its
// host has available, or what the limit of its control group leaves, if that
// is less.
func FreeMemory() (uint64, error) { return freeOn(os.DirFS("/")) }

func freeOn(root fs.FS) (uint64, error) {
	text, err := fs.ReadFile(root, "proc/meminfo")
	if err != nil {
		return 0, fmt.Errorf("free memory: %w", err)
	}
	kilobytes, err := field(string(text), "MemAvailable:")
	if err != nil {
		return 0, fmt.Errorf("free memory: %w", err)
	}
	free := kilobytes << 10
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return free, nil // a system without them
	}
	for line := range strings.Lines(string(groups)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		switch {
		case parts[0] == "0" && parts[1] == "":
			free = min(free, left(root, "sys/fs/cgroup", parts[2], version2))
		case strings.Contains(","+parts[1]+",", ",memory,"):
			free = min(free, left(root, "sys/fs/cgroup/memory", parts[2], version1))
		}
	}
	return free, nil
}

// groupFiles are the files in which a version of control groups reports memory.
// The kernel gives memory of inactive files back when it is needed.
type groupFiles struct{ limit, used, stat, inactive string }

var (
	version1 = groupFiles{"memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat", "total_inactive_file"}
	version2 = groupFiles{"memory.max", "memory.current", "memory.stat", "inactive_file"}
)

// left is the least that a group and those above it leave. Groups that cannot
// be read, such as those outside a container, do not count.
func left(root fs.FS, mount, group string, files groupFiles) uint64 {
	least := ^uint64(0)
	for at := path.Clean("/" + group); ; at = path.Dir(at) {
		if n, err := leftIn(root, path.Join(mount, at), files); err == nil {
			least = min(least, n)
		}
		if at == "/" {
			return least
		}
	}
}

func leftIn(root fs.FS, folder string, files groupFiles) (uint64, error) {
	limit, err := readNumber(root, path.Join(folder, files.limit))
	if err != nil {
		return 0, err // "max", or no such file
	}
	used, err := readNumber(root, path.Join(folder, files.used))
	if err != nil {
		return 0, err
	}
	if stat, err := fs.ReadFile(root, path.Join(folder, files.stat)); err == nil {
		if inactive, err := field(string(stat), files.inactive); err == nil {
			used -= min(used, inactive)
		}
	}
	return limit - min(limit, used), nil
}

func readNumber(root fs.FS, name string) (uint64, error) {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
}

// field returns the number after a name at the beginning of a line.
func field(text, name string) (uint64, error) {
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) >= 2 && words[0] == name {
			return strconv.ParseUint(words[1], 10, 54)
		}
	}
	return 0, errors.New("no " + name)
}
