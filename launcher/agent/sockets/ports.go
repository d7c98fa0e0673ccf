//go:build linux

// Package sockets opens the sockets of a host and connects agents.
//
// A [Place] opens the ports on which tasks and the agent serve the other hosts.
// A [Gate] admits connections from other agents, which an [Identity] makes. The
// agent's local socket serves commands of the same user on the same host.
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

// Place is where a host opens sockets.
type Place struct {
	Addr      string // the host's data address, without a port
	Low, High int    // first and last allowed port; 0 and 0: any port
}

// Socket is a bound TCP socket and the claim on its port.
type Socket struct {
	FD    int
	Addr  string // host:port
	once  sync.Once
	claim int // descriptor that keeps other agents off the port; -1: the port is not claimed
}

// CloseSocket closes the descriptor and keeps the claim on the port.
func (s *Socket) CloseSocket() {
	s.once.Do(func() { unix.Close(s.FD) }) // nothing was written to it
}

// Close closes the descriptor and gives the port up. It may be called again.
func (s *Socket) Close() {
	s.CloseSocket()
	if s.claim >= 0 {
		unix.Close(s.claim)
		s.claim = -1
	}
}

// Open binds a socket to a free port. With listen it listens; otherwise it
// reserves the port for a program that binds it with SO_REUSEADDR.
func (p Place) Open(listen bool) (*Socket, error) {
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

// mostHeld bounds the ports that Reserve holds while it looks for another one.
const mostHeld = 64

// Reserve reserves a port that is not among used, by address, and adds it. If it finds
// only used ones, as in a narrow range, it takes one of them.
func (p Place) Reserve(used map[string]bool) (*Socket, error) {
	s, err := p.Open(false)
	if err != nil {
		return nil, err
	}
	for held := 0; used[s.Addr] && held < mostHeld; held++ {
		other, err := p.Open(false)
		if err != nil {
			break // none is left
		}
		defer s.Close()
		s = other
	}
	used[s.Addr] = true
	return s, nil
}

// explain says in the error of a foreign address which addresses this host has.
func (p Place) explain(err error) error {
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

// claimed binds a given port. The kernel lets several sockets with SO_REUSEADDR
// bind one port, so agents first claim it by an abstract socket. Abstract
// sockets, like ports, belong to the network namespace.
func claimed(ip netip.Addr, port int, listen bool) (*Socket, error) {
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

// bind makes a socket. For port 0 it sets SO_REUSEADDR only after binding, so
// that the kernel chooses a port that no socket has.
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

// backlog is that of listening sockets; the kernel bounds it by
// net.core.somaxconn.
const backlog = 4096

// prepare binds a socket and returns the port that it has then.
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

// Interface returns the name of the network interface that has addr, or "" if
// none has.
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

// IsPrefix reports whether names of other network interfaces begin with name.
func IsPrefix(name string) bool {
	links, err := net.Interfaces()
	return err == nil && slices.ContainsFunc(links, func(l net.Interface) bool { return l.Name != name && strings.HasPrefix(l.Name, name) })
}

// owns reports whether an interface with network n answers for ip. The loopback
// interface answers for all addresses of its network.
func owns(n *net.IPNet, ip netip.Addr) bool {
	own, ok := netip.AddrFromSlice(n.IP)
	return ok && (own.Unmap() == ip || own.Unmap().IsLoopback() && n.Contains(ip.AsSlice()))
}

// ListenData opens the agent's own socket on the data network.
func (p Place) ListenData() (net.Listener, error) {
	s, err := p.Open(true)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(s.FD), "agent")
	defer f.Close() // FileListener works on its own copy
	ln, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", s.Addr, err)
	}
	return ln, nil // the process keeps the claim on the port to its end
}
