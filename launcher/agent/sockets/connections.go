//go:build linux

package sockets

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Connection is the kernel's state of a TCP socket of this host.
type Connection struct {
	Inode       uint32 // inode number of the socket, as /proc/PID/fd shows it
	Local, Peer netip.AddrPort
	State       uint8         // TCP state, such as unix.BPF_TCP_ESTABLISHED
	Unread      uint32        // number of received bytes that the program has not read; for a listening socket, number of connections that wait for accept
	Unsent      uint32        // written bytes that the peer has not acknowledged
	Retries     int           // number of times that the kernel has retransmitted the oldest unacknowledged bytes
	Moved       uint64        // bytes sent and acknowledged, plus bytes received
	Sent        time.Duration // time since the socket last sent data
	Received    time.Duration // time since the socket last received data
}

// Sizes and numbers of the kernel's socket diagnostics protocol, from
// include/uapi/linux/inet_diag.h and tcp.h.
const (
	requestSize   = 56 // size of struct inet_diag_req_v2
	answerSize    = 72 // size of struct inet_diag_msg
	infoRequest   = 1 << (infoAttribute - 1)
	infoAttribute = 2 // INET_DIAG_INFO: the attribute that contains a struct tcp_info
	infoSize      = 136
)

// diagTime is how long one read from the kernel's netlink socket may block.
const diagTime = 2 * time.Second

// Connections lists the TCP sockets in this process's network namespace. It
// needs no privileges.
func Connections() ([]Connection, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, fmt.Errorf("list the TCP sockets: %w", err)
	}
	defer unix.Close(fd)
	limit := unix.NsecToTimeval(int64(diagTime))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		return nil, fmt.Errorf("list the TCP sockets: %w", err)
	}
	var all []Connection
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		more, err := dump(fd, family)
		if err != nil {
			return nil, fmt.Errorf("list the TCP sockets: %w", err)
		}
		all = append(all, more...)
	}
	return all, nil
}

// dump queries the kernel for the TCP sockets of one address family: AF_INET
// or AF_INET6.
func dump(fd int, family uint8) (all []Connection, err error) {
	request := make([]byte, unix.SizeofNlMsghdr+requestSize)
	native := binary.NativeEndian
	native.PutUint32(request[0:], uint32(len(request)))
	native.PutUint16(request[4:], unix.SOCK_DIAG_BY_FAMILY)
	native.PutUint16(request[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	body := request[unix.SizeofNlMsghdr:]
	body[0], body[1], body[2] = family, unix.IPPROTO_TCP, infoRequest
	native.PutUint32(body[4:], 1<<unix.BPF_TCP_ESTABLISHED|1<<unix.BPF_TCP_SYN_SENT|1<<unix.BPF_TCP_FIN_WAIT1|1<<unix.BPF_TCP_CLOSE_WAIT|
		1<<unix.BPF_TCP_LAST_ACK|1<<unix.BPF_TCP_LISTEN)
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, err
	}
	buf := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			return nil, err
		}
		done, more, err := parseAnswers(buf[:n])
		if all = append(all, more...); done || err != nil {
			return all, err
		}
	}
}

// parseAnswers parses the netlink messages in one datagram from the kernel.
// done is true if the reply is complete or failed.
func parseAnswers(b []byte) (done bool, all []Connection, err error) {
	native := binary.NativeEndian
	for len(b) >= unix.SizeofNlMsghdr {
		size := int(native.Uint32(b))
		if size < unix.SizeofNlMsghdr || size > len(b) {
			return false, nil, errors.New("the kernel's message is truncated")
		}
		body := b[unix.SizeofNlMsghdr:size]
		switch native.Uint16(b[4:]) {
		case unix.NLMSG_DONE:
			return true, all, nil
		case unix.NLMSG_ERROR:
			if len(body) >= 4 {
				err = unix.Errno(-int32(native.Uint32(body)))
			}
			return true, all, err
		case unix.SOCK_DIAG_BY_FAMILY:
			if c, ok := parseConnection(body); ok {
				all = append(all, c)
			}
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return false, all, nil
}

// parseConnection parses an inet_diag_msg, which describes one socket. It
// returns false if the message is too short.
func parseConnection(b []byte) (c Connection, ok bool) {
	if len(b) < answerSize {
		return c, false
	}
	native, big := binary.NativeEndian, binary.BigEndian
	c.State = b[1]
	c.Local = address(b[0], b[8:24], big.Uint16(b[4:]))
	c.Peer = address(b[0], b[24:40], big.Uint16(b[6:]))
	c.Unread, c.Unsent, c.Inode = native.Uint32(b[56:]), native.Uint32(b[60:]), native.Uint32(b[68:])
	if c.State == unix.BPF_TCP_LISTEN {
		c.Unsent = 0 // drop this value: for a listening socket, it is the length of the backlog
	}
	for rest := b[answerSize:]; len(rest) >= 4; {
		size := int(native.Uint16(rest))
		if size < 4 || size > len(rest) {
			break
		}
		if info := rest[4:size]; native.Uint16(rest[2:]) == infoAttribute && len(info) >= infoSize {
			c.Retries = int(info[2])
			c.Sent = time.Duration(native.Uint32(info[44:])) * time.Millisecond
			c.Received = time.Duration(native.Uint32(info[52:])) * time.Millisecond
			c.Moved = native.Uint64(info[120:]) + native.Uint64(info[128:])
		}
		rest = rest[min((size+3)&^3, len(rest)):]
	}
	return c, true
}

func address(family uint8, b []byte, port uint16) netip.AddrPort {
	if family == unix.AF_INET {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[:4])), port)
	}
	return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[:16])).Unmap(), port)
}
