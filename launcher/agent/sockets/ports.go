//go:build linux

// Package sockets opens the sockets of a host and connects agents to each
// other.
//
// A [ListenRange] opens the TCP ports at which the tasks and the agent of a host can
// be reached from other hosts. An [Identity] dials other agents of the same
// job, and its Gate authenticates their connections. The agent's local Unix
// socket accepts commands from the same user on the same host.
package sockets

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// ListenRange is the IP address and the range of ports at which a host opens TCP
// sockets.
type ListenRange struct {
	Addr      string // address of the host in the network that tasks use, without a port
	Low, High int    // first and last port that may be used; 0 and 0 mean any port
}

// Socket is a bound TCP socket. Its port is also reserved, so that no other
// agent of this host uses the port.
type Socket struct {
	FD    int
	Addr  string // address of the socket as host:port
	once  sync.Once
	claim int // descriptor of the abstract Unix socket that keeps other agents from using the port; -1 if there is none
}

// CloseSocket closes the TCP socket but keeps its port reserved.
func (s *Socket) CloseSocket() {
	s.once.Do(func() { unix.Close(s.FD) }) // the socket has no data to flush, so Close cannot lose any
}

// Close closes the TCP socket and ends the reservation of its port. It may be
// called more than once.
func (s *Socket) Close() {
	s.CloseSocket()
	if s.claim >= 0 {
		unix.Close(s.claim)
		s.claim = -1
	}
}

// Open binds a TCP socket to a free port. If listen is true, the socket
// listens. If listen is false, the socket only reserves the port for a program
// that will bind it with SO_REUSEADDR.
func (p ListenRange) Open(listen bool) (*Socket, error) {
	ip, err := netip.ParseAddr(strings.Trim(p.Addr, "[]"))
	if err != nil {
		return nil, fmt.Errorf("data address %q: want an IP address of this host: set addr=ADDRESS for it in the resource file", p.Addr)
	}
	ip = ip.Unmap()
	if p.Low == 0 && p.High == 0 {
		s, err := bind(ip, 0, listen)
		return s, p.explain(err)
	}
	n := p.High - p.Low + 1
	first := rand.IntN(max(n, 1))
	for i := range n {
		port := p.Low + (first+i)%n
		s, err := claimed(ip, port, listen)
		if err == nil {
			return s, nil
		}
		if !errors.Is(err, unix.EADDRINUSE) && !errors.Is(err, unix.EACCES) {
			return nil, p.explain(err)
		}
	}
	return nil, fmt.Errorf("no port of %s is free in the range %d-%d: every task needs two of them, and the agent one: widen --port-range", p.Addr, p.Low, p.High)
}

// maxHeld is the maximum number of ports that Reserve holds while it looks for
// an unused one.
const maxHeld = 64

// Reserve reserves a port whose address is not in used, and adds the address
// to used. If the port range is so narrow that used contains all free ports,
// Reserve reserves one of these.
func (p ListenRange) Reserve(used map[string]bool) (*Socket, error) {
	s, err := p.Open(false)
	if err != nil {
		return nil, err
	}
	for held := 0; used[s.Addr] && held < maxHeld; held++ {
		other, err := p.Open(false)
		if err != nil {
			break // keep the port that was bound last, because no other port is free
		}
		defer s.Close()
		s = other
	}
	used[s.Addr] = true
	return s, nil
}

// explain returns err unless it means "address not available" (EADDRNOTAVAIL).
// In that case it adds the host's own addresses to the message.
func (p ListenRange) explain(err error) error {
	if !errors.Is(err, unix.EADDRNOTAVAIL) {
		return err
	}
	return fmt.Errorf("data address %s is not an address of this host, which has %s: "+
		"set addr=ADDRESS for it in the resource file", p.Addr, strings.Join(ownAddresses(), ", "))
}

func ownAddresses() []string {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return []string{"none that can be listed"}
	}
	var list []string
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLinkLocalUnicast() {
			list = append(list, n.IP.String())
		}
	}
	return list
}

// claimed binds a TCP socket to the given port, and reserves the port so that
// no other agent of this host uses it. The reservation is a Unix socket whose
// abstract name contains the port. It is needed because the kernel lets
// several sockets with SO_REUSEADDR bind the same port. Abstract names, like
// ports, belong to the network namespace.
func claimed(ip netip.Addr, port int, listen bool) (*Socket, error) {
	claim, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("reserve port %d: %w", port, err)
	}
	name := fmt.Sprintf("@plx-port-%s-%d", ip, port)
	if err := unix.Bind(claim, &unix.SockaddrUnix{Name: name}); err != nil {
		unix.Close(claim)
		return nil, fmt.Errorf("reserve port %d: %w", port, err)
	}
	s, err := bind(ip, port, listen)
	if err != nil {
		unix.Close(claim)
		return nil, err
	}
	s.claim = claim
	return s, nil
}

// bind returns a TCP socket that is bound to ip and port. If port is 0, it
// sets SO_REUSEADDR only after binding, because then the kernel chooses a port
// that no other socket uses.
func bind(ip netip.Addr, port int, listen bool) (*Socket, error) {
	family := unix.AF_INET
	if ip.Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open a socket: %w", err)
	}
	bound, err := prepare(fd, ip, port, listen)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("bind %s: %w", netip.AddrPortFrom(ip, uint16(port)), err)
	}
	return &Socket{FD: fd, Addr: netip.AddrPortFrom(ip, bound).String(), claim: -1}, nil
}

// backlog is the number of connections that a listening socket queues before
// they are accepted. The kernel limits it to net.core.somaxconn.
const backlog = 4096

// prepare binds the socket fd and returns its port, which the kernel has
// chosen if port is 0.
func prepare(fd int, ip netip.Addr, port int, listen bool) (bound uint16, err error) {
	reuse := func() error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) }
	to, err := sockaddr(ip, port)
	if err == nil && port != 0 {
		err = reuse()
	}
	if err == nil {
		err = unix.Bind(fd, to)
	}
	if err == nil {
		err = reuse()
	}
	if err == nil && listen {
		err = unix.Listen(fd, backlog)
	}
	if err != nil {
		return 0, err
	}
	got, err := unix.Getsockname(fd)
	switch got := got.(type) {
	case *unix.SockaddrInet4:
		return uint16(got.Port), err
	case *unix.SockaddrInet6:
		return uint16(got.Port), err
	}
	return 0, err
}

func sockaddr(ip netip.Addr, port int) (unix.Sockaddr, error) {
	if ip.Is4() {
		return &unix.SockaddrInet4{Port: port, Addr: ip.As4()}, nil
	}
	to := &unix.SockaddrInet6{Port: port, Addr: ip.As16()}
	if zone := ip.Zone(); zone != "" {
		link, err := net.InterfaceByName(zone)
		if err != nil {
			return nil, err
		}
		to.ZoneId = uint32(link.Index)
	}
	return to, nil
}

// Interface returns the name of the network interface that has the address
// addr, or "" if no interface has it.
func Interface(addr string) string {
	ip, err := netip.ParseAddr(strings.Trim(addr, "[]"))
	if err != nil {
		return ""
	}
	ip = ip.WithZone("").Unmap()
	links, err := net.Interfaces()
	if err != nil {
		return ""
	}
	for _, link := range links {
		addrs, err := link.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && owns(n, ip) {
				return link.Name
			}
		}
	}
	return ""
}

// IsPrefix reports whether name is the beginning of another network
// interface's name, as "eth1" is of "eth10".
func IsPrefix(name string) bool {
	links, err := net.Interfaces()
	return err == nil && slices.ContainsFunc(links, func(l net.Interface) bool { return l.Name != name && strings.HasPrefix(l.Name, name) })
}

// owns reports whether an interface with address n accepts packets for ip. A
// loopback interface accepts packets for all addresses of its network.
func owns(n *net.IPNet, ip netip.Addr) bool {
	own, ok := netip.AddrFromSlice(n.IP)
	return ok && (own.Unmap() == ip || own.Unmap().IsLoopback() && n.Contains(ip.AsSlice()))
}

// ListenData opens the TCP socket at which the agent accepts connections from
// other hosts.
func (p ListenRange) ListenData() (net.Listener, error) {
	s, err := p.Open(true)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(s.FD), "agent")
	defer f.Close() // FileListener has duplicated the descriptor
	ln, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", s.Addr, err)
	}
	return ln, nil // s is not closed, so the port stays reserved until this process ends
}
