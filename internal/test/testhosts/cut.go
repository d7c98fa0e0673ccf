package testhosts

import (
	"errors"
	"fmt"
	"time"
)

// Cut takes the host's network link down. Data that was not delivered yet
// stays in the send queues on both sides.
func (h *Host) Cut() {
	h.cluster.report.Helper()
	h.cluster.check("cut "+h.Name, h.link.set("down"))
}

// CutFor takes the host's link down and restores it after the duration d. It
// then closes the returned channel. The caller must wait for the channel
// before it closes the cluster.
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

// Mute drops all packets that the host sends. The host still receives.
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

// Deafen drops all packets that are sent to the host. The host can still send.
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

// Shape limits the host's link in both directions to a rate in the notation of
// tc(8), such as 100mbit. Packets that would wait for more than 400 ms are
// dropped. An empty rate removes the limit.
func (h *Host) Shape(rate string) {
	h.cluster.report.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rate = rate
	h.cluster.check("shape "+h.Name, h.shape())
}

// shape applies h.rate to the link. If the host has no power, powerOn applies
// the rate later.
func (h *Host) shape() error {
	if h.boot == nil {
		return nil
	}
	return h.link.shape(h.boot.pid(), h.rate)
}

// Queued returns how many packets the limits set by Shape have dropped or
// delayed: packets from the host, and packets to the host.
func (h *Host) Queued() (from, to Queued, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.isOff(); err != nil {
		return from, to, err
	}
	return h.link.queued(h.boot.pid())
}

// Traffic returns how many bytes the host's link has carried from the host and
// to the host since power on. The count includes the Ethernet, IP and TCP
// headers once per packet that the kernel hands to the link. A large TCP
// segment counts as one packet, so there are fewer headers than on a real
// network.
func (h *Host) Traffic() (from, to uint64, err error) {
	if from, to, err = h.link.traffic(); err != nil {
		return 0, 0, fmt.Errorf("testhosts: traffic of %s: %w", h.Name, err)
	}
	return from, to, nil
}

// SecondTraffic returns the same as Traffic, for the host's link to the second
// network.
func (h *Host) SecondTraffic() (from, to uint64, err error) {
	if from, to, err = h.second.traffic(); err != nil {
		return 0, 0, fmt.Errorf("testhosts: traffic of %s on eth1: %w", h.Name, err)
	}
	return from, to, nil
}

// Mute drops all packets that the test's machine sends to the hosts. The hosts
// can still reach each other.
func (c *Cluster) Mute() {
	c.report.Helper()
	c.check("mute the machine", tool("", "tc", black(c.net.bridge())...))
}

// Deafen drops all packets that running hosts send to the test's machine.
func (c *Cluster) Deafen() {
	c.report.Helper()
	c.check("deafen the machine", c.everywhere("replace", c.Gateway, "lladdr", nobody, "nud", "permanent", "dev", "eth0"))
}

// Heal undoes Cluster.Mute, Cluster.Deafen and Cluster.Shape.
func (c *Cluster) Heal() {
	c.report.Helper()
	c.check("heal the machine", errors.Join(
		tool("", "tc", limits(c.net.bridge(), "noqueue")...),
		c.everywhere("flush", "to", c.Gateway, "dev", "eth0", "nud", "permanent")))
}

// Shape limits the rate at which the test's machine sends to all hosts
// together. It is suitable only for slow rates, because at most one packet may
// be sent at once.
func (c *Cluster) Shape(rate string) {
	c.report.Helper()
	c.check("shape the machine", tool("", "tc", limits(c.net.bridge(),
		"tbf", "rate", rate, "burst", "1600", "latency", "400ms")...))
}

// Queued returns how many packets from the test's machine to the hosts the
// limit set by Shape has dropped or delayed.
func (c *Cluster) Queued() (Queued, error) {
	return queued([]string{"tc", "-s", "qdisc", "show", "dev", c.net.bridge(), "root"})
}

// nobody is a MAC address that no interface has.
const nobody = "02:77:ff:ff:ff:ff"

// everywhere runs ip neigh on every host, to change its ARP table.
func (c *Cluster) everywhere(args ...string) error {
	var errs []error
	for _, h := range c.Hosts {
		h.mu.Lock()
		if h.boot != nil { // a host without power has no ARP table
			errs = append(errs, inNetwork(h.boot.pid())("ip", append([]string{"neigh"}, args...)...))
		}
		h.mu.Unlock()
	}
	return errors.Join(errs...)
}
