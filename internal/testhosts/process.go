package testhosts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Process is one line of a host's process table.
type Process struct {
	// PID and PPID are as the host sees them. PPID is 0 for process 1 and for
	// what [Host.Command] runs.
	PID, PPID int
	// OuterPID is the process as the test sees it.
	OuterPID int
	// Name is the kernel's name, at most 15 bytes. Args is empty for a zombie.
	Name string
	Args []string
	// State is R, S, D, T, Z and so on, as in proc(5).
	State byte
	// Environ is what the process was started with.
	Environ []string
	// Server says that it belongs to the SSH server: process 1, its process
	// for a connection, sftp.
	Server bool

	start string
}

func (p Process) String() string {
	return fmt.Sprintf("%d (parent %d) %c %s %q", p.PID, p.PPID, p.State, p.Name, p.Args)
}

// Signal sends a signal; os.ErrProcessDone if that very process is gone.
func (p Process) Signal(s syscall.Signal) error {
	if start, err := startTime(p.OuterPID); err != nil || start != p.start {
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

// Processes returns the host's whole process table, read from outside so that
// the reading itself is not in it; nothing when the power is off.
func (h *Host) Processes() ([]Process, error) {
	h.mu.Lock()
	pid, err := h.pid()
	h.mu.Unlock()
	if err != nil {
		return nil, nil
	}
	space, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	if err != nil {
		return nil, fmt.Errorf("process table of %s: %w", h.Name, err)
	}
	folders, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	var all []Process
	for _, folder := range folders {
		if link, err := os.Readlink(folder + "/ns/pid"); err != nil || link != space {
			continue
		}
		if p, err := readProcess(folder); err == nil {
			all = append(all, p)
		} // else it ended while it was read
	}
	translateParents(all)
	return all, nil
}

// readProcess leaves in PPID the parent as seen from outside.
func readProcess(folder string) (Process, error) {
	var p Process
	status, err := os.ReadFile(folder + "/status")
	if err != nil {
		return p, err
	}
	text := string(status)
	ids := strings.Fields(statusField(text, "NSpid"))
	if len(ids) < 2 {
		return p, errors.New("not in a namespace")
	}
	state := statusField(text, "State")
	p.Name = statusField(text, "Name")
	p.Server = strings.HasPrefix(p.Name, "sshd") || p.Name == "sftp-server"
	var errs [4]error
	p.OuterPID, errs[0] = strconv.Atoi(ids[0])
	p.PID, errs[1] = strconv.Atoi(ids[len(ids)-1])
	p.PPID, errs[2] = strconv.Atoi(statusField(text, "PPid"))
	p.start, errs[3] = startTime(p.OuterPID)
	if state == "" {
		return p, errors.New("no state")
	}
	p.State = state[0]
	p.Args = readList(folder + "/cmdline")
	p.Environ = readList(folder + "/environ")
	return p, errors.Join(errs[:]...)
}

// readList reads strings that end with NUL; none when the process has ended.
func readList(path string) []string {
	text, err := os.ReadFile(path)
	if err != nil || len(text) == 0 {
		return nil
	}
	return strings.Split(string(bytes.TrimSuffix(text, []byte{0})), "\x00")
}

func translateParents(all []Process) {
	inner := make(map[int]int, len(all))
	for _, p := range all {
		inner[p.OuterPID] = p.PID
	}
	for i := range all {
		all[i].PPID = inner[all[i].PPID]
	}
}

// Strays are the processes that are not the SSH server's: what runs on the
// host for somebody, or was left behind.
func (h *Host) Strays() ([]Process, error) {
	all, err := h.Processes()
	var strays []Process
	for _, p := range all {
		if !p.Server {
			strays = append(strays, p)
		}
	}
	return strays, err
}

// AwaitIdle waits until the host has no strays, or says which are left when
// ctx ends.
func (h *Host) AwaitIdle(ctx context.Context) error {
	for {
		strays, err := h.Strays()
		if err != nil || len(strays) == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("host %s: processes are left: %v", h.Name, strays)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// startTime tells one process from a later one of the same id.
func startTime(pid int) (string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	// The name may hold anything, so count from the last parenthesis: the
	// start is field 22, the first one after the name is field 3.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 {
		return "", fmt.Errorf("process %d: stat has %d fields", pid, len(fields))
	}
	return fields[19], nil
}

// recordPid notes a process for whoever cleans up after this one has died.
func recordPid(path string, pid int) error {
	start, err := startTime(pid)
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
