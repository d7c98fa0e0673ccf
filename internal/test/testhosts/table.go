package testhosts

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
)

// Process is one process of a host.
type Process struct {
	// PID and PPID are process IDs inside the host. PPID is 0 for process 1
	// and for processes that [Host.Command] has started.
	PID, PPID int
	// OuterPID is the ID that the process has on the test's machine, outside
	// the host.
	OuterPID int
	// Name is the kernel's name of the process, at most 15 bytes. Args is the
	// command line; empty for a zombie.
	Name string
	Args []string
	// State is R, S, D, T, Z and so on, as in proc(5).
	State byte
	// Environ is the environment that the process was started with, as NAME=VALUE.
	Environ []string
	// Server is true if the process is part of the SSH server: process 1,
	// sshd's process of a connection, or sftp-server.
	Server bool

	start string // start time as in proc(5), to distinguish this process from a later one with the same ID
}

func (p Process) String() string {
	return fmt.Sprintf("%d (parent %d) %c %s %q", p.PID, p.PPID, p.State, p.Name, p.Args)
}

// Signal sends a signal to the process. It returns os.ErrProcessDone if the
// process has ended, even if another process has its ID now.
func (p Process) Signal(s syscall.Signal) error {
	if start, err := startTime(outside(p.OuterPID)); err != nil || start != p.start {
		return os.ErrProcessDone
	}
	if err := syscall.Kill(p.OuterPID, s); err != nil {
		if errors.Is(err, syscall.ESRCH) {
			return os.ErrProcessDone
		}
		return fmt.Errorf("signal process %d: %w", p.PID, err)
	}
	return nil
}

// table reads the processes of a host during one boot. It reads the /proc
// inside the host, which lists only the host's processes. To find the ID that
// a process has outside the host, it must search all processes of the test's
// machine. Therefore it searches only once per process.
type table struct {
	init int // ID that the host's process 1 has on the test's machine

	mu    sync.Mutex
	outer map[lifetime]int // maps a process of the host to its ID on the test's machine; refreshed if a process is missing; guarded by mu
}

// lifetime identifies a process of a host. A later process with the same ID
// has another lifetime.
type lifetime struct {
	pid   int    // process ID inside the host
	start string // start time as in proc(5)
}

func newTable(init int) *table { return &table{init: init, outer: map[lifetime]int{}} }

// outside returns the /proc folder, on the test's machine, of the process with
// the ID pid.
func outside(pid int) string { return fmt.Sprintf("/proc/%d", pid) }

// read returns the processes for whose names the function meant returns true.
// It may leave out processes that end during the call.
func (t *table) read(meant func(name string) bool) ([]Process, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	proc := outside(t.init) + "/root/proc"
	pids, err := numbered(proc)
	if err != nil {
		return nil, err
	}
	var all []Process
	looked := false
	for _, pid := range pids {
		folder := fmt.Sprintf("%s/%d", proc, pid)
		if name := readTrimmed(folder + "/comm"); name == "" || !meant(name) {
			continue
		}
		p, err := readProcess(folder, pid)
		if err != nil {
			continue // the process has ended
		}
		outer, known := t.outer[lifetime{pid, p.start}]
		if !known && !looked {
			if err := t.look(); err != nil {
				return nil, err
			}
			looked = true
			outer, known = t.outer[lifetime{pid, p.start}]
		}
		// A process that is still unknown has ended, or has started after the
		// call of look.
		if known {
			p.OuterPID = outer
			all = append(all, p)
		}
	}
	return all, nil
}

// look finds the IDs that all processes of the host have on the test's
// machine. The caller holds t.mu.
func (t *table) look() error {
	space, err := os.Readlink(outside(t.init) + "/ns/pid")
	if err != nil {
		return err
	}
	pids, err := numbered("/proc")
	if err != nil {
		return err
	}
	clear(t.outer)
	for _, outer := range pids {
		if link, err := os.Readlink(outside(outer) + "/ns/pid"); err != nil || link != space {
			continue // the process is not one of this host, or has ended
		}
		status, _ := os.ReadFile(outside(outer) + "/status")
		ids := strings.Fields(statusField(string(status), "NSpid"))
		start, err := startTime(outside(outer))
		if len(ids) < 2 || err != nil {
			continue // the process has ended
		}
		if pid, err := strconv.Atoi(ids[len(ids)-1]); err == nil {
			t.outer[lifetime{pid, start}] = outer
		}
	}
	return nil
}

// numbered returns the process IDs that the directory proc, a /proc, contains
// as names.
func numbered(proc string) ([]int, error) {
	folder, err := os.Open(proc)
	if err != nil {
		return nil, err
	}
	defer folder.Close() // opened for reading: an error of Close does not matter
	names, err := folder.Readdirnames(-1)
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids, err
}

// readProcess reads a process from its /proc folder. It does not set OuterPID.
func readProcess(folder string, pid int) (Process, error) {
	fields, err := statFields(folder)
	if err != nil {
		return Process{}, err
	}
	ppid, err := strconv.Atoi(fields[1])
	if err != nil {
		return Process{}, err
	}
	name := readTrimmed(folder + "/comm")
	return Process{
		PID: pid, PPID: ppid, Name: name, Args: readList(folder + "/cmdline"), State: fields[0][0],
		Environ: readList(folder + "/environ"), Server: isServer(name), start: fields[19],
	}, nil
}

// readList reads a file of NUL-terminated strings. It returns nil if the
// process has ended.
func readList(path string) []string {
	text, err := os.ReadFile(path)
	if err != nil || len(text) == 0 {
		return nil
	}
	return strings.Split(string(bytes.TrimSuffix(text, []byte{0})), "\x00")
}

// statFields returns the fields of /proc/PID/stat, beginning with field 3, the
// state. Field 2, the process name, may contain spaces and parentheses.
// Therefore statFields looks for the last closing parenthesis.
func statFields(folder string) ([]string, error) {
	stat, err := os.ReadFile(folder + "/stat")
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 {
		return nil, fmt.Errorf("%s/stat has %d fields", folder, len(fields))
	}
	return fields, nil
}

// startTime returns the start time of a process, field 22 of /proc/PID/stat.
// It distinguishes a process from a later one with the same ID.
func startTime(folder string) (string, error) {
	fields, err := statFields(folder)
	if err != nil {
		return "", err
	}
	return fields[19], nil
}

// recordPid records a process in the file path, so that a later test run can
// kill the process if this test run dies.
func recordPid(path string, pid int) error {
	start, err := startTime(outside(pid))
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(file, "%d %s\n", pid, start)
	return errors.Join(err, file.Close())
}

// killRecorded kills the processes that recordPid has recorded and that are
// still running.
func killRecorded(path string) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		var p Process
		if _, err := fmt.Sscanf(line, "%d %s", &p.OuterPID, &p.start); err != nil {
			continue // the line is incomplete, because its writer died
		}
		if err := p.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
	}
	return nil
}
