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

// RoomError reports that the host of a holder lacks the memory for the rows
// that would move to that host.
type RoomError struct {
	Holder     cluster.Task
	Need, Free uint64 // bytes
}

func (e *RoomError) Error() string {
	return fmt.Sprintf("%s has no room for what is to move to its host: that takes up to %d MiB, %d MiB are free",
		e.Holder, e.Need>>20, e.Free>>20)
}

// headroom is the divisor for the part of the free memory that Fits keeps in
// reserve: a tenth. Repartition then succeeds even if slightly less is free.
const headroom = 10

// Fits reports whether there is enough memory, with headroom in reserve.
func (e *RoomError) Fits() bool { return e.Need <= e.Free-e.Free/headroom }

// Room returns the bytes that the new pieces need on the holder's host,
// including those of other holders there, and the free bytes. If these are
// unknown, Room assumes that memory is unlimited.
func (c Config) Room(now, next *layout.Declaration) RoomError {
	r := RoomError{Holder: c.self()}
	for i, t := range next.Holders {
		if t == c.self() || c.neighbour(t) {
			r.Need += next.Growth(now, i)
		}
	}
	var err error
	r.Free, err = c.Memory()
	if err == nil && r.Free < r.Need { // memory that Go has not returned to the system is free too
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

// FreeMemory returns how many bytes this process could still allocate: the
// available memory of its host. If the limit of its control group leaves less,
// it returns that.
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

// groupFiles are the files in which a version of control groups reports memory.
// The kernel reclaims the memory of inactive files when it is needed.
type groupFiles struct{ limit, used, stat, inactive string }

var (
	version1 = groupFiles{"memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat", "total_inactive_file"}
	version2 = groupFiles{"memory.max", "memory.current", "memory.stat", "inactive_file"}
)

// left returns the least memory that a group or one of its ancestors leaves. It
// ignores groups that it cannot read, such as those outside a container.
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
