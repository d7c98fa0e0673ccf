package testhosts

import (
	"errors"
	"fmt"
	"time"
)

// Cut takes the host's network link down. Both sides keep what they sent.
func (h *Host) Cut() {
	h.cluster.report.Helper()
	h.cluster.check("cut "+h.Name, h.link.set("down"))
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
	err := h.isOff()
	if err == nil {
		err = inNetwork(h.boot.pid())("tc", black("eth0")...)
	}
	h.cluster.check("mute "+h.Name, err)
}

// Deafen makes whatever is sent to the host vanish; it is heard as before.
func (h *Host) Deafen() {
	h.cluster.report.Helper()
	h.cluster.check("deafen "+h.Name, tool("", "tc", black(h.link.name)...))
}

// Heal undoes Cut, Mute and Deafen.
func (h *Host) Heal() {
	h.cluster.report.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cluster.check("heal "+h.Name, errors.Join(h.link.set("up"), h.shape()))
}

// Shape limits the host's link in both directions to a rate as tc(8) writes
// it, such as 100mbit, with a queue of 400 ms; an empty rate lifts the limit.
func (h *Host) Shape(rate string) {
	h.cluster.report.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rate = rate
	h.cluster.check("shape "+h.Name, h.shape())
}

// shape gives the link its rate. A host that is off gets it with the power.
func (h *Host) shape() error {
	if h.boot == nil {
		return nil
	}
	return h.link.shape(h.boot.pid(), h.rate)
}

// Queued tells of what the host sends, and of what is sent to it.
func (h *Host) Queued() (from, to Queued, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.isOff(); err != nil {
		return from, to, err
	}
	return h.link.queued(h.boot.pid())
}

// Traffic is how many bytes the host's link has carried since the power came
// on, from the host and to it. Headers of Ethernet, IP and TCP are in it as
// often as the kernel hands packets over, which is less often than they would
// be on a wire: a large segment counts once.
func (h *Host) Traffic() (from, to uint64, err error) {
	if from, to, err = h.link.traffic(); err != nil {
		return 0, 0, fmt.Errorf("testhosts: traffic of %s: %w", h.Name, err)
	}
	return from, to, nil
}

// SecondTraffic is Traffic of the host's link to the second network.
func (h *Host) SecondTraffic() (from, to uint64, err error) {
	if from, to, err = h.second.traffic(); err != nil {
		return 0, 0, fmt.Errorf("testhosts: traffic of %s on eth1: %w", h.Name, err)
	}
	return from, to, nil
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
	c.check("heal the machine", errors.Join(
		tool("", "tc", limits(c.net.bridge(), "noqueue")...),
		c.everywhere("flush", "to", c.Gateway, "dev", "eth0", "nud", "permanent")))
}

// Shape limits what the machine itself sends to the hosts, see [Host.Shape]. It
// is for slow links: a packet is all that may be sent at once.
func (c *Cluster) Shape(rate string) {
	c.report.Helper()
	c.check("shape the machine", tool("", "tc", limits(c.net.bridge(),
		"tbf", "rate", rate, "burst", "1600", "latency", "400ms")...))
}

// Queued tells of what the machine itself sends to the hosts.
func (c *Cluster) Queued() (Queued, error) {
	return queued([]string{"tc", "-s", "qdisc", "show", "dev", c.net.bridge(), "root"})
}

// nobody is an address that no link has.
const nobody = "02:77:ff:ff:ff:ff"

// everywhere changes every host's table of neighbours.
func (c *Cluster) everywhere(args ...string) error {
	var errs []error
	for _, h := range c.Hosts {
		h.mu.Lock()
		if h.boot != nil { // one without power has no table
			errs = append(errs, inNetwork(h.boot.pid())("ip", append([]string{"neigh"}, args...)...))
		}
		h.mu.Unlock()
	}
	return errors.Join(errs...)
}
