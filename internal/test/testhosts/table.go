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

// Process is one line of a host's process table.
type Process struct {
	// PID and PPID are the ids inside the host. PPID is 0 for process 1 and for a
	// process that [Host.Command] has started.
	PID, PPID int
	// OuterPID is the id of the process outside the host, on the test's machine.
	OuterPID int
	// Name is the kernel's name, at most 15 bytes. Args is empty for a zombie.
	Name string
	Args []string
	// State is R, S, D, T, Z and so on, as in proc(5).
	State byte
	// Environ is the environment that the process was started with, as NAME=VALUE.
	Environ []string
	// Server tells that the process belongs to the SSH server: process 1, its process
	// for a connection, sftp.
	Server bool

	start string // start time as in proc(5), to tell the process from a later one
}

func (p Process) String() string {
	return fmt.Sprintf("%d (parent %d) %c %s %q", p.PID, p.PPID, p.State, p.Name, p.Args)
}

// Signal sends a signal; os.ErrProcessDone if that very process is gone.
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

// table is the process table of one boot of a host. It is read from the /proc that
// the host has mounted, which shows nothing but the host's processes. Only their
// ids outside must be looked for among all processes of this machine, once each.
type table struct {
	init int // pid of the host's process 1, as seen from outside

	mu    sync.Mutex
	outer map[lifetime]int // pids as seen from outside; read again if a process is missing
}

// lifetime tells a process of a host from a later one of the same id.
type lifetime struct {
	pid   int    // as the host sees it
	start string // start time as in proc(5)
}

func newTable(init int) *table { return &table{init: init, outer: map[lifetime]int{}} }

// outside is the folder of a process that this machine sees as pid.
func outside(pid int) string { return fmt.Sprintf("/proc/%d", pid) }

// read returns the processes whose names are meant. A process that ends meanwhile
// may be left out.
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
			continue // it has ended
		}
		outer, known := t.outer[lifetime{pid, p.start}]
		if !known && !looked {
			if err := t.look(); err != nil {
				return nil, err
			}
			looked = true
			outer, known = t.outer[lifetime{pid, p.start}]
		}
		if known {
			p.OuterPID = outer
			all = append(all, p)
		} // else it has ended, or began after the look
	}
	return all, nil
}

// look finds the ids outside of all processes that run now. The caller holds t.mu.
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
			continue // another's, or it has ended
		}
		status, _ := os.ReadFile(outside(outer) + "/status")
		ids := strings.Fields(statusField(string(status), "NSpid"))
		start, err := startTime(outside(outer))
		if len(ids) < 2 || err != nil {
			continue // it has ended
		}
		if pid, err := strconv.Atoi(ids[len(ids)-1]); err == nil {
			t.outer[lifetime{pid, start}] = outer
		}
	}
	return nil
}

// numbered lists the ids of the processes that a /proc shows.
func numbered(proc string) ([]int, error) {
	folder, err := os.Open(proc)
	if err != nil {
		return nil, err
	}
	defer folder.Close() // only read
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

// readProcess leaves OuterPID out.
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

// readList reads strings that end with NUL; none when the process has ended.
func readList(path string) []string {
	text, err := os.ReadFile(path)
	if err != nil || len(text) == 0 {
		return nil
	}
	return strings.Split(string(bytes.TrimSuffix(text, []byte{0})), "\x00")
}

// statFields are those of proc(5) from the state on, which is field 3. A name may
// hold anything, so they are counted from its closing parenthesis, the last one.
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

// startTime tells one process from a later one of the same id. It is field 22.
func startTime(folder string) (string, error) {
	fields, err := statFields(folder)
	if err != nil {
		return "", err
	}
	return fields[19], nil
}

// recordPid notes a process for whoever cleans up after this one has died.
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

// killRecorded ends what recordPid noted and still runs.
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
			continue // its writer died while it wrote
		}
		if err := p.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
	}
	return nil
}
