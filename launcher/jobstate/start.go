package jobstate

import (
	"fmt"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// start brings a generation from opened sockets to running tasks. In each of its
// stages every agent gets one request and answers it.
type start struct {
	cluster  cluster.Spec // addresses where the tasks will listen; complete after the stage preparing
	foreign  cluster.Spec // addresses reserved for programs that do not use plx's trainer
	launched bool         // Start was sent, in this generation or an earlier one
}

// request is the present stage's request to host h.
func (s *start) request(v view, h int) []Command {
	to, now := v.hosts[h], v.generation.number
	switch v.stage {
	case preparing:
		return []Command{send(h, protocol.Message{Prepare: &protocol.Prepare{Generation: now, Tasks: to.tasks, GroupRank: groupRank(v.hosts, h)}})}
	case checking:
		return []Command{send(h, protocol.Message{Check: &protocol.Check{Generation: now, Peers: peers(v, h)}})}
	case starting:
		s.launched = true
		return []Command{send(h, protocol.Message{Start: &protocol.Start{Generation: now, Cluster: s.cluster, Foreign: s.foreign,
			Groups: groupRank(v.hosts, len(v.hosts)), Restarts: v.restarts, MaxRestarts: v.plan.Restarts.Max}})}
	}
	return nil
}

// groupRank is the index of host h among those with workers.
func groupRank(all hosts, h int) int {
	rank := 0
	for _, before := range all[:h] {
		if protocol.Workers(before.tasks) > 0 {
			rank++
		}
	}
	return rank
}

// peers are the other hosts with tasks. A host without tasks needs to reach none.
func peers(v view, of int) []protocol.Peer {
	if v.generation.number > 0 && len(v.hosts[of].tasks) == 0 {
		return nil
	}
	var peers []protocol.Peer
	for i, h := range v.hosts {
		if i != of && h.in && (v.generation.number == 0 || len(h.tasks) > 0) {
			peers = append(peers, protocol.Peer{Index: i, Host: h.name(), Addr: h.addr})
		}
	}
	return peers
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
// is a mistake in the resources; later it is a failure of the peer's host.
func (s *start) checked(v view, h int, c protocol.Checked) decision {
	if !v.hosts[h].in || v.stage != checking && v.stage != settling {
		return nil
	}
	var failures []failure
	for _, f := range c.Failures {
		reason := fmt.Sprintf("host %s cannot reach host %s at %s: %s", v.name(h), f.Peer.Host, f.Peer.Addr, f.Cause)
		if v.generation.number == 0 {
			return refused{h, reason + " (a firewall? see --port-range, or --nic and addr= in the resource file)"}
		}
		if f.Peer.Index >= 0 && f.Peer.Index < len(v.hosts) {
			failures = append(failures, failure{host: f.Peer.Index, reason: reason, exit: protocol.Exit{Code: CodePlx}, hearsay: true})
		}
	}
	if len(failures) > 0 {
		return failed{failures}
	}
	if v.stage != checking {
		return nil
	}
	return answered{h, checking}
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
