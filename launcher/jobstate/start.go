package jobstate

import (
	"fmt"
	"slices"

	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// start handles the stages preparing, checking and starting, from opening
// sockets to running tasks. In each of these stages, every agent gets one
// request and answers it.
type start struct {
	cluster  cluster.Spec // listen addresses of the tasks; complete after the stage preparing
	foreign  cluster.Spec // addresses reserved for programs that do not use plx's trainer
	launched bool         // a Start message was sent, in this generation or an earlier one
	warned   bool         // the user has been warned that some hosts cannot reach each other

	checkedHosts []int           // sorted indices of the hosts that take part in the connection check; nil before the check
	message      *protocol.Start // the Start message, which is the same for all hosts; nil before the stage starting
}

// request returns the command that sends host h the request of the current
// stage: a Prepare, Check or Start message.
func (s *start) request(v view, h int) []Command {
	to, now := v.hosts[h], v.generation.number
	switch v.stage {
	case preparing:
		return []Command{send(h, protocol.Message{Prepare: &protocol.Prepare{Generation: now, Tasks: to.tasks, GroupRank: to.groupRank}})}
	case checking:
		return []Command{send(h, protocol.Message{Check: &protocol.Check{Generation: now, Peers: s.peers(v, h)}})}
	case starting:
		if s.message == nil {
			s.message = &protocol.Start{Generation: now, Addresses: protocol.NewAddresses(s.cluster, s.foreign),
				Groups: v.generation.groups, Restarts: v.restarts, MaxRestarts: v.plan.Restarts.Max}
		}
		s.launched = true
		return []Command{send(h, protocol.Message{Start: s.message})}
	}
	return nil
}

// checkAll is the largest number of hosts for which the connection check tests
// every pair of hosts. With more hosts it tests a selection of pairs.
const checkAll = 16

// peers returns the hosts that one host must dial in the connection check. of
// is the index of this one host. In the first generation, all hosts take part
// in the check; later, only hosts with tasks.
//
// With up to checkAll hosts, each host dials all others. With more, each host
// dials the hosts at distances 1, 2, 4, 8 and so on in the list of hosts, and
// the chief's host. The chief's host dials all others. This finds a host
// behind a firewall, because several hosts dial it. A broken connection
// between other pairs fails later, in the task that needs it.
func (s *start) peers(v view, of int) (peers []protocol.Peer) {
	if s.checkedHosts == nil {
		for i, h := range v.hosts {
			if h.participates && (v.generation.number == 0 || len(h.tasks) > 0) {
				s.checkedHosts = append(s.checkedHosts, i)
			}
		}
	}
	self, found := slices.BinarySearch(s.checkedHosts, of)
	if !found {
		return nil
	}
	for _, i := range dialled(s.checkedHosts, self, v.chief()) {
		peers = append(peers, protocol.Peer{Index: i, Host: v.name(i), Addr: v.hosts[i].addr})
	}
	return peers
}

// dialled returns those elements of all (sorted host indices) that one host
// must dial. self is the position of this host in all, and chief the index of
// the chief's host.
func dialled(all []int, self, chief int) (some []int) {
	if len(all) <= checkAll || all[self] == chief {
		return slices.Delete(slices.Clone(all), self, self+1)
	}
	for far := 1; far < len(all); far *= 2 {
		some = append(some, all[(self+far)%len(all)])
	}
	if _, found := slices.BinarySearch(all, chief); found {
		some = append(some, chief)
	}
	slices.Sort(some)
	return slices.Compact(some)
}

// prepared records the addresses of a host's tasks. An agent may answer twice,
// if the request Prepare was repeated after a reconnection.
func (s *start) prepared(v view, h int, p protocol.Prepared) decision {
	if v.stage != preparing || !v.hosts[h].participates {
		return nil
	}
	if p.Error == "" {
		p.Error = mismatch(v, h, p)
	}
	if p.Error != "" {
		return refused{h, fmt.Sprintf("host %s: open sockets: %s", v.name(h), p.Error)}
	}
	for t, addr := range p.Open {
		s.cluster.Set(t, addr)
	}
	for t, addr := range p.Reserved {
		s.foreign.Set(t, addr)
	}
	return answered{h, preparing}
}

// mismatch checks the addresses that a host has reported: each of the host's
// tasks must have an address, and tasks of other hosts must have none. It
// returns an error text or "".
func mismatch(v view, h int, p protocol.Prepared) string {
	for _, t := range v.hosts[h].tasks {
		if p.Open[t.Task] == "" {
			return fmt.Sprintf("the agent gave no address for %s", t.Task)
		}
	}
	for _, addresses := range []map[cluster.Task]string{p.Open, p.Reserved} {
		for t := range addresses {
			if !v.generation.runs(h, t) {
				return fmt.Sprintf("the agent gave an address for %s, which is not its task", t)
			}
		}
	}
	return ""
}

// checked handles the result of a host's connection check. If a peer is
// unreachable in the first generation, the job ends with a configuration
// error. In a later generation, this counts as a failure of the peer's host.
//
// The tasks of a program without plx's trainer may never connect to each
// other. For such a program, an unreachable peer causes only a warning, unless
// host h drives a detached job: the driver must reach all hosts.
func (s *start) checked(v view, h int, c protocol.Checked) ([]Command, decision) {
	if !v.hosts[h].participates || v.stage != checking && v.stage != settling {
		return nil, nil
	}
	var failures []failure
	var warnings []Command
	for _, f := range c.Failures {
		reason := fmt.Sprintf("host %s cannot reach host %s at %s: %s", v.name(h), f.Peer.Host, f.Peer.Addr, f.Cause)
		switch {
		case v.plan.Foreign && !v.hosts[h].plan.Drives:
			warnings = append(warnings, s.warn(reason)...)
		case v.generation.number == 0:
			return nil, refused{h, reason + blocked}
		case f.Peer.Index >= 0 && f.Peer.Index < len(v.hosts):
			failures = append(failures, failure{host: f.Peer.Index, reason: reason, exit: protocol.Exit{Code: exit.CodePlx}, secondhand: true})
		}
	}
	if len(failures) > 0 {
		return warnings, failed{failures}
	}
	if v.stage != checking {
		return warnings, nil
	}
	return warnings, answered{h, checking}
}

// blocked is the end of the error about an unreachable host. It names the
// likely cause and the options that may help.
const blocked = " (a firewall? see --port-range, or --nic and addr= in the resource file)"

// warn returns a warning that some hosts cannot reach each other, for a
// program that does not use plx's trainer. It warns only once.
func (s *start) warn(reason string) []Command {
	if s.warned {
		return nil
	}
	s.warned = true
	return notice("warning: %s%s; the program starts all the same", reason, blocked)
}

// overdue cancels the start of a generation when its time limit is over. The
// error names one host that has not answered.
func (s *start) overdue(v view) decision {
	late, who := 0, "the job"
	for i, h := range v.hosts {
		if h.participates && !(h.up && (v.stage == gathering || h.answered >= v.stage)) {
			if late, who = i, "host "+h.name(); h.disconnected != "" {
				who += " (" + h.disconnected + ")"
			}
			break
		}
	}
	return refused{late, fmt.Sprintf("%s did not start within %s", who, v.plan.StartTimeout)}
}
