package cluster

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
)

// head fills size with the beginning of a message, and returns the descriptor
// that came with it. There is room for one: the kernel closes any further ones.
func (c *Control) head(size []byte) (socket *os.File, err error) {
	local, ok := c.conn.(*net.UnixConn)
	if !ok {
		_, err := io.ReadFull(c.conn, size)
		return nil, err
	}
	for have := 0; have < len(size); {
		rights := make([]byte, syscall.CmsgSpace(4)) // of one descriptor, which is an int32
		n, r, _, _, err := local.ReadMsgUnix(size[have:], rights)
		if f, bad := descriptor(rights[:r]); f != nil {
			if socket != nil {
				socket.Close() // one goes with a message
			}
			socket = f
		} else if bad != nil && err == nil {
			err = bad
		}
		if errors.Is(err, io.EOF) {
			err = io.EOF
			if have > 0 {
				err = io.ErrUnexpectedEOF
			}
		}
		if err != nil {
			return socket, err
		}
		have += n
	}
	return socket, nil
}

// descriptor returns what the rights of a message stand for, nil for none.
func descriptor(rights []byte) (*os.File, error) {
	if len(rights) == 0 {
		return nil, nil
	}
	messages, err := syscall.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, fmt.Errorf("control message: descriptor: %w", err)
	}
	var file *os.File
	for _, m := range messages {
		fds, err := syscall.ParseUnixRights(&m)
		if err != nil {
			continue // credentials and the like
		}
		for _, fd := range fds {
			if file != nil {
				syscall.Close(fd)
				continue
			}
			file = os.NewFile(uintptr(fd), "control message")
		}
	}
	return file, nil
}
