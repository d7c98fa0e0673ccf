package testhosts

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
)

// ErrNoMemoryGroups says that the machine has no control groups for memory.
var ErrNoMemoryGroups = errors.New("testhosts: no control groups for memory")

// memoryGroups is a hierarchy of control groups, of version 1 or 2.
type memoryGroups struct {
	root, limit, events string // folder of the hierarchy; files of a group for its limit and for its events
}

func findMemoryGroups() (memoryGroups, error) {
	const root = "/sys/fs/cgroup"
	if text, err := os.ReadFile(root + "/cgroup.controllers"); err == nil && strings.Contains(string(text), "memory") {
		err := os.WriteFile(root+"/cgroup.subtree_control", []byte("+memory"), 0)
		return memoryGroups{root, "memory.max", "memory.events"}, err
	}
	if _, err := os.Stat(root + "/memory/memory.limit_in_bytes"); err == nil {
		return memoryGroups{root + "/memory", "memory.limit_in_bytes", "memory.oom_control"}, nil
	}
	return memoryGroups{}, ErrNoMemoryGroups
}

// OutOfMemory has the kernel kill a process because memory has run out: that
// of a control group into which the process is put, beside another one that
// fills it. It returns once the kernel says that it has.
//
// pid is the process as this machine sees it, see [Process.OuterPID].
func OutOfMemory(pid int) error {
	groups, err := findMemoryGroups()
	if err != nil {
		return err
	}
	folder := filepath.Join(groups.root, fmt.Sprintf("plx-testhosts-%d", pid))
	if err := os.Mkdir(folder, 0o755); err != nil {
		return fmt.Errorf("testhosts: make a group: %w", err)
	}
	g := memoryGroup{groups, folder}
	return errors.Join(g.kill(pid), g.remove())
}

type memoryGroup struct {
	memoryGroups
	folder string // of the group
}

func (g memoryGroup) write(name, value string) error {
	return os.WriteFile(filepath.Join(g.folder, name), []byte(value), 0)
}

func (g memoryGroup) kill(pid int) error {
	err := errors.Join(
		g.write(g.limit, strconv.Itoa(groupLimit)),
		os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte("1000"), 0),
		g.write("cgroup.procs", strconv.Itoa(pid)))
	if err != nil {
		return fmt.Errorf("testhosts: put process %d into a group: %w", pid, err)
	}
	complaint := g.fill()
	events, err := os.ReadFile(filepath.Join(g.folder, g.events))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(events)) {
		if n, found := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); found && n != "0" {
			return nil
		}
	}
	return fmt.Errorf("testhosts: the group of process %d was filled, but the kernel killed nobody: %s; filling it: %s", pid, events, complaint)
}

const groupLimit = 16 << 20

// fill writes more into memory than the group may have, and returns what was
// said of it. The kernel kills whoever does it too, but later.
func (g memoryGroup) fill() string {
	file, err := os.CreateTemp("/dev/shm", "plx-testhosts-")
	if err != nil {
		return err.Error()
	}
	defer os.Remove(file.Name()) // it lies in memory
	defer file.Close()           // it is removed
	script := fmt.Sprintf("echo $$ >%s/cgroup.procs && exec head -c %d /dev/zero", g.folder, 2*groupLimit)
	var complaint strings.Builder
	cmd := exec.Command("sh", "-c", script)
	cmd.Stdout, cmd.Stderr = file, &complaint
	err = cmd.Run() // there is to be no room for it
	return fmt.Sprintf("%v: %s", err, complaint.String())
}

// remove waits for the end of what was in the group, [patience.Limit] at most.
func (g memoryGroup) remove() error {
	left, _ := os.ReadFile(filepath.Join(g.folder, "cgroup.procs")) // one that was not killed goes back
	for pid := range strings.Lines(string(left)) {
		_ = os.WriteFile(filepath.Join(g.root, "cgroup.procs"), []byte(strings.TrimSpace(pid)), 0) // it may have ended
	}
	for deadline := time.Now().Add(patience.Limit); ; time.Sleep(5 * time.Millisecond) {
		err := os.Remove(g.folder)
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}
