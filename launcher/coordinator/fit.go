package coordinator

import (
	"fmt"
	"slices"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// unfit says why the hosts of the job cannot be changed so; "" when they can.
// What only the chief knows it says when it is asked to save.
func (m *Machine) unfit(s protocol.Scale) string {
	switch {
	case m.scale != nil:
		return "its hosts are being changed already"
	case m.saving != nil || m.stage == finishing || m.stage == stopping && !m.restarts.coming:
		return "the job is ending"
	case m.stage != running:
		return "the job is being started, or started anew; try again"
	case s.Known != len(m.hosts):
		return "its hosts were changed meanwhile; try again"
	case s.SaveTime <= 0:
		return "no time is given to save in"
	}
	if why := m.unfitLeave(s); why != "" {
		return why
	}
	if why := m.unfitJoin(s); why != "" {
		return why
	}
	return m.tooFew(s)
}

func (m *Machine) unfitLeave(s protocol.Scale) string {
	for n, i := range s.Leave {
		switch {
		case i < 0 || i >= len(m.hosts) || m.hosts[i].place != member || slices.Contains(s.Leave[:n], i):
			return fmt.Sprintf("host %d is none of the job's", i)
		case m.plan.Hosts[i].Seat:
			return fmt.Sprintf("host %s conducts the job and cannot leave it", m.name(i))
		}
	}
	for i, h := range m.hosts {
		if len(h.tasks) > 0 && !slices.Contains(s.Leave, i) {
			return ""
		}
	}
	return "no host would stay, and with the old ones the checkpoint would go"
}

func (m *Machine) unfitJoin(s protocol.Scale) string {
	for n, j := range s.Join {
		same := func(h protocol.HostPlan) bool { return h.Folder == j.Folder && h.Folder != "" }
		for i, h := range m.plan.Hosts {
			if m.hosts[i].place == member && same(h) {
				return fmt.Sprintf("host %s is one of the job's", j.Host)
			}
		}
		switch {
		case slices.ContainsFunc(s.Join[:n], func(k protocol.Joining) bool { return same(k.HostPlan) }):
			return fmt.Sprintf("host %s joins twice", j.Host)
		case j.Seat || j.Left || len(j.Tasks) == 0:
			return fmt.Sprintf("host %s has no tasks", j.Host)
		}
	}
	return ""
}

// tooFew says what would be missing.
func (m *Machine) tooFew(s protocol.Scale) string {
	servers, serversNow := 0, 0
	workers := m.workersAfter(s)
	for i, h := range m.plan.Hosts {
		if n := len(h.Tasks) - protocol.Workers(h.Tasks); m.hosts[i].place == member {
			serversNow += n
			if !slices.Contains(s.Leave, i) && m.available(i) {
				servers += n
			}
		}
	}
	for _, j := range s.Join {
		servers += len(j.Tasks) - protocol.Workers(j.Tasks)
	}
	switch least := m.plan.Restarts.MinWorkers; {
	case workers == 0:
		return "no worker would be left"
	case workers < least:
		return fmt.Sprintf("%s would be left, at least %d are needed (--min-workers)", count(workers, "worker"), least)
	case servers == 0 && serversNow > 0:
		return "no server would be left"
	}
	return ""
}

// workersAfter counts the workers on the hosts that the job will have.
func (m *Machine) workersAfter(s protocol.Scale) int {
	n := 0
	for i, h := range m.plan.Hosts {
		if m.available(i) && !slices.Contains(s.Leave, i) {
			n += protocol.Workers(h.Tasks)
		}
	}
	for _, j := range s.Join {
		n += protocol.Workers(j.Tasks)
	}
	return n
}

// workersNow is how many workers this generation has.
func (m *Machine) workersNow() int {
	n := 0
	for t := range m.hostOf {
		if t.Role == cluster.Worker {
			n++
		}
	}
	return n
}
