package jobstate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hang"
	"github.com/plx-run/plx/launcher/protocol"
)

// maxNotices is the largest number of notices in a verdict. A job may run for
// months, and its verdict must fit into one message.
const maxNotices = 100

// Machine is the state machine of one job. It is composed of submachines, each
// of which owns the state of one subject. Machine itself owns the stage and
// the verdict. It is not safe for concurrent use.
type Machine struct {
	plan    protocol.Plan // plan passed to New; hosts that joined later are only in Machine.hosts
	stage   stage
	verdict protocol.Verdict // verdict of the current run of the tasks (since the last restart) or, at the end, of the whole job; Reason is empty until it is decided
	notices []string         // notices for the verdict, at most maxNotices
	grace   time.Duration    // shortest grace period (between SIGTERM and SIGKILL) that applies so far; initially Plan.Grace
	expired bool             // the job's time limit (--max-time) has expired
	// suspended is how long the driver (the process that controls the job) was
	// recently suspended, for example with its machine. It is 0 if it was not
	// suspended.
	suspended time.Duration
	out       []Command // commands of the current call of Step so far, in order

	hosts      hosts
	generation generation
	progress   progress

	late search // looks for a host that has not answered
	busy search // looks for a host with tasks that have not ended

	start     start
	failures  failures // failures since the last restart, collected until one is blamed
	tolerance tolerance
	restart   restart
	regroup   regroup
	scale     scale
	save      save
	watch     hang.Watch
}

// New returns the state machine of a job that has not started yet.
func New(plan protocol.Plan) *Machine {
	m := &Machine{plan: plan, grace: plan.Grace}
	for _, h := range plan.Hosts {
		m.hosts = append(m.hosts, &host{plan: h})
	}
	m.lay(0)
	return m
}

// Begin returns the commands that start the job's timers.
func (m *Machine) Begin() []Command {
	return slices.Concat(timer(startTimer, m.plan.StartTimeout), timer(maxTimer, m.plan.MaxTime))
}

// Step handles one event and returns the commands to carry out, in order. It
// ignores all events of a host that has left the job, and messages of a lost
// host. It also ignores messages about earlier generations (runs of the tasks
// before a restart).
func (m *Machine) Step(e Event) []Command {
	if h := e.about(); m.stage == over || h >= 0 && m.hosts[h].place == left {
		return nil
	}
	m.out = nil
	switch e := e.(type) {
	case Up:
		m.up(e)
	case Silent:
		m.do(m.hosts[e.Host].fallSilent(e.Cause))
	case Lost:
		m.lost(e)
	case Heard:
		if !m.hosts[e.Host].lost {
			m.heard(e.Host, e.Message)
		}
	case StopAsked:
		m.stopAsked(e)
	case Suspended:
		m.suspended = max(m.suspended, e.For) // only the duration is recorded: later events report the hosts that lost their tasks
		m.do(timer(suspendedTimer, 2*m.plan.Lease+time.Minute))
	case Elapsed:
		m.elapsed(e.Timer)
	}
	m.decide(m.save.afterEvent(m.view()))
	m.do(m.scale.afterEvent(m.view()))
	m.endIfAllGone()
	if m.stage == regrouping {
		m.decide(m.regroup.next(m.view()))
	}
	return m.out
}

// view returns the part of the state that the submachines may read.
func (m *Machine) view() view {
	return view{
		plan: m.plan, stage: m.stage, hosts: m.hosts, generation: m.generation,
		restarts: m.restart.made, coming: m.restart.coming, scaling: m.scale.underWay(), saving: m.save.wanted, expired: m.expired,
		suspended: m.suspended, launched: m.start.launched, stepped: m.progress.stepped, held: cmp.Or(m.progress.held, m.progress.heldBefore),
	}
}

// do adds commands to the output of Step. It also records the effects of Note,
// Join and Leave in the machine's own state.
func (m *Machine) do(commands []Command) {
	for _, c := range commands {
		switch c := c.(type) {
		case Note:
			if c.Lasting && len(m.notices) < maxNotices {
				m.notices = append(m.notices, c.Text)
			}
		case Join:
			m.hosts = append(m.hosts, &host{plan: c.Joining.HostPlan, place: joining})
		case Leave:
			m.hosts[c.Host].place, m.hosts[c.Host].tasks = left, nil
		}
		m.out = append(m.out, c)
	}
}

// elapsed handles the expiry of timer t. The machine never cancels a timer, so
// elapsed ignores t if the timer is no longer relevant.
func (m *Machine) elapsed(t Timer) {
	v := m.view()
	switch {
	case t == startTimer && m.stage < running:
		m.decide(nil, m.start.overdue(v))
	case t == maxTimer:
		m.expired = true
		if v.beforeStop() || v.between() {
			m.endWith(protocol.Verdict{Code: exit.CodeTimeout, Reason: fmt.Sprintf("--max-time %s ran out", m.plan.MaxTime)})
		}
	case t == settleTimer && m.stage == settling && !m.failures.prolonged && m.failures.unexplained(v):
		m.failures.prolonged = true
		m.do(timer(settleTimer, prolongFactor*m.plan.Settle))
	case t == settleTimer && m.stage == settling:
		m.judge()
	case t == doubtTimer && (m.stage == starting || m.stage == running):
		for _, f := range m.tolerance.endDoubt() { // f says that the worker lost a peer, but that peer has not failed, so the worker itself has failed
			if !m.tolerate(f, true) {
				m.fail(f)
			}
		}
	case t == hangTimer && m.stage == running:
		m.decide(v.follow(m.watch.Next(v.watched())))
	case t == saveTimer:
		m.decide(m.save.overdue(v))
	case t == scaleTimer:
		m.decide(m.scale.overdue(v))
	case t == stopTimer && (m.stage == stopping || m.stage == finishing):
		m.do(v.unendedNotices())
		if m.stage == stopping || !m.tolerance.unclear(v) {
			m.stopped()
			return
		}
		for _, h := range m.hosts {
			h.startSent = false // no longer wait for the tasks' exits; wait only until the leases of lost hosts have expired, which ends the tasks there
		}
	case t == steadyTimer && m.stage == running:
		m.restart.doubled, m.restart.inRow = 0, 0
	case t == suspendedTimer:
		m.suspended = 0
	case strings.HasPrefix(string(t), "hour "):
		m.restart.recent--
	case t == regroupTimer && m.stage == regrouping:
		m.decide(nil, abandon{"it took too long" + v.hosts.missing()})
	default:
		m.regroup.elapsed(t)
		m.hosts.clear(t)
	}
}

// lay sets the machine up for a new generation (start of all tasks): it
// assigns tasks to the available hosts, and resets the state of the previous
// generation.
func (m *Machine) lay(generation int) {
	m.progress.end()
	m.hosts.lay()
	m.generation = newGeneration(generation, m.hosts)
	m.start = start{launched: m.start.launched, warned: m.start.warned}
	m.failures, m.verdict, m.tolerance, m.suspended = failures{}, protocol.Verdict{}, tolerance{}, 0
}

// enter changes the stage of the job and reports its phase.
func (m *Machine) enter(s stage, phase protocol.Phase) {
	m.stage = s
	m.do([]Command{Enter{Phase: phase}})
}

// proceed enters the next stage if all hosts have answered the request of the
// current stage, or if all workers are done.
func (m *Machine) proceed() {
	v := m.view()
	switch {
	case m.stage == gathering && v.hosts.arrived(&m.late):
		m.advance(preparing, protocol.Idle)
	case m.stage == preparing && v.hosts.answered(preparing, &m.late):
		m.advance(checking, protocol.Ready)
	case m.stage == checking && v.hosts.answered(checking, &m.late):
		m.advance(starting, protocol.Ready)
	case m.stage == starting && v.hosts.answered(starting, &m.late):
		m.enter(running, protocol.Running)
		m.do(timer(hangTimer, m.watch.Begin(m.plan.Hang).After))
		if m.plan.Restarts.Max > 0 {
			m.do(timer(steadyTimer, steadyTime))
		}
		m.proceed() // all tasks may have ended while other hosts were starting theirs
	case m.stage == running && m.tolerance.done(v):
		m.finish()
	}
}

// advance enters stage s and sends the request of that stage to every agent.
func (m *Machine) advance(s stage, phase protocol.Phase) {
	m.enter(s, phase)
	for h := range m.hosts {
		m.request(h)
	}
}

// request sends the request of the current stage to host h, unless the host
// has answered that request. If there is no connection, request is called
// again after the host's next Up event, which reports a new connection.
func (m *Machine) request(h int) {
	v, to := m.view(), m.hosts[h]
	if !to.participates || !to.listens() || to.answered >= m.stage {
		return
	}
	switch m.stage {
	case preparing, checking, starting:
		if m.stage == starting {
			to.startSent = true
		}
		m.do(m.start.request(v, h))
	case finishing:
		if tasks := append(v.generation.servers(to.tasks), m.tolerance.lingering(v, h)...); len(tasks) > 0 {
			m.do([]Command{send(h, protocol.Message{Stop: &protocol.Stop{Tasks: tasks, Grace: m.grace}})})
		}
	case stopping: // the stage settling, in which plx waits for more reports of failures, sends no Stop: a task that was asked to stop no longer reports its own failure
		m.do([]Command{send(h, protocol.Message{Stop: &protocol.Stop{Grace: m.grace, Quit: m.verdict.Hang != nil, Interrupt: m.verdict.Interrupted()}})})
	}
}

// goBack returns the job to its old hosts if the job has failed on the new
// hosts of plx scale. It reports whether it does so. The failure is in
// m.verdict.
func (m *Machine) goBack() bool {
	if m.scale.phase != moved || m.save.wanted || m.expired {
		return false
	}
	why := m.verdict.Reason
	m.do(m.scale.end(protocol.Scaled{Cause: why + "; the job returns to its old hosts"}))
	m.hosts.move(m.scale.ask.Leave, m.scale.joined)
	m.restart.follow(fmt.Sprintf("not scaled: %s: back to the old hosts, after step %d", why, m.scale.step))
	return true
}

// again starts the job's tasks anew (the next generation) on the available
// hosts.
func (m *Machine) again() {
	next := m.generation.number + 1
	m.lay(next)
	m.do(m.restart.again(m.view(), m.hosts.where(next)))
	m.do([]Command{Lay{Generation: next, Hosts: m.hosts.layout()}})
	m.do(m.scale.release(m.view()))
	m.do(timer(startTimer, m.plan.StartTimeout))
	m.advance(preparing, protocol.Idle)
}

// decide carries out commands and then the decision d, both returned by a
// submachine.
func (m *Machine) decide(commands []Command, d decision) {
	m.do(commands)
	switch d := d.(type) {
	case answered:
		h := m.hosts[d.host]
		h.answered = max(h.answered, d.stage)
		m.proceed()
	case refused: // at the first start of the job, a host that cannot start its tasks ends the job; after a restart it counts as a failure, because the host has started tasks before
		switch {
		case m.generation.number > 0 && m.view().beforeStop():
			m.fail(failureOfHost(d.host, d.reason))
		case m.view().beforeStop():
			m.endWith(protocol.Verdict{Code: exit.CodePlx, Reason: d.reason})
		}
	case failed:
		for _, f := range d.failures {
			m.fail(f)
		}
	case hung:
		switch {
		case d.plan.Action == protocol.HangStop:
			m.endWith(protocol.Verdict{Code: exit.CodeTimeout, Reason: hang.Reason(d.hang), Culprit: d.hang.Culprit, Host: d.hang.Host, Hang: &d.hang})
		case d.plan.Action == protocol.HangRestart:
			m.fail(failure{host: d.host, culprit: d.hang.Culprit, exit: protocol.Exit{Code: exit.CodeTimeout}, reason: hang.Reason(d.hang), hang: &d.hang})
		}
	case stopNow:
		m.stopAsked(d.ask)
	case held:
		m.progress.held = d.step
		m.verdict = protocol.Verdict{Code: exit.CodePlx, Reason: "its hosts were being changed"}
		m.restart.follow(fmt.Sprintf("saved after step %d to continue on other hosts", d.step))
		m.end()
	case begin:
		m.again()
	case tooFew:
		m.verdict = protocol.Verdict{Code: exit.CodePlx, Reason: d.why}
		m.goBack()
		m.restart.coming = false
		m.decide(m.regroup.choose(m.view(), false))
	case abandon:
		m.verdict = m.verdict.Adding("; not restarted: " + d.why)
		m.conclude()
	}
}
