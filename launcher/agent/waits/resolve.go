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

// call is a system call that waits.
type call struct {
	wait protocol.Wait
	on   operand
}

// operand says where a call has its descriptors.
type operand int

const (
	nothing operand = iota
	descriptor
	pollList
	selectSets
	epollSet
)

// maxDescriptors bounds what is read of one poll, select or epoll.
const maxDescriptors = 1024

// resolve returns a thread of a process with what it waits for.
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

// follow adds to a thread what a descriptor leads to: a socket, or who has the other end of
// a pipe.
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

// holders returns the processes that hold the lock for which a process waits, by the text
// of /proc/locks.
func holders(locks string, pid int) (pids []int) {
	held := map[string]int{} // pid by the number of the lock
	for line := range strings.Lines(locks) {
		// 1: POSIX ADVISORY WRITE 7 fe:00:99 0 EOF, and 1: -> POSIX ... for who waits
		f := strings.Fields(line)
		if len(f) < 6 {
			continue
		}
		if f[1] != "->" {
			held[f[0]], _ = strconv.Atoi(f[4]) // -1: the lock belongs to a descriptor
		} else if waits, err := strconv.Atoi(f[5]); err == nil && waits == pid && held[f[0]] > 0 {
			pids = append(pids, held[f[0]])
		}
	}
	return pids
}

// memory reads bytes of a process. It returns fewer if it may not read them.
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

// readPoll returns the descriptors of a poll.
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

// readSelect returns the descriptors of the sets for reading and writing of a select.
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

// readEpoll returns the descriptors that an epoll instance watches.
func readEpoll(pid, fd int) (fds []int) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/fdinfo/%d", pid, fd))
	if err != nil {
		return nil
	}
	defer f.Close() // it was only read
	for lines := bufio.NewScanner(f); lines.Scan() && len(fds) < maxDescriptors; {
		words := strings.Fields(lines.Text()) // tfd: 7 events: ...
		if len(words) < 2 || words[0] != "tfd:" {
			continue
		}
		if n, err := strconv.Atoi(words[1]); err == nil {
			fds = append(fds, n)
		}
	}
	return fds
}
