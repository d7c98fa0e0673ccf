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

// RoomError reports how much memory the host of a shard holder (a task that
// keeps variables) needs when variables move to it, and how much is free. The
// move fails with this error if the free memory is not enough.
type RoomError struct {
	Holder     cluster.Task
	Need, Free uint64 // memory that Holder needs to receive the moved variables, and free memory of its host, in bytes
}

func (e *RoomError) Error() string {
	return fmt.Sprintf("%s has no room for the variables that are to move to its host: up to %d MiB needed, %d MiB free",
		e.Holder, e.Need>>20, e.Free>>20)
}

// headroom is the divisor of the part of the free memory that Fits keeps in
// reserve: a tenth. With this reserve, a move that Fits has allowed still
// succeeds if the free memory shrinks a little before the move.
const headroom = 10

// Fits reports whether the free memory suffices, after a tenth of it is kept
// in reserve.
func (e *RoomError) Fits() bool { return e.Need <= e.Free-e.Free/headroom }

// Room returns the memory that the new pieces in next need on this host, and
// the free memory of the host. The needed memory is the sum for all tasks on
// the host that hold pieces. If the free memory cannot be determined, Room
// reports it as unlimited.
func (c Config) Room(now, next *layout.Declaration) RoomError {
	r := RoomError{Holder: c.self()}
	for i, t := range next.Holders {
		if t == c.self() || c.neighbour(t) {
			r.Need += next.Growth(now, i)
		}
	}
	var err error
	r.Free, err = c.Memory()
	if err == nil && r.Free < r.Need { // return unused memory of the Go heap to the system, and measure again
		debug.FreeOSMemory()
		r.Free, err = c.Memory()
	}
	if err != nil {
		r.Free = math.MaxUint64
	}
	return r
}

// neighbour reports whether task t runs on the same host as this task. Both
// are shard holders (tasks that keep parts of the variables).
func (c Config) neighbour(t cluster.Task) bool {
	mine, _, err := net.SplitHostPort(c.Cluster.Addr(c.self()))
	if err != nil {
		return false
	}
	other, _, err := net.SplitHostPort(c.Cluster.Addr(t))
	return err == nil && mine == other
}

// FreeMemory returns the number of bytes that this process can still allocate.
// That is the available memory of the host. If the process's control group
// (cgroup) has a memory limit, and less is left of that limit, it is what is
// left of the limit.
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
		return free, nil // the system has no control groups
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

// groupFiles names the files in which a version of cgroups reports a group's
// memory limit and use. inactive is a field in the file stat: the size of page
// cache that the kernel reclaims if necessary, and that therefore counts as
// free.
type groupFiles struct{ limit, used, stat, inactive string }

var (
	version1 = groupFiles{"memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat", "total_inactive_file"}
	version2 = groupFiles{"memory.max", "memory.current", "memory.stat", "inactive_file"}
)

// left returns how many more bytes a process of a control group can allocate.
// That is the least of what is left of the limits of the group and its
// ancestors. left ignores groups whose files it cannot read, for example
// outside a container.
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
		return 0, err // the limit is not a number: it is "max", which means none, or its file is missing
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

// field returns the number in that line of text whose first word is name.
func field(text, name string) (uint64, error) {
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) >= 2 && words[0] == name {
			return strconv.ParseUint(words[1], 10, 54)
		}
	}
	return 0, errors.New("no " + name)
}
