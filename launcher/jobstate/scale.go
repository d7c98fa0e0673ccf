package jobstate

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/plx-run/plx/internal/plural"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// joinTime is the time limit for connecting to the agents of hosts that plx
// scale adds.
const joinTime = 45 * time.Second

// scale changes the hosts of a running job (plx scale). First the driver
// connects to the new agents. Then the chief (worker 0) takes a checkpoint and
// pauses. Then the driver ends all tasks and starts them on the new hosts.
// Until one of these tasks has made a training step, the job can return to its
// old hosts.
type scale struct {
	phase   scalePhase
	begun   int    // number of changes of hosts that were begun; also identifies the current change in Checkpoint.Request
	last    Answer // answer to the previous plx scale command; its ID is empty if there was none
	stepped bool   // a task has made a training step on the new hosts

	ask     protocol.Scale // the plx scale request that is being carried out; valid while a change is under way
	by      int            // index of the host whose agent forwards the answer to plx scale
	joined  []int          // indices of the hosts that join
	workers int            // number of workers before the change
	step    int64          // step after which the chief has paused; valid in the phases ending and moved
}

// scalePhase says how far a change of hosts has progressed.
type scalePhase int

const (
	unchanged  scalePhase = iota // no change of hosts is under way
	connecting                   // the driver connects to the agents of the new hosts
	saving                       // the chief was asked to take a checkpoint and pause
	ending                       // the chief has paused, and the tasks of the old hosts are being stopped
	moved                        // the new hosts are in place, and the next generation starts on them
)

func (s *scale) underWay() bool { return s.phase != unchanged }

// asked handles a Scale request that arrived through host h. After a lost
// connection, plx scale repeats its request with the same ID.
func (s *scale) asked(v view, h int, ask protocol.Scale) []Command {
	answer := func(scaled protocol.Scaled) []Command { return []Command{Answer{Host: h, Scaled: scaled}} }
	switch {
	case s.underWay() && s.ask.ID == ask.ID:
		s.by = h
		return nil
	case s.last.Scaled.ID != "" && s.last.Scaled.ID == ask.ID:
		return answer(s.last.Scaled)
	case ask.Known == 0:
		return answer(protocol.Scaled{ID: ask.ID, Hosts: v.hosts.withIdleMembers()})
	}
	if why := unfit(v, ask); why != "" {
		return answer(protocol.Scaled{ID: ask.ID, Cause: why})
	}
	s.begun++
	s.phase, s.ask, s.by, s.joined, s.stepped, s.workers = connecting, ask, h, nil, false, v.generation.workers
	var commands []Command
	for k, j := range ask.Join {
		i := len(v.hosts) + k
		s.joined = append(s.joined, i)
		commands = append(commands, Join{Host: i, Joining: j})
	}
	return append(commands, timer(scaleTimer, joinTime)...)
}

// afterEvent is called after each event. If the current phase of a change of
// hosts is complete, it enters the next phase.
func (s *scale) afterEvent(v view) []Command {
	switch {
	case s.phase == moved && s.stepped && v.stage == running:
		commands := s.end(protocol.Scaled{Generation: v.generation.number, Hosts: v.hosts.withIdleMembers(),
			From: s.workers, To: v.generation.workers, Step: s.step})
		return append(commands, s.release(v)...)
	case s.phase != connecting || v.stage != running:
		return nil
	}
	for _, i := range s.joined {
		if h := v.hosts[i]; h.lost {
			return s.giveUp(v, fmt.Sprintf("host %s: %s", h.name(), h.disconnected))
		} else if !h.listens() {
			return nil
		}
	}
	s.phase = saving
	return append(timer(scaleTimer, s.ask.SaveTime), s.request(v, v.chief())...)
}

// request makes the command that asks the chief (worker 0) to take a
// checkpoint and pause. It returns nil if h is not the chief's host, or if the
// change of hosts is not in the phase saving. It is called again when the
// driver has reconnected to a host.
func (s *scale) request(v view, h int) []Command {
	if s.phase != saving || v.stage != running || h != v.chief() || !v.hosts[h].reachable() {
		return nil
	}
	workers, _ := tasksAfter(v, s.ask)
	hold := &protocol.Hold{Workers: workers}
	for _, i := range s.ask.Leave {
		for _, t := range v.hosts[i].tasks {
			hold.Leaving = append(hold.Leaving, t.Task.String())
		}
	}
	return []Command{send(h, protocol.Message{Checkpoint: &protocol.Checkpoint{Request: s.begun, Hold: hold}})}
}

// answered handles the chief's answer to the checkpoint request. If the chief
// (worker 0) has taken the checkpoint and paused, the generation ends. If not,
// the change of hosts is cancelled.
func (s *scale) answered(v view, said cluster.ControlMessage) ([]Command, decision) {
	if s.phase != saving || v.stage != running || said.Request != s.begun {
		return nil, nil
	}
	if said.Cause == "" && !said.Hold {
		said.Cause = "the program saves but does not hold the job"
	}
	if said.Cause != "" {
		return s.giveUp(v, "not saved: "+said.Cause), nil
	}
	s.phase, s.step = ending, said.Step
	note := notice("scaling: saved after step %d, generation %d is ended", s.step, v.generation.number)
	return append([]Command{Holding{For: said.Held}}, note...), held{s.step}
}

// move enters the phase moved, and sets the time limit for the first step on
// the new hosts.
func (s *scale) move(v view) []Command {
	s.phase = moved
	return timer(scaleTimer, v.plan.StartTimeout+s.ask.SaveTime)
}

// release removes the hosts that the job no longer needs after a change. The
// removal ends their agents.
func (s *scale) release(v view) (commands []Command) {
	if s.underWay() {
		return nil // keep all hosts until the change is complete, because the job may have to return to the old ones
	}
	for i, h := range v.hosts {
		if h.place == parting {
			commands = append(commands, Leave{Host: i})
		}
	}
	return commands
}

// giveUp cancels the current change, if no task has been stopped for it yet.
// If tasks have been stopped, giveUp only sends the answer, because the job
// ends.
func (s *scale) giveUp(v view, why string) []Command {
	was := s.phase
	if was == unchanged || was == ending && v.coming {
		return nil
	}
	commands := s.end(protocol.Scaled{Cause: why})
	if was == moved || was == ending {
		return commands
	}
	commands = append(commands, Note{Text: "not scaled: " + why})
	if chief := v.chief(); was == saving && v.hosts[chief].reachable() {
		commands = append(commands, send(chief, protocol.Message{Checkpoint: &protocol.Checkpoint{Request: s.begun, Resume: true}}))
	}
	for _, i := range s.joined {
		commands = append(commands, Leave{Host: i})
	}
	return commands
}

// end ends the change and sends the answer to the command that requested the
// change.
func (s *scale) end(answer protocol.Scaled) []Command {
	s.phase = unchanged
	answer.ID = s.ask.ID
	s.last = Answer{Host: s.by, Scaled: answer}
	return []Command{s.last}
}

// overdue handles the end of the time limit of the current phase.
func (s *scale) overdue(v view) ([]Command, decision) {
	switch {
	case s.phase == moved && v.beforeStop():
		return nil, failed{[]failure{failureOfHost(v.chief(), fmt.Sprintf("no step was made within %s on the new hosts", v.plan.StartTimeout+s.ask.SaveTime))}}
	case s.phase == saving:
		return s.giveUp(v, fmt.Sprintf("%s on %s had not saved within %s", cluster.Chief, v.name(v.chief()), s.ask.SaveTime)), nil
	case s.phase == connecting:
		return s.giveUp(v, fmt.Sprintf("no connection to the new hosts within %s", joinTime)), nil
	}
	return nil, nil
}

// unfit returns why the driver cannot make the requested change of hosts, or
// "" if it can. The training program may have further reasons. The chief
// (worker 0) reports them when the driver asks it for a checkpoint.
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
		return "the time limit for the checkpoint is 0"
	}
	return cmp.Or(unfitLeave(v, s), unfitJoin(v, s), tasksLacking(v, s))
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

// tasksLacking returns an error text if the change would leave the job with too few
// workers or no server. Otherwise it returns "".
func tasksLacking(v view, s protocol.Scale) string {
	workers, servers := tasksAfter(v, s)
	_, serversNow := v.hosts.count(func(int) bool { return true })
	switch least := v.plan.Restarts.MinWorkers; {
	case workers == 0:
		return "no worker would be left"
	case workers < least:
		return fmt.Sprintf("%s would be left, at least %d are needed (--min-workers)", plural.Count(workers, "worker"), least)
	case servers == 0 && serversNow > 0:
		return "no server would be left"
	}
	return ""
}

// tasksAfter returns the number of workers and servers that the job has after
// the change.
func tasksAfter(v view, s protocol.Scale) (workers, servers int) {
	workers, servers = v.hosts.count(func(i int) bool { return v.hosts.available(i) && !slices.Contains(s.Leave, i) })
	for _, j := range s.Join {
		n := protocol.Workers(j.Tasks)
		workers, servers = workers+n, servers+len(j.Tasks)-n
	}
	return workers, servers
}
