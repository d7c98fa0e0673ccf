//go:build linux

package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Process is one line of the host's process table.
type Process struct {
	PID     int
	Parent  int    // pid of the parent
	Session int    // pid of the session's leader
	Start   uint64 // clock ticks from the start of the machine to that of the process
	Zombie  bool   // the process has ended and was not reaped
}

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
	return err == nil && p.Start == start && !p.Zombie
}

// parseStat reads the fields that follow the program's name. The name stands
// in parentheses and may contain any byte, parentheses included.
func parseStat(pid int, text []byte) (Process, error) {
	end := bytes.LastIndexByte(text, ')')
	if end < 0 {
		return Process{}, fmt.Errorf("/proc/%d/stat: no command name", pid)
	}
	// state ppid pgrp session tty ... at 17 the threads, at 19 the start time
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
	return Process{PID: pid, Parent: parent, Session: session, Start: start, Zombie: zombie}, nil
}

// list returns the process table, without processes that end meanwhile.
func list() ([]Process, error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer proc.Close() // only read
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var all []Process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
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

// Environment returns the variables that a process was started with. It fails
// for processes of other users.
func Environment(pid int) ([]string, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return nil, err
	}
	return strings.Split(string(text), "\x00"), nil
}

// OpenDescriptors lists the open descriptors of this process.
func OpenDescriptors() ([]int, error) {
	names, err := filepath.Glob("/proc/self/fd/*")
	var fds []int
	for _, name := range names {
		if fd, err := strconv.Atoi(filepath.Base(name)); err == nil {
			fds = append(fds, fd)
		}
	}
	return fds, err
}
