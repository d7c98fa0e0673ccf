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

// ErrNoMemoryGroups is the error on a machine whose kernel has no control
// groups for memory.
var ErrNoMemoryGroups = errors.New("testhosts: no control groups for memory")

// memoryGroups describes the machine's hierarchy of memory control groups,
// cgroup v1 or v2.
type memoryGroups struct {
	root, limit, events string // folder of the hierarchy, name of the file in a group's folder with its limit, and name of the file with its events
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

// OutOfMemory makes the kernel's OOM killer kill a process. It moves the
// process to a control group with little memory, and starts another process in
// the group that uses up this memory. It returns after the kernel has reported
// the kill.
//
// pid is the process ID on the test's machine, as [Process.OuterPID] gives it.
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
	folder string // path of the group's folder
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

// fill starts a process in the group that writes more data to memory than the
// group may have. It returns the error output of this process. The OOM killer
// first kills the process that OutOfMemory has chosen, and later the process
// that fill has started.
func (g memoryGroup) fill() string {
	file, err := os.CreateTemp("/dev/shm", "plx-testhosts-")
	if err != nil {
		return err.Error()
	}
	defer os.Remove(file.Name()) // if the removal fails, only memory is lost, because the file is in memory
	defer file.Close()           // the file is removed, so an error of Close does not matter
	script := fmt.Sprintf("echo $$ >%s/cgroup.procs && exec head -c %d /dev/zero", g.folder, 2*groupLimit)
	var complaint strings.Builder
	cmd := exec.Command("sh", "-c", script)
	cmd.Stdout, cmd.Stderr = file, &complaint
	err = cmd.Run() // fails for lack of memory, as intended
	return fmt.Sprintf("%v: %s", err, complaint.String())
}

// remove moves surviving processes out of the group. It removes the group as
// soon as all other processes of the group have ended, and waits at most
// [patience.Limit] for this.
func (g memoryGroup) remove() error {
	left, _ := os.ReadFile(filepath.Join(g.folder, "cgroup.procs")) // processes that survived and must leave the group; none if the file cannot be read
	for pid := range strings.Lines(string(left)) {
		_ = os.WriteFile(filepath.Join(g.root, "cgroup.procs"), []byte(strings.TrimSpace(pid)), 0) // fails if the process has ended, which does not matter
	}
	for deadline := time.Now().Add(patience.Limit); ; time.Sleep(5 * time.Millisecond) {
		err := os.Remove(g.folder)
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}
