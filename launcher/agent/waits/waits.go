//go:build linux

// Package waits finds out what the processes of tasks wait for. It asks the
// kernel for the state of each thread, the system call that the thread is in,
// and what the descriptors in the call's arguments refer to.
//
//	seen, err := waits.Collect([]int{pid})   // by the pid of each task's first process
//
// The package reads /proc, and a few bytes of the process's memory: the
// descriptor lists of poll and select. It neither stops nor changes a process.
// The kernel shows system calls only for processes of the same user. For
// processes of other users, the package reports only the state.
package waits

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/agent/sockets"
	"github.com/plx-run/plx/launcher/protocol"
)

// Limits of what Collect returns, so that a task's result fits into one
// message.
const (
	maxProcesses = 64   // maximum number of processes of one task
	maxThreads   = 1024 // maximum number of threads read of one process
	maxKinds     = 32   // maximum number of groups of threads reported of one process; a group consists of the threads that wait for the same thing
	maxSockets   = 256  // maximum number of sockets reported of one process
)

// Collect returns, for each pid in roots, that process and its descendants,
// with what their threads wait for. The root process comes first.
func Collect(roots []int) (map[int][]protocol.Process, error) {
	trees, err := process.Trees(roots)
	if err != nil {
		return nil, err
	}
	connections, err := sockets.Connections()
	h := newHost(trees, connections)
	all := map[int][]protocol.Process{}
	for root, tree := range trees {
		slices.SortStableFunc(tree, func(a, b process.Process) int {
			return compareBool(b.PID == root, a.PID == root)
		})
		for _, p := range tree[:min(len(tree), maxProcesses)] {
			all[root] = append(all[root], h.describe(p))
		}
	}
	return all, err
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// host contains facts about all processes of the tasks. They are collected
// before describe uses them for each single process.
type host struct {
	files       map[int]map[int]string        // target of each open descriptor, by pid and descriptor
	children    map[int][]int                 // pids of children by the parent's pid
	readers     map[uint32][]int              // pids of the processes with the read end of a pipe open, by the pipe's inode
	writers     map[uint32][]int              // pids of the processes with the write end of a pipe open, by the pipe's inode
	connections map[uint32]sockets.Connection // TCP connections by the socket's inode
	locks       []byte                        // content of /proc/locks
	programs    map[string]bool               // key: path of an executable; value: whether it is written in Go
}

func newHost(trees map[int][]process.Process, connections []sockets.Connection) *host {
	h := &host{files: map[int]map[int]string{}, children: map[int][]int{}, readers: map[uint32][]int{}, writers: map[uint32][]int{},
		connections: map[uint32]sockets.Connection{}, programs: map[string]bool{}}
	for _, c := range connections {
		h.connections[c.Inode] = c
	}
	for _, tree := range trees {
		for _, p := range tree {
			h.children[p.Parent] = append(h.children[p.Parent], p.PID)
			h.files[p.PID] = process.Files(p.PID)
			h.pipes(p.PID)
		}
	}
	h.locks, _ = os.ReadFile("/proc/locks") // ignore an error: holders of file locks are not reported then
	return h
}

// pipes records the pipes that a process has open for reading or writing.
func (h *host) pipes(pid int) {
	for fd, to := range h.files[pid] {
		inode, ok := process.Inode(to, "pipe")
		if !ok {
			continue
		}
		info, err := os.Lstat(fmt.Sprintf("/proc/%d/fd/%d", pid, fd))
		if err != nil {
			continue
		}
		if info.Mode()&0o400 != 0 {
			h.readers[inode] = append(h.readers[inode], pid)
		}
		if info.Mode()&0o200 != 0 {
			h.writers[inode] = append(h.writers[inode], pid)
		}
	}
}

// describe returns a process with its sockets, and with what its threads wait
// for.
func (h *host) describe(p process.Process) protocol.Process {
	d := protocol.Process{PID: p.PID, Parent: p.Parent, Name: p.Name}
	index := map[uint32]int{} // index of each socket in d.Sockets, by inode
	for _, to := range h.files[p.PID] {
		inode, ok := process.Inode(to, "socket")
		c, known := h.connections[inode]
		if _, twice := index[inode]; ok && known && !twice && len(d.Sockets) < maxSockets {
			index[inode] = len(d.Sockets)
			d.Sockets = append(d.Sockets, describeSocket(c))
		}
	}
	d.Go = h.golang(p.PID)
	for _, tid := range threads(p.PID) {
		d.Threads = fold(d.Threads, h.thread(p.PID, tid, index))
	}
	return d
}

// golang reports whether the executable of a process is written in Go.
func (h *host) golang(pid int) bool {
	link := fmt.Sprintf("/proc/%d/exe", pid)
	program, err := os.Readlink(link)
	if err != nil {
		return false // the process belongs to another user or has ended
	}
	is, known := h.programs[program]
	if !known {
		_, err := buildinfo.ReadFile(link)
		is = err == nil
		h.programs[program] = is
	}
	return is
}

func describeSocket(c sockets.Connection) protocol.Socket {
	return protocol.Socket{Local: c.Local.String(), Peer: c.Peer.String(),
		Listening: c.State == unix.BPF_TCP_LISTEN, Opening: c.State == unix.BPF_TCP_SYN_SENT,
		Unread: int64(c.Unread), Unsent: int64(c.Unsent), Retries: c.Retries, Sent: c.Sent, Received: c.Received}
}

// threads returns the thread ids of a process, the main thread first.
func threads(pid int) []int {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil
	}
	tids := []int{pid}
	for _, e := range entries {
		if tid, err := strconv.Atoi(e.Name()); err == nil && tid != pid && len(tids) < maxThreads {
			tids = append(tids, tid)
		}
	}
	return tids
}

// fold adds the thread t to all. If all already has a thread that waits for
// the same, fold increments the count of that thread instead. It never merges
// the main thread, all[0], with others.
func fold(all []protocol.Thread, t protocol.Thread) []protocol.Thread {
	for i := 1; i < len(all); i++ {
		o := &all[i]
		if o.Wait == t.Wait && o.Where == t.Where && o.What == t.What && slices.Equal(o.Sockets, t.Sockets) && slices.Equal(o.PIDs, t.PIDs) {
			o.Count++
			return all
		}
	}
	if len(all) >= maxKinds {
		return all
	}
	return append(all, t)
}

// thread returns what one thread of a process waits for.
func (h *host) thread(pid, tid int, sockets map[uint32]int) protocol.Thread {
	folder := fmt.Sprintf("/proc/%d/task/%d/", pid, tid)
	t := protocol.Thread{Count: 1, Wait: protocol.OnOther}
	where, _ := os.ReadFile(folder + "wchan") // ignore an error: the text is empty if the kernel hides it
	if t.Where = string(where); t.Where == "0" {
		t.Where = ""
	}
	switch state := stateOf(folder); state {
	case 'T', 't':
		t.Wait = protocol.Stopped
		return t
	case 'D':
		t.Wait = protocol.InKernel
		return t
	case 'R':
		t.Wait = protocol.Runs
		return t
	}
	text, _ := os.ReadFile(folder + "syscall") // ignore an error: the text is empty if the kernel hides it
	nr, args, ok := parseCall(string(text))
	if !ok {
		return t
	}
	called, known := calls()[nr]
	if !known {
		return t
	}
	t.Wait = called.wait
	return h.resolve(pid, t, called, args, sockets)
}

// stateOf returns the state letter in /proc/PID/stat, or 0 if the thread has
// ended.
func stateOf(folder string) byte {
	text, err := os.ReadFile(folder + "stat")
	if err != nil {
		return 0
	}
	if rest := text[bytes.LastIndexByte(text, ')')+1:]; len(rest) > 1 {
		return rest[1]
	}
	return 0
}

// parseCall parses /proc/PID/syscall: the number of the system call that the
// thread is in, and its arguments. ok is false if the thread is in no system
// call.
func parseCall(text string) (nr int64, args [6]uint64, ok bool) {
	fields := strings.Fields(text)
	if len(fields) < 7 {
		return 0, args, false // the thread is running, or blocked outside of a system call
	}
	nr, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil || nr < 0 {
		return 0, args, false
	}
	for i := range args {
		if args[i], err = strconv.ParseUint(strings.TrimPrefix(fields[1+i], "0x"), 16, 64); err != nil {
			return 0, args, false
		}
	}
	return nr, args, true
}
