package jobstate

import (
	"fmt"
	"slices"

	"github.com/plx-run/plx/launcher/protocol"
)

// unfit says why the hosts of the job cannot be changed as asked; "" if they can.
// What only the chief knows it says when it is asked to save.
func unfit(v view, s protocol.Scale) string {
	switch {
	case v.scaling:
		return "another change of its hosts is under way"
	case v.saving || v.stage == finishing || v.stage == stopping && !v.coming:
		return "the job is ending"
	case v.stage != running:
		return "the job is starting or restarting; try again"
	case s.Known != len(v.hosts):
		return "its hosts were changed meanwhile; try again"
	case s.SaveTime <= 0:
		return "no time is given to save in"
	}
	if why := unfitLeave(v, s); why != "" {
		return why
	}
	if why := unfitJoin(v, s); why != "" {
		return why
	}
	return lacking(v, s)
}

func unfitLeave(v view, s protocol.Scale) string {
	for n, i := range s.Leave {
		switch {
		case i < 0 || i >= len(v.hosts) || v.hosts[i].place != member || slices.Contains(s.Leave[:n], i):
			return fmt.Sprintf("host %d does not belong to the job", i)
		case v.hosts[i].plan.Drives:
			return fmt.Sprintf("host %s drives the job and cannot leave it", v.name(i))
		}
	}
	for i, h := range v.hosts {
		if len(h.tasks) > 0 && !slices.Contains(s.Leave, i) {
			return ""
		}
	}
	return "no host would stay, and the checkpoint is on the old hosts"
}

func unfitJoin(v view, s protocol.Scale) string {
	for n, j := range s.Join {
		same := func(h protocol.HostPlan) bool { return h.Folder == j.Folder && h.Folder != "" }
		switch {
		case slices.ContainsFunc(v.hosts, func(h *host) bool { return h.place == member && same(h.plan) }):
			return fmt.Sprintf("host %s already belongs to the job", j.Host)
		case slices.ContainsFunc(s.Join[:n], func(k protocol.Joining) bool { return same(k.HostPlan) }):
			return fmt.Sprintf("host %s joins twice", j.Host)
		case j.Drives || j.Left || len(j.Tasks) == 0:
			return fmt.Sprintf("host %s has no tasks", j.Host)
		}
	}
	return ""
}

// lacking says of which tasks too few would be left.
func lacking(v view, s protocol.Scale) string {
	servers, serversNow := 0, 0
	for i, h := range v.hosts {
		if n := len(h.plan.Tasks) - protocol.Workers(h.plan.Tasks); h.place == member {
			serversNow += n
			if !slices.Contains(s.Leave, i) && v.hosts.available(i) {
				servers += n
			}
		}
	}
	for _, j := range s.Join {
		servers += len(j.Tasks) - protocol.Workers(j.Tasks)
	}
	switch workers, least := workersAfter(v, s), v.plan.Restarts.MinWorkers; {
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
func workersAfter(v view, s protocol.Scale) (n int) {
	for i, h := range v.hosts {
		if v.hosts.available(i) && !slices.Contains(s.Leave, i) {
			n += protocol.Workers(h.plan.Tasks)
		}
	}
	for _, j := range s.Join {
		n += protocol.Workers(j.Tasks)
	}
	return n
}
