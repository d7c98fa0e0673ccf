//go:build linux

package waits

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/protocol"
)

// call describes a system call that can block.
type call struct {
	wait protocol.Wait // what a thread in this call waits for
	on   operand       // which arguments of the call contain file descriptors
}

// operand says which arguments of a system call contain file descriptors.
type operand int

const (
	nothing    operand = iota // no argument has a descriptor
	descriptor                // the first argument is a descriptor
	pollList                  // the first argument is a list of descriptors, as in poll(2)
	selectSets                // the second and third arguments are sets of descriptors, as in select(2)
	epollSet                  // the first argument is an epoll instance, which has a list of descriptors
)

// maxDescriptors is the maximum number of descriptors that are read from one
// poll, select or epoll call.
const maxDescriptors = 1024

// resolve adds to the thread t what it waits for in the system call c: files,
// sockets or processes. args are the arguments of the call. sockets maps a
// socket's inode number to its index among the process's sockets.
func (h *host) resolve(pid int, t protocol.Thread, c call, args [6]uint64, sockets map[uint32]int) protocol.Thread {
	var fds []int
	switch c.on {
	case descriptor:
		fds = []int{int(int32(args[0]))}
	case pollList:
		fds = readPoll(pid, args[0], args[1])
	case selectSets:
		fds = readSelect(pid, args[0], args[1:3])
	case epollSet:
		fds = readEpoll(pid, int(int32(args[0])))
	}
	for _, fd := range fds {
		t = h.follow(pid, fd, t, sockets)
	}
	if len(fds) == 1 {
		t.What = h.files[pid][fds[0]]
	}
	switch c.wait {
	case protocol.OnChild:
		t.PIDs = slices.Clone(h.children[pid])
	case protocol.OnFile:
		t.PIDs = holders(string(h.locks), pid)
	}
	slices.Sort(t.PIDs)
	t.PIDs = slices.Compact(t.PIDs)
	slices.Sort(t.Sockets)
	return t
}

// follow adds to the thread t what the descriptor fd refers to: a socket, or
// the processes at the other end of a pipe.
func (h *host) follow(pid, fd int, t protocol.Thread, sockets map[uint32]int) protocol.Thread {
	to := h.files[pid][fd]
	if inode, ok := process.Inode(to, "socket"); ok {
		if i, known := sockets[inode]; known && !slices.Contains(t.Sockets, i) {
			t.Sockets = append(t.Sockets, i)
		}
		return t
	}
	inode, ok := process.Inode(to, "pipe")
	if !ok {
		return t
	}
	others := h.writers[inode]
	if t.Wait == protocol.OnWrite {
		others = h.readers[inode]
	}
	for _, other := range others {
		if other != pid {
			t.PIDs = append(t.PIDs, other)
		}
	}
	return t
}

// holders returns the processes that hold the file lock for which process pid
// waits. locks is the content of /proc/locks.
func holders(locks string, pid int) (pids []int) {
	held := map[string]int{} // pids of lock holders, by the lock's number in /proc/locks
	for line := range strings.Lines(locks) {
		// line of a holder: "1: POSIX ADVISORY WRITE 7 fe:00:99 0 EOF"; of a
		// waiting process: "1: -> POSIX ..."
		f := strings.Fields(line)
		if len(f) < 6 {
			continue
		}
		if f[1] != "->" {
			held[f[0]], _ = strconv.Atoi(f[4]) // ignore an error; the pid is -1 if the lock belongs to an open file instead of a process
		} else if waits, err := strconv.Atoi(f[5]); err == nil && waits == pid && held[f[0]] > 0 {
			pids = append(pids, held[f[0]])
		}
	}
	return pids
}

// memory reads size bytes at an address of a process. If the kernel refuses,
// the result is nil or shorter.
func memory(pid int, at uint64, size int) []byte {
	b := make([]byte, size)
	if size == 0 || at == 0 {
		return nil
	}
	local := []unix.Iovec{{Base: &b[0]}}
	local[0].SetLen(size)
	n, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: uintptr(at), Len: size}}, 0)
	if err != nil {
		return nil
	}
	return b[:n]
}

// readPoll returns the descriptors in the argument of a poll call of a
// process.
func readPoll(pid int, at, count uint64) (fds []int) {
	const size = int(unsafe.Sizeof(unix.PollFd{}))
	b := memory(pid, at, int(min(count, maxDescriptors))*size)
	for ; len(b) >= size; b = b[size:] {
		if fd := int32(binary.NativeEndian.Uint32(b)); fd >= 0 {
			fds = append(fds, int(fd))
		}
	}
	return fds
}

// readSelect returns the descriptors in the read and write sets of a select
// call of a process.
func readSelect(pid int, count uint64, sets []uint64) (fds []int) {
	words := int(min(count, maxDescriptors)+63) / 64
	for _, at := range sets {
		b := memory(pid, at, words*8)
		for bit := range len(b) * 8 {
			if b[bit/8]&(1<<(bit%8)) != 0 && !slices.Contains(fds, bit) {
				fds = append(fds, bit)
			}
		}
	}
	return fds
}

// readEpoll returns the descriptors that a process's epoll instance fd
// watches.
func readEpoll(pid, fd int) (fds []int) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/fdinfo/%d", pid, fd))
	if err != nil {
		return nil
	}
	defer f.Close() // the file was only read
	for lines := bufio.NewScanner(f); lines.Scan() && len(fds) < maxDescriptors; {
		words := strings.Fields(lines.Text()) // a line looks like "tfd: 7 events: ..."
		if len(words) < 2 || words[0] != "tfd:" {
			continue
		}
		if n, err := strconv.Atoi(words[1]); err == nil {
			fds = append(fds, n)
		}
	}
	return fds
}
