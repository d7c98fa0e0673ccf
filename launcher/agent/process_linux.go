package agent

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// process is one line of the process table. Pid and start time together name
// a process; a pid alone is used again after its end.
type process struct {
	pid, parent, session int
	start                uint64 // clock ticks since the machine started
	zombie               bool
}

// readProcess reads /proc/PID/stat.
func readProcess(pid int) (process, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, err
	}
	return parseStat(pid, text)
}

// parseStat reads the fields behind the command's name, which stands in
// parentheses and may hold any byte, parentheses too.
func parseStat(pid int, text []byte) (process, error) {
	end := bytes.LastIndexByte(text, ')')
	if end < 0 {
		return process{}, fmt.Errorf("/proc/%d/stat: no command name", pid)
	}
	// state ppid pgrp session tty ... at 17 the threads, at 19 the start time
	fields := strings.Fields(string(text[end+1:]))
	if len(fields) < 20 {
		return process{}, fmt.Errorf("/proc/%d/stat: %d fields after the name, want 20", pid, len(fields))
	}
	parent, err1 := strconv.Atoi(fields[1])
	session, err2 := strconv.Atoi(fields[3])
	start, err3 := strconv.ParseUint(fields[19], 10, 64)
	if err := errors.Join(err1, err2, err3); err != nil {
		return process{}, fmt.Errorf("/proc/%d/stat: %w", pid, err)
	}
	// A process whose first thread has ended while others go on is shown as
	// a zombie with several threads.
	zombie := (fields[0] == "Z" || fields[0] == "X") && (fields[17] == "0" || fields[17] == "1")
	return process{pid: pid, parent: parent, session: session, start: start, zombie: zombie}, nil
}

// processes lists the process table. Processes that end meanwhile are left out.
func processes() ([]process, error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer proc.Close() // only read
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var list []process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, err := readProcess(pid); err == nil {
			list = append(list, p)
		}
	}
	return list, nil
}

// descendants picks the processes of list below those that root accepts, and
// these roots themselves but for the process self.
func descendants(list []process, self int, root func(process) bool) []process {
	children := map[int][]process{}
	for _, p := range list {
		children[p.parent] = append(children[p.parent], p)
	}
	var found []process
	seen := map[int]bool{self: true}
	var add func(process)
	add = func(p process) {
		if seen[p.pid] {
			return
		}
		seen[p.pid] = true
		found = append(found, p)
		for _, c := range children[p.pid] {
			add(c)
		}
	}
	for _, p := range list {
		if root(p) {
			add(p)
		}
	}
	return found
}

// below returns the descendants of this process, without children that are
// spared and those below them.
func below(spared ...int) ([]process, error) {
	list, err := processes()
	self := os.Getpid()
	return descendants(list, self, func(p process) bool { return p.parent == self && !slices.Contains(spared, p.pid) }), err
}

// environment returns the variables that a process was started with. It
// fails for processes of other users.
func environment(pid int) ([]string, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return nil, err
	}
	return strings.Split(string(text), "\x00"), nil
}

// openDescriptors lists the descriptors of this process.
func openDescriptors() ([]int, error) {
	names, err := filepath.Glob("/proc/self/fd/*")
	var fds []int
	for _, name := range names {
		if fd, err := strconv.Atoi(filepath.Base(name)); err == nil {
			fds = append(fds, fd)
		}
	}
	return fds, err
}

// handle names a process for as long as it is held, whatever becomes of its
// pid.
type handle struct {
	process
	fd int // pidfd; -1 on kernels before 5.3
}

// hold returns a handle for p. ok is false when p has ended.
func hold(p process) (h handle, ok bool) {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return handle{fd: -1}, false
	}
	if err != nil {
		fd = -1
	}
	h = handle{process: p, fd: fd}
	// Between the listing and the opening another process may have taken
	// the pid.
	if now, err := readProcess(p.pid); err != nil || now.start != p.start {
		h.close()
		return handle{fd: -1}, false
	}
	return h, true
}

// signal sends a signal. A process that has ended is no error.
func (h handle) signal(sig unix.Signal) error {
	err := error(unix.ENOSYS)
	if h.fd >= 0 {
		err = unix.PidfdSendSignal(h.fd, sig, nil, 0)
	}
	if errors.Is(err, unix.ENOSYS) {
		if h.gone() {
			return nil
		}
		err = unix.Kill(h.pid, sig)
	}
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// gone reports whether the process has ended, reaped or not.
func (h handle) gone() bool {
	p, err := readProcess(h.pid)
	return err != nil || p.start != h.start || p.zombie
}

func (h handle) close() {
	if h.fd >= 0 {
		unix.Close(h.fd) // a descriptor without data fails to close in no way that matters
	}
}
