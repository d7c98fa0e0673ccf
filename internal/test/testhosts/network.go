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

// stateDir is where clusters live. It must not be below /tmp or root's home,
// which the hosts have of their own.
const stateDir = "/var/lib/plx-testhosts"

// network is a claim on 10.77.N.0/24, fd77:0:0:N::/64, the bridge plxN and the
// folder net-N. The claim is a lock on a file: it ends with the process that
// holds it, however that ends, and whoever claims the number next removes what
// was left.
type network struct {
	number int      // the N in addresses, bridge and folder
	dir    string   // path of the folder net-N
	lock   *os.File // open file that holds the claim until it is closed
	ipv6   bool     // this machine has IPv6
}

// claimNetwork takes the first free number, after it has removed what dead
// processes left behind.
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

// sweep removes the remains of clusters whose process has died. What cannot be
// removed now is left to the next claim of that number, which reports it.
func sweep() {
	locks, err := filepath.Glob(filepath.Join(stateDir, "net-*.lock"))
	if err != nil {
		return // only a malformed pattern
	}
	for _, lock := range locks {
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(lock), "net-"), ".lock")
		number, err := strconv.Atoi(name)
		if err != nil {
			continue // no file of ours
		}
		if n, err := tryClaim(number); err == nil && n != nil {
			_ = n.release() // as above
		}
	}
}

// tryClaim returns nil when another process or cluster holds the number.
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

// isFile is false when the file was removed, by the release of an earlier
// claim, between its opening and its locking.
func isFile(f *os.File, path string) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(path)
	return err == nil && os.SameFile(open, named)
}

// inUse says that the machine itself is in 10.77.N.0/24 by a link not of ours.
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
			continue // the link went away
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

// address6 is empty on a machine without IPv6.
func (n *network) address6(host int) string {
	if !n.ipv6 {
		return ""
	}
	return fmt.Sprintf("fd77:0:0:%x::%x", n.number, host)
}

// mac stays the same over a host's restarts, so that nobody's ARP table gets stale.
func (n *network) mac(host int) string {
	return fmt.Sprintf("02:77:00:%02x:00:%02x", n.number, host)
}

// etcHosts names so many hosts.
func (n *network) etcHosts(hosts int) string {
	var text strings.Builder
	text.WriteString("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n")
	for i := range hosts {
		fmt.Fprintf(&text, "%s h%d\n", n.address(i+1), i+1)
	}
	return text.String()
}

// up makes the bridge and the folder.
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

// A second network is a bridge of its own, on which the test's machine has no address:
// 10.78.N.0/24 and fd78:0:0:N::/64.

func (n *network) secondBridge() string       { return n.bridge() + "b" }
func (n *network) secondLink(host int) string { return n.link(host) + "b" }
func (n *network) second(host int) string     { return fmt.Sprintf("10.78.%d.%d", n.number, host) }
func (n *network) secondMAC(host int) string {
	return fmt.Sprintf("02:78:00:%02x:00:%02x", n.number, host)
}

// second6 is empty on a machine without IPv6, and else spelled as others print it.
func (n *network) second6(host int) string {
	if !n.ipv6 {
		return ""
	}
	return netip.MustParseAddr(fmt.Sprintf("fd78:0:0:%x::%x", n.number, host)).String()
}

// upSecond makes the bridge of the second network.
func (n *network) upSecond() error {
	return tool(fmt.Sprintf("link add %[1]s type bridge forward_delay 0 mcast_snooping 0\nlink set %[1]s up\n", n.secondBridge()),
		"ip", "-batch", "-")
}

// release removes everything and gives the claim back.
func (n *network) release() error {
	err := n.scrub()
	return errors.Join(err, os.Remove(n.lock.Name()), n.lock.Close())
}

// scrub ends the recorded processes that still run, and removes links and files.
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
	// A link may vanish by itself with its host's namespace: go on after an
	// error, and look whether anything is left instead.
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
		return "" // as good as empty to all callers
	}
	return strings.TrimSpace(string(text))
}
