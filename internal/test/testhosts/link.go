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

// link is a network cable of a host: an interface of this machine's, on a
// bridge, and eth0 or eth1 inside of the host. The kernel removes both with the host.
type link struct {
	name string // of the interface on this machine
}

// plug makes the link of a host whose process 1 is pid. inside is its name there.
func (l *link) plug(pid int, inside, mac, bridge string) error {
	commands := fmt.Sprintf("link add %[1]s type veth peer name %[5]s address %[2]s netns %[3]d\n"+
		"link set %[1]s master %[4]s up\n", l.name, mac, pid, bridge, inside)
	return tool(commands, "ip", "-batch", "-")
}

func (l *link) remove() error { return tool("", "ip", "link", "del", l.name) }

// set takes the link up or down.
func (l *link) set(state string) error { return tool("", "ip", "link", "set", l.name, state) }

// shape limits both directions to a rate; an empty one lifts the limits.
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

// limits are tc's words that replace the limit of an interface.
func limits(name string, limit ...string) []string {
	return append([]string{"qdisc", "replace", "dev", name, "root"}, limit...)
}

// black are tc's words for an interface that sends nothing on: no packet is as
// small as what its token bucket may send at once, and so each is dropped.
func black(name string) []string {
	return limits(name, "tbf", "rate", "8kbit", "burst", "1", "limit", "1")
}

// inNetwork runs the machine's programs in the network of a process.
func inNetwork(pid int) func(name string, args ...string) error {
	return func(name string, args ...string) error {
		return tool("", "nsenter", append([]string{"--net", "--target", strconv.Itoa(pid), name}, args...)...)
	}
}

// Queued is what the limits on a link have done to packets since they were set.
type Queued struct{ Dropped, Delayed uint64 }

// queued tells of what the host sends, and of what is sent to it.
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

// traffic is how many bytes have come from the host and gone to it.
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

// ParseRate reads a rate as tc(8) writes it, such as 100mbit or 1.5gbit, in
// bits per second.
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

// largestSegment is what the kernel hands a link at once at most.
const largestSegment = 65536

// shaping is what a link of a rate may send at once, and how large the pieces
// are that it is handed. A piece that is larger than the burst would be cut
// into packets one by one, which costs ten times the processor time: so a link
// of 50 Mbit/s or more may send what it carries in a millisecond, or a piece
// of 16 KiB, at once. Slower ones send two packets at most.
func shaping(rate string) (burst, segment int) {
	const few, piece, head = 4096, 16384, 1100
	bits, err := ParseRate(rate)
	if err != nil || bits < 50e6 {
		return few, largestSegment
	}
	burst = max(piece+head, int(bits/8/1000))
	return burst, min(burst-head, largestSegment)
}
