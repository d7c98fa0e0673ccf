package testhosts

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// stateDir is the folder for the files of all clusters. It must not be in /tmp
// or in root's home, because each host has its own /tmp and its own home.
const stateDir = "/var/lib/plx-testhosts"

// network is a reservation of the addresses 10.77.N.0/24 and fd77:0:0:N::/64,
// the bridge plxN and the folder net-N, for one number N. A file lock holds
// the reservation, so that it ends when the process dies. The next process
// that reserves the same number removes what the dead process has left.
type network struct {
	number int      // the number N in addresses, bridge and folder
	dir    string   // path of the folder net-N
	lock   *os.File // locked file; closing it ends the reservation
	ipv6   bool     // true if the test's machine has IPv6
}

// claimNetwork removes what dead processes left behind, and then reserves the
// first free number.
func claimNetwork() (*network, error) {
	if err := os.MkdirAll(filepath.Join(stateDir, "bin"), 0o755); err != nil {
		return nil, err
	}
	sweep()
	for number := range 256 {
		if inUse(number) {
			continue
		}
		n, err := tryClaim(number)
		if err != nil {
			return nil, err
		}
		if n != nil {
			return n, nil
		}
	}
	return nil, errors.New("testhosts: no free network in 10.77.0.0/16")
}

// sweep removes what is left of clusters whose process has died. It ignores
// errors: the next reservation of that number tries again and reports them.
func sweep() {
	locks, err := filepath.Glob(filepath.Join(stateDir, "net-*.lock"))
	if err != nil {
		return // Glob returns an error only for a malformed pattern
	}
	for _, lock := range locks {
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(lock), "net-"), ".lock")
		number, err := strconv.Atoi(name)
		if err != nil {
			continue // not the name of a lock file of this package
		}
		if n, err := tryClaim(number); err == nil && n != nil {
			_ = n.release() // on an error, the next reservation of the number tries again
		}
	}
}

// tryClaim reserves a number. It returns nil if another process or cluster
// holds the number.
func tryClaim(number int) (*network, error) {
	path := filepath.Join(stateDir, fmt.Sprintf("net-%d.lock", number))
	lock, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil || !isFile(lock, path) {
		return nil, lock.Close()
	}
	_, noIPv6 := os.Stat("/proc/sys/net/ipv6/conf/all")
	n := &network{
		number: number,
		dir:    filepath.Join(stateDir, fmt.Sprintf("net-%d", number)),
		lock:   lock,
		ipv6:   noIPv6 == nil && readTrimmed("/proc/sys/net/ipv6/conf/all/disable_ipv6") == "0",
	}
	if err := n.scrub(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return n, nil
}

// isFile reports whether f is still the file at path. Another process may have
// removed the file between this process's open and its lock.
func isFile(f *os.File, path string) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(path)
	return err == nil && os.SameFile(open, named)
}

// inUse reports whether the test's machine has an address in 10.77.N.0/24 on
// an interface that this package has not created. N is number.
func inUse(number int) bool {
	links, err := net.Interfaces()
	if err != nil {
		return false
	}
	subnet := net.IPNet{IP: net.IPv4(10, 77, byte(number), 0).To4(), Mask: net.CIDRMask(24, 32)}
	for _, link := range links {
		if link.Name == fmt.Sprintf("plx%d", number) {
			continue
		}
		addresses, err := link.Addrs()
		if err != nil {
			continue // the interface was removed after it was listed
		}
		for _, a := range addresses {
			if other, ok := a.(*net.IPNet); ok && (subnet.Contains(other.IP) || other.Contains(subnet.IP)) {
				return true
			}
		}
	}
	return false
}

func (n *network) bridge() string          { return fmt.Sprintf("plx%d", n.number) }
func (n *network) link(host int) string    { return fmt.Sprintf("plx%dh%d", n.number, host) }
func (n *network) gateway() string         { return n.address(254) }
func (n *network) address(host int) string { return fmt.Sprintf("10.77.%d.%d", n.number, host) }

// address6 returns a host's IPv6 address; empty on a machine without IPv6.
func (n *network) address6(host int) string {
	if !n.ipv6 {
		return ""
	}
	return fmt.Sprintf("fd77:0:0:%x::%x", n.number, host)
}

// mac returns the MAC address of a host. It does not change when the host
// restarts, so that ARP tables stay valid.
func (n *network) mac(host int) string {
	return fmt.Sprintf("02:77:00:%02x:00:%02x", n.number, host)
}

// etcHosts returns an /etc/hosts file with the given number of hosts.
func (n *network) etcHosts(hosts int) string {
	var text strings.Builder
	text.WriteString("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n")
	for i := range hosts {
		fmt.Fprintf(&text, "%s h%d\n", n.address(i+1), i+1)
	}
	return text.String()
}

// up creates the bridge and the folder of the network.
func (n *network) up() error {
	if err := os.MkdirAll(n.dir, 0o755); err != nil {
		return err
	}
	commands := fmt.Sprintf("link add %[1]s address %[2]s type bridge forward_delay 0 mcast_snooping 0\n"+
		"addr add %[3]s/24 dev %[1]s\nlink set %[1]s up\n", n.bridge(), n.mac(254), n.gateway())
	if n.ipv6 {
		commands += fmt.Sprintf("addr add %s/64 dev %s nodad\n", n.address6(254), n.bridge())
	}
	return tool(commands, "ip", "-batch", "-")
}

// The second network is a separate bridge with the addresses 10.78.N.0/24 and
// fd78:0:0:N::/64. The test's machine has no address on it.

func (n *network) secondBridge() string       { return n.bridge() + "b" }
func (n *network) secondLink(host int) string { return n.link(host) + "b" }
func (n *network) second(host int) string     { return fmt.Sprintf("10.78.%d.%d", n.number, host) }
func (n *network) secondMAC(host int) string {
	return fmt.Sprintf("02:78:00:%02x:00:%02x", n.number, host)
}

// second6 returns a host's IPv6 address in the second network, in its
// canonical form; empty on a machine without IPv6.
func (n *network) second6(host int) string {
	if !n.ipv6 {
		return ""
	}
	return netip.MustParseAddr(fmt.Sprintf("fd78:0:0:%x::%x", n.number, host)).String()
}

// upSecond creates the bridge of the second network.
func (n *network) upSecond() error {
	return tool(fmt.Sprintf("link add %[1]s type bridge forward_delay 0 mcast_snooping 0\nlink set %[1]s up\n", n.secondBridge()),
		"ip", "-batch", "-")
}

// release removes the network's processes, links and files, and ends the
// reservation.
func (n *network) release() error {
	err := n.scrub()
	return errors.Join(err, os.Remove(n.lock.Name()), n.lock.Close())
}

// scrub kills those processes recorded by recordPid that are still running,
// and removes links and files.
func (n *network) scrub() error {
	if err := killRecorded(n.pidFile()); err != nil {
		return err
	}
	if err := n.removeLinks(); err != nil {
		return err
	}
	return os.RemoveAll(n.dir)
}

func (n *network) removeLinks() error {
	links, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("testhosts: list links: %w", err)
	}
	var commands strings.Builder
	for _, link := range links {
		if link.Name == n.bridge() || link.Name == n.secondBridge() || strings.HasPrefix(link.Name, n.bridge()+"h") {
			fmt.Fprintf(&commands, "link del %s\n", link.Name)
		}
	}
	if commands.Len() == 0 {
		return nil
	}
	// The kernel may remove a link at the same time, together with its host's
	// namespace. Ignore errors, and check afterwards that the bridge is gone.
	_ = tool(commands.String(), "ip", "-force", "-batch", "-")
	if _, err := net.InterfaceByName(n.bridge()); err == nil {
		return fmt.Errorf("testhosts: cannot remove the bridge %s", n.bridge())
	}
	return nil
}

func (n *network) pidFile() string { return filepath.Join(n.dir, "pids") }

func readTrimmed(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "" // all callers treat a missing file like an empty one
	}
	return strings.TrimSpace(string(text))
}
