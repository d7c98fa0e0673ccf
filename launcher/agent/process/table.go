//go:build linux

// Package process lists the processes of this host, starts and reaps child
// processes, and kills processes together with all their descendants.
//
//	children, err := process.NewChildren()               // this process becomes a subreaper
//	child, err := children.Start(path, argv, attr, nil)
//	left, err := children.Clear(5 * time.Second)         // kills every descendant
//
// The package identifies a process by its pid and its start time, because the
// kernel reuses pids. It signals a process from a listing through a pidfd, so
// that no other process can get the signal. It signals only descendants of
// this process, processes whose environment names a job of plx, and processes
// in a systemd scope that plx has created. It never selects processes by
// program name.
//
// The package does not depend on tasks, leases or the network.
package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/trainer/cluster"
)

// Process is an entry of the host's process table, as read from /proc.
type Process struct {
	PID     int
	Parent  int    // pid of the parent
	Session int    // session id: the pid of the session's leader
	Start   uint64 // start time of the process in clock ticks since the host booted, without the offset of a time namespace
	Zombie  bool   // true if the process has ended and its parent has not reaped it
	Name    string // name of the program as the kernel shows it, at most 15 bytes
	Ticks   uint64 // CPU time of the process and of its reaped children, in clock ticks
}

// TicksPerSecond is the number of clock ticks per second in /proc. It is 100
// on every Linux system.
const TicksPerSecond = 100

// identity distinguishes a process from later processes that get the same pid.
type identity struct {
	pid   int
	start uint64
}

func (p Process) identity() identity { return identity{p.PID, p.Start} }

// Read returns the process with the given pid, as /proc/PID/stat describes it.
func Read(pid int) (Process, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Process{}, err
	}
	return parseStat(pid, text)
}

// Alive reports whether the process with the given pid and start time still
// runs.
func Alive(pid int, start uint64) bool {
	if pid <= 0 {
		return false
	}
	p, err := Read(pid)
	// Start times can differ by one tick, because the clock offset of a time
	// namespace need not be a whole number of ticks.
	return err == nil && p.Start+1 >= start && p.Start <= start+1 && !p.Zombie
}

// bootOffset is the number of clock ticks that this process's time namespace,
// such as that of a container, adds to the start times in /proc.
var bootOffset = sync.OnceValue(func() int64 {
	text, err := os.ReadFile("/proc/self/timens_offsets")
	if err != nil {
		return 0 // the kernel has no time namespaces
	}
	return parseOffset(string(text))
})

// parseOffset parses the text of /proc/self/timens_offsets. It returns the
// offset of the boot-time clock in clock ticks.
func parseOffset(text string) int64 {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line) // each line has three fields: name, seconds, nanoseconds
		if len(fields) != 3 || fields[0] != "boottime" && fields[0] != strconv.Itoa(unix.CLOCK_BOOTTIME) {
			continue
		}
		seconds, err1 := strconv.ParseInt(fields[1], 10, 64)
		nanoseconds, err2 := strconv.ParseInt(fields[2], 10, 64)
		if err1 == nil && err2 == nil {
			return seconds*TicksPerSecond + nanoseconds/(1e9/TicksPerSecond)
		}
	}
	return 0
}

// parseStat parses the text of /proc/PID/stat. The program's name is in
// parentheses and may itself contain parentheses, so the other fields begin
// after the last closing parenthesis.
func parseStat(pid int, text []byte) (Process, error) {
	begin, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if begin < 0 || end < begin {
		return Process{}, fmt.Errorf("/proc/%d/stat: no command name", pid)
	}
	// The fields after the name have these indexes: 0 state, 1 parent pid, 2
	// process group, 3 session, 11 to 14 CPU time, 17 number of threads, 19
	// start time.
	fields := strings.Fields(string(text[end+1:]))
	if len(fields) < 20 {
		return Process{}, fmt.Errorf("/proc/%d/stat: %d fields after the name, want 20", pid, len(fields))
	}
	parent, err1 := strconv.Atoi(fields[1])
	session, err2 := strconv.Atoi(fields[3])
	start, err3 := strconv.ParseUint(fields[19], 10, 64)
	if err := errors.Join(err1, err2, err3); err != nil {
		return Process{}, fmt.Errorf("/proc/%d/stat: %w", pid, err)
	}
	// The kernel also shows state Z if only the process's first thread has
	// ended. The process is a zombie only if no other thread runs.
	zombie := (fields[0] == "Z" || fields[0] == "X") && (fields[17] == "0" || fields[17] == "1")
	var ticks uint64
	for _, f := range fields[11:15] {
		n, err := strconv.ParseUint(f, 10, 64)
		if err != nil {
			return Process{}, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
		ticks += n
	}
	start = uint64(int64(start) - bootOffset())
	return Process{PID: pid, Parent: parent, Session: session, Start: start, Zombie: zombie, Name: string(text[begin+1 : end]), Ticks: ticks}, nil
}

// list returns the host's process table. It skips processes that end while it
// reads /proc.
func list() ([]Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var all []Process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, err := Read(pid); err == nil {
			all = append(all, p)
		}
	}
	return all, nil
}

// trees returns the processes in all that the function root accepts, and all
// their descendants. It omits the process with the pid self, and the
// descendants of self unless they also descend from another root.
func trees(all []Process, self int, root func(Process) bool) []Process {
	children := map[int][]Process{}
	for _, p := range all {
		children[p.Parent] = append(children[p.Parent], p)
	}
	var found []Process
	seen := map[int]bool{self: true}
	var add func(Process)
	add = func(p Process) {
		if seen[p.PID] {
			return
		}
		seen[p.PID] = true
		found = append(found, p)
		for _, c := range children[p.PID] {
			add(c)
		}
	}
	for _, p := range all {
		if root(p) {
			add(p)
		}
	}
	return found
}

// descendants lists all descendants of this process.
func descendants() ([]Process, error) {
	all, err := list()
	self := os.Getpid()
	return trees(all, self, func(p Process) bool { return p.Parent == self }), err
}

// Trees returns, for each pid in roots, the running processes of its tree: the
// root, the processes of its session, and the descendants of all these. Trees
// misses a process that has left the session and whose parent has ended.
func Trees(roots []int) (map[int][]Process, error) {
	all, err := list()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	found := map[int][]Process{}
	for _, root := range roots {
		tree := trees(all, os.Getpid(), func(p Process) bool { return p.PID == root || p.Session == root })
		found[root] = slices.DeleteFunc(tree, func(p Process) bool { return p.Zombie })
	}
	return found, nil
}

// Environment returns the environment that a process was started with. It
// fails if the process belongs to another user.
func Environment(pid int) ([]string, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return nil, err
	}
	return strings.Split(string(text), "\x00"), nil
}

// Environment variables that plx sets to recognise the processes of a job.
// Child processes inherit them.
const (
	// Name of the job, in the environment of the supervisor (the agent process
	// that runs the tasks).
	MarkAgent  = "PLX_AGENT_JOB"
	MarkTask   = "PLX_JOB"         // name of the job, in the environment of tasks
	MarkFolder = "PLX_HOST_FOLDER" // name of the job's folder on this host, in the environment of the supervisor (the agent process that runs the tasks) and of the tasks
)

// OfJob lists this user's processes whose environment names the job, and their
// descendants. A machine can serve as several hosts of a job, each with a
// folder of its own; folder selects one of them, and "" selects all.
func OfJob(job, folder string) ([]Process, error) {
	all, err := list()
	if err != nil {
		return nil, err
	}
	self := os.Getpid()
	return trees(all, self, func(p Process) bool {
		return p.PID != self && ownedByUser(p.PID) && markedWith(p.PID, job, folder)
	}), nil
}

// Mark identifies a job on this host: the job's name and the name of its
// folder, as in the environment of the job's processes.
type Mark struct{ Job, Folder string }

// Marked returns the pids of this user's processes whose environment names a
// job, grouped by that job and its folder.
func Marked() (map[Mark][]int, error) {
	all, err := list()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	found := map[Mark][]int{}
	for _, p := range all {
		if p.Zombie || !ownedByUser(p.PID) {
			continue
		}
		env, err := Environment(p.PID)
		if err != nil {
			continue // the process has ended
		}
		if m := markIn(env); m.Job != "" {
			found[m] = append(found[m], p.PID)
		}
	}
	return found, nil
}

func markIn(env []string) (m Mark) {
	for _, pair := range env {
		switch name, value, _ := strings.Cut(pair, "="); name {
		case MarkAgent, MarkTask:
			m.Job = value
		case MarkFolder:
			m.Folder = value
		}
	}
	return m
}

// ownedByUser reports whether a process belongs to the user of this process.
func ownedByUser(pid int) bool {
	info, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}

func markedWith(pid int, job, folder string) bool {
	env, err := Environment(pid)
	if err != nil {
		return false
	}
	of := slices.Contains(env, MarkTask+"="+job) || slices.Contains(env, MarkAgent+"="+job)
	return of && (folder == "" || slices.Contains(env, MarkFolder+"="+folder))
}

// TaskMark identifies the processes of one task by variables in their
// environment.
type TaskMark struct {
	Job, Folder string // name of the job and of its folder on the host, as in protocol.Spec
	Task        cluster.Task
	Generation  int
}

func (m TaskMark) in(env []string) bool {
	return !slices.ContainsFunc([]string{
		MarkTask + "=" + m.Job,
		MarkFolder + "=" + m.Folder,
		"PLX_ROLE=" + string(m.Task.Role),
		"PLX_TASK_INDEX=" + strconv.Itoa(m.Task.Index),
		"PLX_GENERATION=" + strconv.Itoa(m.Generation),
	}, func(pair string) bool { return !slices.Contains(env, pair) })
}

// OfTask lists the descendants of this process that belong to a task: the
// processes in child's session, the processes whose environment contains mark,
// and all their descendants. OfTask misses a process that has left the session
// and cleared its environment, and whose parent has ended. Clear kills such a
// process too.
func OfTask(child *Child, mark TaskMark) ([]Process, error) {
	all, err := descendants()
	return trees(all, os.Getpid(), func(p Process) bool {
		if !child.Over() && p.Session == child.PID {
			return true
		}
		env, err := Environment(p.PID)
		return err == nil && mark.in(env)
	}), err
}
