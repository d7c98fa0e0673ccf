package jobstate

import (
	"fmt"
	"strings"

	"github.com/plx-run/plx/internal/plural"
	"github.com/plx-run/plx/launcher/protocol"
)

// host is what the job knows of one host and its agent. A host that is gone is not in;
// only one that is gone is clearing.
type host struct {
	plan  protocol.HostPlan // from Plan.Hosts or Join; Tasks are those of the host's first generation
	place membership        // whether the host is a member, joins, parts or has left

	up       bool   // the driver has connected to an agent of the host at least once
	silent   string // why there is no connection; "": there is one, or the first attempt has not failed
	gone     bool   // the agent is lost; false again after Up from a new agent
	leaving  bool   // the agent is ending, and the job has not asked for that
	clearing bool   // the agent is lost, but its tasks may still run
	answers  bool   // the agent is lost, but the host was reached and may soon have a new agent
	barred   bool   // blamed too often in a row: the host gets no tasks from the next generation on
	addr     string // where the agent listens on the data network; "" before the first Up

	// Of the present generation.
	tasks []protocol.TaskSpec // that the host runs; nil: none

	groupRank int   // number of hosts with workers that come before this one
	in        bool  // the host takes part, perhaps without tasks; false once its agent is lost
	answered  stage // last stage whose request the agent has answered; gathering: none
	told      bool  // Start was sent and not known to be lost: tasks may run
}

// membership is what a host is to the job.
type membership int

const (
	member  membership = iota
	joining            // its agent is there, or is to be; it has no tasks yet
	parting            // it has no tasks any more, but the job may have to return to it
	left
)

func (h *host) name() string { return h.plan.Host }

// arrive takes the state of an agent that has just connected.
func (h *host) arrive(s protocol.State, now stage) (commands []Command) {
	switch {
	case h.gone && now >= settling: // the next generation may come soon
		commands = notice("host %s: is back", h.name())
	case h.gone:
		commands = notice("host %s: is back; the next restart uses it", h.name())
	case h.silent != "" && h.in:
		commands = notice("host %s: connected", h.name())
	}
	if h.gone {
		h.gone, h.clearing, h.told = false, false, false
	}
	h.up, h.silent, h.addr = true, "", s.Addr
	h.leaving = s.Phase == protocol.Stopping || s.Phase == protocol.Over
	if s.Phase == protocol.Idle || s.Phase == protocol.Ready {
		h.told = false // Start was lost on the way: no task runs
	}
	return commands
}

// fallSilent notes that the connection to the agent is lost.
func (h *host) fallSilent(cause string) []Command {
	h.silent = cause
	switch {
	case h.gone: // no new agent yet
	case h.up && h.in:
		return notice("host %s: connection lost: %s; dialling again", h.name(), cause)
	case !h.up:
		return notice("host %s: no connection yet: %s; dialling again", h.name(), cause)
	}
	return nil
}

// reachable reports whether there is a connection to the agent, or is to be the
// first one.
func (h *host) reachable() bool { return !h.gone && h.silent == "" }

// listens reports whether a message would reach the agent.
func (h *host) listens() bool { return h.reachable() && h.up }

// hosts are all that the job has had, by index.
type hosts []*host

// lay begins a generation: it gives tasks to the hosts that can have some.
func (all hosts) lay() {
	groups := 0
	for i, tasks := range renumber(all, all.available) {
		h := all[i]
		h.tasks, h.groupRank, h.in, h.answered, h.told = tasks, groups, !h.gone && h.place == member, gathering, false
		if protocol.Workers(tasks) > 0 {
			groups++
		}
	}
}

// move makes some hosts members and others parting.
func (all hosts) move(members, partings []int) {
	for _, i := range members {
		all[i].place = member
	}
	for _, i := range partings {
		all[i].place = parting
	}
}

// clear takes the end of a clearTimer; it ignores other timers.
func (all hosts) clear(t Timer) {
	for i, h := range all {
		if t == clearTimer(i) {
			h.clearing = false
		}
	}
}

// available reports whether host h can be given tasks.
func (all hosts) available(h int) bool {
	return all[h].place == member && !all[h].gone && !all[h].barred
}

// search looks for a host. It begins where it found one last: while hosts answer one after
// the other, all searches for one that has not take together about one look at each.
type search struct{ at int }

func (s *search) finds(among int, is func(h int) bool) bool {
	for i := range among {
		if h := (s.at + i) % among; is(h) {
			s.at = h
			return true
		}
	}
	return false
}

// arrived reports whether every agent has answered at least once.
func (all hosts) arrived(late *search) bool {
	return !late.finds(len(all), func(h int) bool { return !all[h].up })
}

// answered reports whether every host that takes part has answered the request of
// a stage.
func (all hosts) answered(s stage, late *search) bool {
	return !late.finds(len(all), func(h int) bool { return all[h].in && all[h].answered < s })
}

// seatLost is the host that drives a detached job, if its agent is gone or ends; else nil.
func (all hosts) seatLost() *host {
	for _, h := range all {
		if h.plan.Drives && (h.gone || h.leaving) {
			return h
		}
	}
	return nil
}

// layout is where the tasks of the present generation run.
func (all hosts) layout() []protocol.HostPlan {
	var plan []protocol.HostPlan
	for _, h := range all {
		p := h.plan
		p.Tasks, p.Left = h.tasks, h.place != member
		plan = append(plan, p)
	}
	return plan
}

// everybody is layout, where members that have no tasks for the time being are
// listed with those that they had.
func (all hosts) everybody() []protocol.HostPlan {
	plan := all.layout()
	for i, h := range all {
		if h.place == member && len(plan[i].Tasks) == 0 {
			plan[i].Tasks = h.plan.Tasks
		}
	}
	return plan
}

// where says on how many hosts and with how many workers a generation starts.
func (all hosts) where(generation int) string {
	used, workers := 0, 0
	var without []string
	for _, h := range all {
		workers += protocol.Workers(h.tasks)
		switch {
		case len(h.tasks) > 0:
			used++
		case h.place == member:
			without = append(without, h.name())
		}
	}
	text := fmt.Sprintf("generation %d starts on %s with %s", generation, plural.Count(used, "host"), plural.Count(workers, "worker"))
	if len(without) > 0 {
		text += ", without " + strings.Join(without, ", ")
	}
	return text
}

// missing says why each host that is lost and may come back is not there.
func (all hosts) missing() string {
	text := ""
	for _, h := range all {
		if h.gone && !h.barred && h.place == member {
			text += fmt.Sprintf("; host %s: %s", h.name(), h.silent)
		}
	}
	return text
}

// mayCome reports whether host h has an agent, or may come to have one.
func mayCome(v view, h int) bool {
	host := v.hosts[h]
	return host.place == member && !host.barred && (!host.gone || v.plan.Restarts.Revive && v.plan.Restarts.Max > 0)
}

// count counts the workers and servers of the members that count.
func (all hosts) count(counts func(h int) bool) (workers, servers int) {
	for i, h := range all {
		if h.place == member && counts(i) {
			n := protocol.Workers(h.plan.Tasks)
			workers, servers = workers+n, servers+len(h.plan.Tasks)-n
		}
	}
	return workers, servers
}

// shortage says what the job lacks if only the hosts that count are there; "" if
// they are enough.
func shortage(v view, counts func(h int) bool) string {
	workers, servers := v.hosts.count(counts)
	all, allServers := v.hosts.count(func(int) bool { return true })
	least := v.plan.Restarts.MinWorkers
	switch {
	case least <= 0 && workers < all:
		return fmt.Sprintf("%d of %d workers are left, and without --min-workers all are needed", workers, all)
	case workers < least:
		return fmt.Sprintf("%d of %d workers are left, at least %d are needed (--min-workers)", workers, all, least)
	case workers == 0:
		return "no worker is left"
	case servers == 0 && allServers > 0:
		return "no server is left"
	}
	return ""
}
