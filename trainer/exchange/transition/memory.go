package transition

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
)

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

// groupFiles are the names under which a version of control groups tells of
// memory. What is in inactive files is given back when it is needed.
type groupFiles struct{ limit, used, stat, inactive string }

var (
	version1 = groupFiles{"memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat", "total_inactive_file"}
	version2 = groupFiles{"memory.max", "memory.current", "memory.stat", "inactive_file"}
)

// left is the least that a group and those above it leave. Groups that cannot
// be seen, such as those outside a container, have no say.
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

// field returns the number behind a name at the Beginning of a line.
func field(text, name string) (uint64, error) {
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) >= 2 && words[0] == name {
			return strconv.ParseUint(words[1], 10, 54)
		}
	}
	return 0, errors.New("no " + name)
}
