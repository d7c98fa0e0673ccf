package agent

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// place is where a host opens sockets: its data address and the range of
// ports that is allowed, 0 and 0 for any.
type place struct {
	addr      string
	low, high int
}

// socket is a bound TCP socket and the claim on its port.
type socket struct {
	fd    int
	addr  string // host:port
	port  int
	once  sync.Once
	claim int // descriptor that keeps other agents off the port; -1: none
}

// closeSocket closes the socket itself and keeps the claim.
func (s *socket) closeSocket() {
	s.once.Do(func() { unix.Close(s.fd) }) // nothing was written to it
}

// close closes the socket and gives the port up. It may be called again.
func (s *socket) close() {
	s.closeSocket()
	if s.claim >= 0 {
		unix.Close(s.claim)
		s.claim = -1
	}
}

// open binds a socket of its own port, and listens on it when listen is set.
// Without, the port is held for a program that binds it with SO_REUSEADDR.
func (p place) open(listen bool) (*socket, error) {
	ip, err := netip.ParseAddr(strings.Trim(p.addr, "[]"))
	if err != nil {
		return nil, fmt.Errorf("data address %q: want an IP address of this host: set addr=ADDRESS for it in the resource file", p.addr)
	}
	ip = ip.Unmap()
	if p.low == 0 && p.high == 0 {
		s, err := bind(ip, 0, listen)
		return s, p.explain(err)
	}
	n := p.high - p.low + 1
	first := rand.IntN(max(n, 1))
	for i := range n {
		port := p.low + (first+i)%n
		s, err := claimed(ip, port, listen)
		if err == nil {
			return s, nil
		}
		if !errors.Is(err, unix.EADDRINUSE) && !errors.Is(err, unix.EACCES) {
			return nil, p.explain(err)
		}
	}
	return nil, fmt.Errorf("no port of %s is free in the range %d-%d: every task needs two of them, and the agent one: widen --port-range", p.addr, p.low, p.high)
}

// explain turns the error of an address that is not this host's into one that
// helps.
func (p place) explain(err error) error {
	if !errors.Is(err, unix.EADDRNOTAVAIL) {
		return err
	}
	return fmt.Errorf("data address %s is not an address of this host, which has %s: "+
		"set addr=ADDRESS for it in the resource file", p.addr, strings.Join(ownAddresses(), ", "))
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

// claimed binds a given port. Sockets that are bound with SO_REUSEADDR do not
// keep each other off, so agents claim a port first, by an abstract socket:
// like ports, these belong to the network namespace.
func claimed(ip netip.Addr, port int, listen bool) (*socket, error) {
	claim, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("claim port %d: %w", port, err)
	}
	name := fmt.Sprintf("@plx-port-%s-%d", ip, port)
	if err := unix.Bind(claim, &unix.SockaddrUnix{Name: name}); err != nil {
		unix.Close(claim)
		return nil, fmt.Errorf("claim port %d: %w", port, err)
	}
	s, err := bind(ip, port, listen)
	if err != nil {
		unix.Close(claim)
		return nil, err
	}
	s.claim = claim
	return s, nil
}

// bind makes a socket. Where the kernel chooses the port, SO_REUSEADDR is set
// only afterwards, so that it chooses one that nobody holds.
func bind(ip netip.Addr, port int, listen bool) (*socket, error) {
	family := unix.AF_INET
	if ip.Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open a socket: %w", err)
	}
	s := &socket{fd: fd, claim: -1}
	if err := s.prepare(ip, port, listen); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("bind %s: %w", net.JoinHostPort(ip.String(), strconv.Itoa(port)), err)
	}
	s.addr = net.JoinHostPort(ip.String(), strconv.Itoa(s.port))
	return s, nil
}

// backlog of listening sockets; the kernel caps it at net.core.somaxconn.
const backlog = 4096

func (s *socket) prepare(ip netip.Addr, port int, listen bool) error {
	reuse := func() error { return unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) }
	to, err := sockaddr(ip, port)
	if err != nil {
		return err
	}
	if port != 0 {
		if err := reuse(); err != nil {
			return err
		}
	}
	if err := unix.Bind(s.fd, to); err != nil {
		return err
	}
	if err := reuse(); err != nil {
		return err
	}
	if listen {
		if err := unix.Listen(s.fd, backlog); err != nil {
			return err
		}
	}
	got, err := unix.Getsockname(s.fd)
	if err != nil {
		return err
	}
	switch got := got.(type) {
	case *unix.SockaddrInet4:
		s.port = got.Port
	case *unix.SockaddrInet6:
		s.port = got.Port
	}
	return nil
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

// interfaceOf returns the name of the network interface that has addr, "" when
// none has.
func interfaceOf(addr string) string {
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

// owns reports whether an interface with network n answers for ip: the
// loopback interface does for all of its network.
func owns(n *net.IPNet, ip netip.Addr) bool {
	own, ok := netip.AddrFromSlice(n.IP)
	return ok && (own.Unmap() == ip || own.Unmap().IsLoopback() && n.Contains(ip.AsSlice()))
}
