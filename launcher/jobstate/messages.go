package jobstate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// up handles a new connection to an agent. The agent's State contains what the
// agent has reported while there was no connection.
func (m *Machine) up(e Up) {
	h, before := m.hosts[e.Host], m.stage
	if h.lost && !m.plan.Restarts.Revive {
		return
	}
	m.do(h.arrive(e.State, m.stage))
	if e.State.Generation == m.generation.number {
		for _, msg := range missed(e.State) {
			m.heard(e.Host, msg)
		}
	}
	switch {
	case m.stage != before: // do nothing: the machine has entered another stage above and has already sent this host the request of that stage
	case m.stage == gathering:
		m.proceed()
	default:
		m.request(e.Host)
		m.do(m.save.request(m.view(), e.Host))
		m.do(m.scale.request(m.view(), e.Host))
	}
}

// lost handles the loss of a host. With the host, the job loses the host's
// tasks.
func (m *Machine) lost(e Lost) {
	h := m.hosts[e.Host]
	if h.lost {
		return
	}
	ended := m.view().unended(e.Host) == 0 && h.answered >= starting
	idle := !h.participates || m.generation.number > 0 && len(h.tasks) == 0
	h.lost, h.disconnected, h.participates, h.leaving = true, e.Cause, false, false
	h.revivable, h.tasksMayRun = e.Answers, e.Clear > 0
	m.do(timer(clearTimer(e.Host), e.Clear))
	switch reason := fmt.Sprintf("host %s: %s", h.name(), e.Cause); {
	case idle:
		m.proceed() // the machine may have been waiting only for an answer of this host
	case ended:
		m.do(notice("%s, after its tasks had ended", reason))
	default:
		m.fail(failureOfHost(e.Host, reason))
	}
}

// heard handles a message from the agent of host h. It gets no State messages:
// these arrive with the event Up.
func (m *Machine) heard(h int, msg protocol.Message) {
	v := m.view()
	now := v.generation.number
	switch {
	case msg.Prepared != nil && msg.Prepared.Generation == now:
		m.decide(nil, m.start.prepared(v, h, *msg.Prepared))
	case msg.Checked != nil && msg.Checked.Generation == now:
		m.decide(m.start.checked(v, h, *msg.Checked))
	case msg.Started != nil && msg.Started.Generation == now && v.stage >= starting && v.hosts[h].participates:
		m.decide(nil, answered{h, starting})
	case msg.Exited != nil:
		m.exited(h, *msg.Exited)
	case msg.TaskReport != nil && msg.TaskReport.Generation == now && m.generation.runs(h, msg.TaskReport.Task):
		m.takeReport(h, *msg.TaskReport)
	case msg.StopAsk != nil:
		s := msg.StopAsk
		m.stopAsked(StopAsked{Reason: s.Reason, Code: s.Code, Grace: s.Grace, SaveTime: s.SaveTime})
	case msg.Scale != nil:
		m.do(m.scale.asked(v, h, *msg.Scale))
	case msg.Seen != nil && msg.Seen.Generation == now && v.stage == running:
		m.decide(v.seen(&m.watch, &m.late, h, msg.Seen))
	case msg.Notice != "":
		m.do(notice("host %s: %s", v.name(h), msg.Notice))
	}
}

// exited handles the exit of a task. If the exit was reported before, it does
// nothing.
func (m *Machine) exited(h int, e protocol.Exit) {
	v := m.view()
	if m.generation.ended(e.Task) || !m.generation.runs(h, e.Task) || e.Generation != m.generation.number {
		return
	}
	m.generation.exits[e.Task] = e
	if e.StopRequested && (v.beforeStop() || m.stage == settling) {
		m.hosts[h].leaving = true
	}
	if reason := v.fault(h, e); reason != "" {
		m.fail(failure{host: h, task: &e.Task, exit: e, reason: reason})
		return
	}
	m.proceed()
}

// said handles a message that a task on host h has sent to its agent.
func (m *Machine) takeReport(h int, s protocol.TaskMessage) {
	v := m.view()
	commands, stepped := m.progress.take(v, s)
	m.do(commands)
	if stepped && m.scale.phase == moved {
		m.scale.stepped = true
	}
	switch {
	case s.Message.Kind == cluster.ToleratesLoss:
		m.tolerance.on = m.tolerance.on || s.Task.IsChief()
	case s.Message.Kind == cluster.Failed && !v.generation.ended(s.Task) && m.failures.of(s.Task) < 0:
		m.fail(failureOf(v, h, s))
	case s.Message.Kind == cluster.Checkpoint && s.Task.IsChief() && s.Message.Request > 0:
		m.decide(m.scale.answered(v, s.Message))
	case s.Message.Kind == cluster.Checkpoint && s.Task.IsChief():
		m.decide(m.save.answered(v, s.Message))
	}
}

// missed converts the state of an agent that has just connected into the
// messages that the driver may have missed. These are the tasks' last steps,
// their exits, and failures of tasks that have not exited yet. Another is the
// message in which the chief (worker 0) says that it tolerates losses of
// workers.
func missed(s protocol.State) []protocol.Message {
	var all []protocol.Message
	said := func(t cluster.Task, m cluster.ControlMessage) {
		all = append(all, protocol.Message{TaskReport: &protocol.TaskMessage{Task: t, Generation: s.Generation, Message: m}})
	}
	states := map[cluster.Task]*protocol.TaskState{}
	for name, now := range s.Tasks {
		if t, err := cluster.ParseTask(name); err == nil && now != nil {
			states[t] = now
		}
	}
	tasks := slices.SortedFunc(maps.Keys(states), func(a, b cluster.Task) int {
		return cmp.Or(cmp.Compare(a.Role, b.Role), cmp.Compare(a.Index, b.Index))
	})
	if chief := states[cluster.Chief]; chief != nil && chief.ToleratesLoss {
		said(cluster.Chief, cluster.ControlMessage{Kind: cluster.ToleratesLoss})
	}
	var exits []protocol.Exit
	for _, t := range tasks {
		if now := states[t]; now.LastProgress != nil {
			word := *now.LastProgress
			if word.Kind == cluster.Failed {
				word.Kind = cluster.Finished // change the kind, to deliver only the step here: the failure follows below, or the task's exit contains it
			}
			said(t, word)
		}
		if e := states[t].Exit; e != nil {
			exits = append(exits, *e)
		}
	}
	// Sort the exits by time, so that the failure that happened first is
	// blamed.
	slices.SortStableFunc(exits, func(a, b protocol.Exit) int { return a.Time.Compare(b.Time) })
	for _, e := range exits {
		all = append(all, protocol.Message{Exited: &e})
	}
	for _, t := range tasks {
		if now := states[t]; now.Exit == nil && now.Failed != nil {
			said(t, *now.Failed)
		}
	}
	return all
}
