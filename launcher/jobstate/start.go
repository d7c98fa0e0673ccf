package jobstate

import (
	"fmt"
	"slices"

	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// start brings a generation from opened sockets to running tasks. In each of its
// stages every agent gets one request and answers it.
type start struct {
	cluster  cluster.Spec // addresses where the tasks will listen; complete after the stage preparing
	foreign  cluster.Spec // addresses reserved for programs that do not use plx's trainer
	launched bool         // Start was sent, in this generation or an earlier one
	warned   bool         // the user knows that hosts cannot reach each other

	circle  []int           // indices of the hosts that reach each other, in order; nil before the stage checking
	message *protocol.Start // what all hosts are sent in the stage starting; nil before
}

// request is the present stage's request to host h.
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

// checkAll is up to how many hosts a check reaches from each to each.
const checkAll = 16

// peers are the hosts that a host has to reach: others with tasks, and in the first
// generation every other host. Of many hosts they are those at distances of 1, 2, 4, 8
// and so on, and the chief's, which reaches all: a firewall closes a host to most
// others, and each is dialled from many. What no check has seen, a task that dials in
// vain names.
func (s *start) peers(v view, of int) (peers []protocol.Peer) {
	if s.circle == nil {
		for i, h := range v.hosts {
			if h.in && (v.generation.number == 0 || len(h.tasks) > 0) {
				s.circle = append(s.circle, i)
			}
		}
	}
	self, found := slices.BinarySearch(s.circle, of)
	if !found {
		return nil
	}
	for _, i := range dialled(s.circle, self, v.chief()) {
		peers = append(peers, protocol.Peer{Index: i, Host: v.name(i), Addr: v.hosts[i].addr})
	}
	return peers
}

// dialled are the hosts that the one at index self of all dials.
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

// prepared takes the addresses of a host's tasks. An agent answers twice if
// Prepare was sent again after a lost connection.
func (s *start) prepared(v view, h int, p protocol.Prepared) decision {
	if v.stage != preparing || !v.hosts[h].in {
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

// mismatch says what is wrong with a host's addresses: there must be one for each
// of its tasks, and none for another host's task.
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

// checked takes which peers a host could not reach. In the first generation that
// is a mistake in the resources; later it is a failure of the peer's host. Tasks of a
// foreign program may never talk to each other: the user is told, and they start. The
// host that drives a detached job must reach all.
func (s *start) checked(v view, h int, c protocol.Checked) ([]Command, decision) {
	if !v.hosts[h].in || v.stage != checking && v.stage != settling {
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
			failures = append(failures, failure{host: f.Peer.Index, reason: reason, exit: protocol.Exit{Code: exit.CodePlx}, hearsay: true})
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

// blocked is what may be wrong between two hosts, and what to do.
const blocked = " (a firewall? see --port-range, or --nic and addr= in the resource file)"

// warn tells the user once that hosts of a foreign program cannot reach each other.
func (s *start) warn(reason string) []Command {
	if s.warned {
		return nil
	}
	s.warned = true
	return notice("warning: %s%s; the program starts all the same", reason, blocked)
}

// overdue gives up a start that takes too long. It names a host that holds it up.
func (s *start) overdue(v view) decision {
	late, who := 0, "the job"
	for i, h := range v.hosts {
		if h.in && !(h.up && (v.stage == gathering || h.answered >= v.stage)) {
			if late, who = i, "host "+h.name(); h.silent != "" {
				who += " (" + h.silent + ")"
			}
			break
		}
	}
	return refused{late, fmt.Sprintf("%s did not start within %s", who, v.plan.StartTimeout)}
}
