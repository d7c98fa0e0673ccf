//go:build linux

// Package process handles the processes of one host: it lists them, starts
// them, reaps them and kills them with all that they have started.
//
//	children, err := process.NewChildren()               // this process becomes a subreaper
//	child, err := children.Start(path, argv, attr, nil)
//	left, err := children.Clear(5 * time.Second)         // every descendant is gone
//
// A process is named by its pid and start time, because the kernel reuses pids. A
// process that was found in a listing is signalled through a pidfd, so that no other
// process gets the signal. The package signals only descendants of this process,
// processes that are marked with a job, and those of a scope that plx has made. It never selects processes by program name.
//
// The package knows nothing of tasks, leases or the network.
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

// Process is one line of the host's process table.
type Process struct {
	PID     int
	Parent  int    // pid of the parent
	Session int    // pid of the leader of the process's session
	Start   uint64 // clock ticks from the start of the machine to that of the process, by the host's own clock
	Zombie  bool   // the process has ended and was not reaped
	Name    string // the kernel's name for the program, at most 15 bytes
	Ticks   uint64 // processor time in clock ticks, with that of children that were reaped
}

// TicksPerSecond is how many clock ticks a second has for programs: Linux fixes it.
const TicksPerSecond = 100

// identity tells a process from later ones with its pid.
type identity struct {
	pid   int
	start uint64
}

func (p Process) identity() identity { return identity{p.PID, p.Start} }

// Read reads a process from /proc/PID/stat.
func Read(pid int) (Process, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Process{}, err
	}
	return parseStat(pid, text)
}

// Alive reports whether the process with that pid and start time has not ended.
func Alive(pid int, start uint64) bool {
	if pid <= 0 {
		return false
	}
	p, err := Read(pid)
	// Offsets of time namespaces are no whole numbers of ticks.
	return err == nil && p.Start+1 >= start && p.Start <= start+1 && !p.Zombie
}

// bootOffset is by how many clock ticks the time namespace of this process, such as that of a
// container, shows start times later than the host's own clock does.
var bootOffset = sync.OnceValue(func() int64 {
	text, err := os.ReadFile("/proc/self/timens_offsets")
	if err != nil {
		return 0 // a kernel without time namespaces
	}
	return parseOffset(string(text))
})

// parseOffset returns the offset of the clock since the boot in /proc/self/timens_offsets, in
// clock ticks.
func parseOffset(text string) int64 {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line) // name, seconds, nanoseconds
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

// parseStat reads the fields that follow the program's name. The name stands
// in parentheses and may contain any byte, parentheses included.
func parseStat(pid int, text []byte) (Process, error) {
	begin, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if begin < 0 || end < begin {
		return Process{}, fmt.Errorf("/proc/%d/stat: no command name", pid)
	}
	// state ppid pgrp session tty ... at 11 to 14 processor time, at 17 the threads, at 19 the start time
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
	// The kernel shows a process whose first thread has ended as a zombie,
	// although other threads of it go on.
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

// list returns the process table, without processes that end meanwhile.
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

// trees returns the processes of all that root accepts, and all descendants of
// these. It leaves out the process self and what only self leads to.
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

// descendants returns the descendants of this process.
func descendants() ([]Process, error) {
	all, err := list()
	self := os.Getpid()
	return trees(all, self, func(p Process) bool { return p.Parent == self }), err
}

// Trees lists the processes of each root: the root, those in its session, and the
// descendants of both. It leaves out zombies. It misses a process that has left the
// session and lost its parent.
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

// Environment returns the variables that a process was started with. It fails
// for processes of other users.
func Environment(pid int) ([]string, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return nil, err
	}
	return strings.Split(string(text), "\x00"), nil
}

// Environment variables by which the processes of a job are recognised. A
// process inherits them from the one that started it.
const (
	MarkAgent  = "PLX_AGENT_JOB"   // the job, in the supervisor
	MarkTask   = "PLX_JOB"         // the job, in tasks
	MarkFolder = "PLX_HOST_FOLDER" // the job's host folder, in all of them
)

// OfJob lists the processes of this user that belong to a job, with their
// descendants. A machine can be several hosts of a job: folder selects one of
// them, "" all.
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

// Mark is a job and its folder on the host, as in the environment of its processes.
type Mark struct{ Job, Folder string }

// Marked returns the pids of this user's processes that are marked with a job.
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
			continue // it has ended
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

// ownedByUser reports whether a process runs as this user.
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

// TaskMark identifies the processes of a task by the environment that they
// were started with.
type TaskMark struct {
	Job, Folder string // as in protocol.Spec
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

// OfTask lists the descendants of this process that belong to a task: those in
// the session of child, those with the mark, and the descendants of both. It misses a process that has left the session, lost its parent and
// cleared its environment; Clear finds that one too.
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
