//go:build linux

package gpulock

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// mostLocks bounds the locks of a host that are handed over.
const mostLocks = 128

// Send hands locks over to the process at the other end.
func Send(conn *net.UnixConn, locks []*os.File) error {
	var fds []int
	for _, f := range locks {
		fds = append(fds, int(f.Fd()))
	}
	if _, _, err := conn.WriteMsgUnix([]byte{'.'}, unix.UnixRights(fds...), nil); err != nil {
		return fmt.Errorf("hand the locks of GPUs over: %w", err)
	}
	return nil
}

// Receive takes over the locks that Send sends.
func Receive(conn *net.UnixConn) (locks []*os.File, err error) {
	rights := make([]byte, unix.CmsgSpace(4*mostLocks))
	_, n, flags, _, err := conn.ReadMsgUnix(make([]byte, 1), rights)
	if err != nil {
		return nil, fmt.Errorf("take the locks of GPUs over: %w", err)
	}
	messages, err := unix.ParseSocketControlMessage(rights[:n])
	if err != nil {
		return nil, fmt.Errorf("take the locks of GPUs over: %w", err)
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("take the locks of GPUs over: %w", err), drop(locks))
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			locks = append(locks, os.NewFile(uintptr(fd), "GPU lock"))
		}
	}
	if flags&unix.MSG_CTRUNC != 0 || len(locks) == 0 {
		return nil, errors.Join(errors.New("take the locks of GPUs over: not all have arrived"), drop(locks))
	}
	return locks, nil
}

// drop releases locks after an error.
func drop(locks []*os.File) error {
	Release(locks)
	return nil
}
