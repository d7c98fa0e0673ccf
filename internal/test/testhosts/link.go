package testhosts

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// link is a virtual network cable: a pair of interfaces. One is on the bridge
// of the test's machine, the other is eth0 or eth1 inside the host. The kernel
// removes both when the host dies.
type link struct {
	name string // name of the interface on the test's machine
}

// plug creates the link of a host. pid is the host's process 1, inside is the
// name and mac the MAC address of the interface inside the host.
func (l *link) plug(pid int, inside, mac, bridge string) error {
	commands := fmt.Sprintf("link add %[1]s type veth peer name %[5]s address %[2]s netns %[3]d\n"+
		"link set %[1]s master %[4]s up\n", l.name, mac, pid, bridge, inside)
	return tool(commands, "ip", "-batch", "-")
}

func (l *link) remove() error { return tool("", "ip", "link", "del", l.name) }

// set takes the link up or down; state is "up" or "down".
func (l *link) set(state string) error { return tool("", "ip", "link", "set", l.name, state) }

// shape limits both directions of the link to a rate. An empty rate removes
// the limits.
func (l *link) shape(pid int, rate string) error {
	inside := inNetwork(pid)
	burst, segment := shaping(rate)
	limit := []string{"noqueue"}
	if rate != "" {
		limit = []string{"tbf", "rate", rate, "burst", strconv.Itoa(burst), "latency", "400ms"}
	}
	return errors.Join(
		inside("ip", "link", "set", "eth0", "gso_max_size", strconv.Itoa(segment)),
		tool("", "tc", limits(l.name, limit...)...),
		inside("tc", limits("eth0", limit...)...))
}

// limits returns arguments of tc that replace the queueing discipline of an
// interface.
func limits(name string, limit ...string) []string {
	return append([]string{"qdisc", "replace", "dev", name, "root"}, limit...)
}

// black returns arguments of tc that make an interface drop every packet: its
// token bucket is smaller than any packet.
func black(name string) []string {
	return limits(name, "tbf", "rate", "8kbit", "burst", "1", "limit", "1")
}

// inNetwork returns a function that runs a program of the test's machine in
// the network namespace of the process pid.
func inNetwork(pid int) func(name string, args ...string) error {
	return func(name string, args ...string) error {
		return tool("", "nsenter", append([]string{"--net", "--target", strconv.Itoa(pid), name}, args...)...)
	}
}

// Queued counts the packets that rate limits have dropped or delayed since the
// limits were set.
type Queued struct{ Dropped, Delayed uint64 }

// queued returns the counts for packets from the host and to the host. pid is
// the host's process 1.
func (l *link) queued(pid int) (from, to Queued, err error) {
	show := []string{"tc", "-s", "qdisc", "show", "dev"}
	inside := append([]string{"nsenter", "--net", "--target", strconv.Itoa(pid)}, append(show, "eth0", "root")...)
	if from, err = queued(inside); err != nil {
		return from, to, err
	}
	to, err = queued(append(show, l.name, "root"))
	return from, to, err
}

var queueLine = regexp.MustCompile(`dropped (\d+), overlimits (\d+)`)

func queued(args []string) (q Queued, err error) {
	out, err := exec.Command(args[0], args[1:]...).Output()
	if err != nil {
		return q, fmt.Errorf("testhosts: %q: %w", args, err)
	}
	found := queueLine.FindSubmatch(out)
	if found == nil {
		return q, fmt.Errorf("testhosts: tc says nothing of packets: %s", out)
	}
	q.Dropped, err = strconv.ParseUint(string(found[1]), 10, 64)
	if err == nil {
		q.Delayed, err = strconv.ParseUint(string(found[2]), 10, 64)
	}
	return q, err
}

// traffic returns how many bytes the link has carried from the host and to the
// host.
func (l *link) traffic() (from, to uint64, err error) {
	folder := filepath.Join("/sys/class/net", l.name, "statistics")
	if from, err = readCount(filepath.Join(folder, "rx_bytes")); err != nil {
		return 0, 0, err
	}
	to, err = readCount(filepath.Join(folder, "tx_bytes"))
	return from, to, err
}

func readCount(path string) (uint64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
}

// ParseRate parses a rate in the notation of tc(8), such as 100mbit or
// 1.5gbit. It returns bits per second.
func ParseRate(rate string) (float64, error) {
	lower := strings.ToLower(rate)
	for _, unit := range []struct {
		name string
		bits float64
	}{{"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}, {"bit", 1}} {
		if number, found := strings.CutSuffix(lower, unit.name); found {
			n, err := strconv.ParseFloat(number, 64)
			if err != nil || !(n*unit.bits >= 1 && n*unit.bits <= 1e15) {
				break
			}
			return n * unit.bits, nil
		}
	}
	return 0, fmt.Errorf("testhosts: rate %q: want a number and bit, kbit, mbit or gbit", rate)
}

// largestSegment is the largest packet that the kernel hands to a link at
// once, in bytes.
const largestSegment = 65536

// shaping returns the burst of a rate limit (bytes that may be sent at once)
// and the largest segment that the kernel should hand to the link, in bytes.
// If a segment is larger than the burst, tc splits it into packets, which
// takes ten times the CPU time. Therefore, from 50 Mbit/s on, the burst is
// what the link carries in a millisecond, but at least 16 KiB plus headers.
// For slower rates, it is about two packets.
func shaping(rate string) (burst, segment int) {
	const few, piece, head = 4096, 16384, 1100
	bits, err := ParseRate(rate)
	if err != nil || bits < 50e6 {
		return few, largestSegment
	}
	burst = max(piece+head, int(bits/8/1000))
	return burst, min(burst-head, largestSegment)
}
