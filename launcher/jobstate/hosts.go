package jobstate

import (
	"fmt"
	"strings"

	"github.com/plx-run/plx/internal/plural"
	"github.com/plx-run/plx/launcher/protocol"
)

// host is what the driver (the process that controls the job) knows about one
// host and its agent. If tasksMayRun is true, lost is true. If lost is true,
// participates is false.
type host struct {
	plan  protocol.HostPlan // from Plan.Hosts or Join; plan.Tasks are the tasks of the host's first generation
	place membership        // whether the host is a member of the job, joins it or leaves it

	up           bool   // true once the driver has connected to an agent on this host
	disconnected string // why there is no connection to the agent; empty if connected, or if the first connection is still being opened
	lost         bool   // true if plx has given up the connection to this agent; false again when a new agent connects
	leaving      bool   // the agent is shutting down although the job has not asked for that
	tasksMayRun  bool   // the agent is lost, but its tasks may still run: the agent kills them only when its lease (time without a message from the driver) expires
	revivable    bool   // the agent is lost, but the driver (the process that controls the job) can reach the host and may soon start a new agent
	excluded     bool   // blamed for too many failures in a row: the host gets no tasks in later generations
	addr         string // address of the agent on the data network; empty until the agent connects

	// The following fields are about the current generation (run of all
	// tasks).
	tasks []protocol.TaskSpec // tasks that the host runs in the current generation (run of all tasks); nil if none

	groupRank    int   // number of hosts that run workers and have a lower index than this host
	participates bool  // the host takes part in this generation (run of all tasks), possibly without tasks; false once its agent is lost
	answered     stage // last stage whose request the agent has answered; gathering if it has answered none
	startSent    bool  // a Start message was sent and may have arrived, so tasks may be running
}

// membership says whether a host belongs to the job, or is joining or leaving
// it.
type membership int

const (
	member  membership = iota
	joining            // the host was added by plx scale; it has no tasks yet
	parting            // plx scale has taken the host's tasks away, but the job may still return to it
	left
)

func (h *host) name() string { return h.plan.Host }

// arrive updates h from the state of an agent that has just connected. now is
// the job's current stage.
func (h *host) arrive(s protocol.State, now stage) (commands []Command) {
	switch {
	case h.lost && now >= settling: // the current generation (run of all tasks) is ending, so the next one may soon use the host
		commands = notice("host %s: is back", h.name())
	case h.lost:
		commands = notice("host %s: is back; the next restart uses it", h.name())
	case h.disconnected != "" && h.participates:
		commands = notice("host %s: connected", h.name())
	}
	if h.lost {
		h.lost, h.tasksMayRun, h.startSent = false, false, false
	}
	h.up, h.disconnected, h.addr = true, "", s.Addr
	h.leaving = s.Phase == protocol.Stopping || s.Phase == protocol.Over
	if s.Phase == protocol.Idle || s.Phase == protocol.Ready {
		h.startSent = false // the Start message did not arrive, so no task is running
	}
	return commands
}

// fallSilent records that the connection to the agent is lost, and returns a
// notice for the user.
func (h *host) fallSilent(cause string) []Command {
	h.disconnected = cause
	switch {
	case h.lost: // write no notice, because no new agent has connected since the loss
	case h.up && h.participates:
		return notice("host %s: connection lost: %s; dialling again", h.name(), cause)
	case !h.up:
		return notice("host %s: no connection yet: %s; dialling again", h.name(), cause)
	}
	return nil
}

// reachable reports whether the driver (the process that controls the job) is
// connected to the agent, or is opening the first connection.
func (h *host) reachable() bool { return !h.lost && h.disconnected == "" }

// listens reports whether a message sent now would reach the agent.
func (h *host) listens() bool { return h.reachable() && h.up }

// hosts are all hosts that have ever belonged to the job, by index.
type hosts []*host

// lay resets the hosts for a new generation (run of all tasks) and assigns
// tasks to the available hosts.
func (all hosts) lay() {
	groups := 0
	for i, tasks := range renumber(all, all.available) {
		h := all[i]
		h.tasks, h.groupRank, h.participates, h.answered, h.startSent = tasks, groups, !h.lost && h.place == member, gathering, false
		if protocol.Workers(tasks) > 0 {
			groups++
		}
	}
}

// move changes which hosts belong to the job. The hosts with the indices
// members become members. Those with the indices partings become parting: they
// get no tasks, but may become members again.
func (all hosts) move(members, partings []int) {
	for _, i := range members {
		all[i].place = member
	}
	for _, i := range partings {
		all[i].place = parting
	}
}

// clear handles the expiry of a host's clearTimer, after which no task can run
// on that lost host. It ignores other timers.
func (all hosts) clear(t Timer) {
	for i, h := range all {
		if t == clearTimer(i) {
			h.tasksMayRun = false
		}
	}
}

// available reports whether host h can run tasks in the next generation (run
// of all tasks).
func (all hosts) available(h int) bool {
	return all[h].place == member && !all[h].lost && !all[h].excluded
}

// search looks for a host with some property, such as a host that has not
// answered. It starts at the host that it found last time. So while the hosts
// lose the property one after the other, all calls of finds together examine
// each host only about once.
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

// arrived reports whether the driver has connected to every agent at least
// once. It uses late to look for a host without a connection so far.
func (all hosts) arrived(late *search) bool {
	return !late.finds(len(all), func(h int) bool { return !all[h].up })
}

// answered reports whether every host that takes part in the generation (run
// of all tasks) has answered the request of stage s. It uses late to look for
// a host that has not.
func (all hosts) answered(s stage, late *search) bool {
	return !late.finds(len(all), func(h int) bool { return all[h].participates && all[h].answered < s })
}

// lostDriver is about a detached job. It returns the host whose agent drives
// the job if that agent is lost or shutting down. In all other cases it
// returns nil.
func (all hosts) lostDriver() *host {
	for _, h := range all {
		if h.plan.Drives && (h.lost || h.leaving) {
			return h
		}
	}
	return nil
}

// layout returns all hosts with the tasks that they run in the current
// generation (run of all tasks).
func (all hosts) layout() []protocol.HostPlan {
	var plan []protocol.HostPlan
	for _, h := range all {
		p := h.plan
		p.Tasks, p.Left = h.tasks, h.place != member
		plan = append(plan, p)
	}
	return plan
}

// withIdleMembers is like layout, but also lists members that have no tasks
// now. It lists them with the tasks that they had in the first generation (run
// of all tasks).
func (all hosts) withIdleMembers() []protocol.HostPlan {
	plan := all.layout()
	for i, h := range all {
		if h.place == member && len(plan[i].Tasks) == 0 {
			plan[i].Tasks = h.plan.Tasks
		}
	}
	return plan
}

// where returns a text for the user about a generation (run of all tasks): on
// how many hosts and with how many workers it starts, and which hosts have no
// tasks.
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

// missing returns a text that lists the lost hosts that may come back, each
// with the reason why it was lost.
func (all hosts) missing() string {
	text := ""
	for _, h := range all {
		if h.lost && !h.excluded && h.place == member {
			text += fmt.Sprintf("; host %s: %s", h.name(), h.disconnected)
		}
	}
	return text
}

// mayCome reports whether host h has an agent, or could get a new one.
func mayCome(v view, h int) bool {
	host := v.hosts[h]
	return host.place == member && !host.excluded && (!host.lost || v.plan.Restarts.Revive && v.plan.Restarts.Max > 0)
}

// count returns the number of workers and servers that the plan assigns to the
// members of the job. It counts those members h for which counts(h) is true.
func (all hosts) count(counts func(h int) bool) (workers, servers int) {
	for i, h := range all {
		if h.place == member && counts(i) {
			n := protocol.Workers(h.plan.Tasks)
			workers, servers = workers+n, servers+len(h.plan.Tasks)-n
		}
	}
	return workers, servers
}

// shortage returns a text that says which tasks the job lacks if it can use
// only the hosts h for which counts(h) is true. It returns "" if these hosts
// are enough.
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
