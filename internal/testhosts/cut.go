package testhosts

import (
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"time"
)

// Cut takes the host's network link down. Both sides keep what they sent.
func (h *Host) Cut() {
	h.cluster.report.Helper()
	h.cluster.check("cut "+h.Name, h.setLink("down"))
}

// CutFor cuts the host's link and heals it after a time. Then it closes the channel,
// for which the caller waits before it closes the cluster.
func (h *Host) CutFor(d time.Duration) <-chan struct{} {
	h.cluster.report.Helper()
	h.Cut()
	healed := make(chan struct{})
	time.AfterFunc(d, func() {
		defer close(healed)
		h.Heal()
	})
	return healed
}

// Mute makes whatever the host sends vanish; it goes on to receive.
func (h *Host) Mute() {
	h.cluster.report.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	pid, err := h.pid()
	if err == nil {
		err = inNetwork(pid)("tc", black("eth0")...)
	}
	h.cluster.check("mute "+h.Name, err)
}

// Deafen makes whatever is sent to the host vanish; it is heard as before.
func (h *Host) Deafen() {
	h.cluster.report.Helper()
	h.cluster.check("deafen "+h.Name, tool("", "tc", black(h.link())...))
}

// Heal undoes Cut, Mute and Deafen.
func (h *Host) Heal() {
	h.cluster.report.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cluster.check("heal "+h.Name, errors.Join(h.setLink("up"), h.setRate(h.rate)))
}

func (h *Host) link() string { return h.cluster.net.link(h.number) }

func (h *Host) setLink(state string) error {
	return tool("", "ip", "link", "set", h.link(), state)
}

// black are tc's words for a link that sends nothing on: no packet is as small
// as what its token bucket may send at once, and so each is dropped.
func black(link string) []string {
	return []string{"qdisc", "replace", "dev", link, "root", "tbf", "rate", "8kbit", "burst", "1", "limit", "1"}
}

// Mute makes whatever the machine itself sends to the hosts vanish; they reach
// one another as before.
func (c *Cluster) Mute() {
	c.report.Helper()
	c.check("mute the machine", tool("", "tc", black(c.net.bridge())...))
}

// Deafen makes whatever the hosts that have power send to the machine itself
// vanish.
func (c *Cluster) Deafen() {
	c.report.Helper()
	c.check("deafen the machine", c.everywhere("replace", c.Gateway, "lladdr", nobody, "nud", "permanent", "dev", "eth0"))
}

// Heal undoes Mute, Deafen and Shape of the machine's own link.
func (c *Cluster) Heal() {
	c.report.Helper()
	// What is not there cannot be deleted, and need not be.
	_ = tool("", "tc", "qdisc", "del", "dev", c.net.bridge(), "root")
	_ = c.everywhere("del", c.Gateway, "dev", "eth0")
}

// Shape limits what the machine itself sends to the hosts, see [Host.Shape]. It
// is for slow links: a packet is all that may be sent at once.
func (c *Cluster) Shape(rate string) {
	c.report.Helper()
	c.check("shape the machine", tool("", "tc", "qdisc", "replace", "dev", c.net.bridge(),
		"root", "tbf", "rate", rate, "burst", "1600", "latency", "400ms"))
}

// Queued is what the limits on a link have done to packets since they were set.
type Queued struct{ Dropped, Delayed uint64 }

// Queued tells of what the host sends, and of what is sent to it.
func (h *Host) Queued() (from, to Queued, err error) {
	h.mu.Lock()
	pid, err := h.pid()
	h.mu.Unlock()
	if err != nil {
		return from, to, err
	}
	show := []string{"-s", "qdisc", "show", "dev"}
	inside := append([]string{"--net", "--target", strconv.Itoa(pid), "tc"}, append(show, "eth0", "root")...)
	if from, err = queued("nsenter", inside...); err != nil {
		return from, to, err
	}
	to, err = queued("tc", append(show, h.link(), "root")...)
	return from, to, err
}

// Queued tells of what the machine itself sends to the hosts.
func (c *Cluster) Queued() (Queued, error) {
	return queued("tc", "-s", "qdisc", "show", "dev", c.net.bridge(), "root")
}

var queueLine = regexp.MustCompile(`dropped (\d+), overlimits (\d+)`)

func queued(name string, args ...string) (q Queued, err error) {
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		return q, fmt.Errorf("testhosts: %s %q: %w", name, args, err)
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

// nobody is an address that no link has.
const nobody = "02:77:ff:ff:ff:ff"

// everywhere changes every host's table of neighbours.
func (c *Cluster) everywhere(args ...string) error {
	var errs []error
	for _, h := range c.Hosts {
		h.mu.Lock()
		if pid, err := h.pid(); err == nil { // one without power has no table
			errs = append(errs, inNetwork(pid)("ip", append([]string{"neigh"}, args...)...))
		}
		h.mu.Unlock()
	}
	return errors.Join(errs...)
}
