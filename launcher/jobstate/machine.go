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

// maxNotices bounds what a verdict carries: it goes to every agent in one message,
// after a job of months perhaps.
const maxNotices = 100

// Machine is the state of one job. It composes small machines, each of which owns
// the state of its subject; the stage and the verdict are its own. It is not safe
// for concurrent use.
type Machine struct {
	plan    protocol.Plan // as New got it; hosts that joined later are only in the field hosts
	stage   stage
	verdict protocol.Verdict // of this generation, and at the end of the job; an empty Reason: none yet
	notices []string         // lasting notes for the verdict, at most maxNotices
	grace   time.Duration    // shortest time to end that tasks were given; at first Plan.Grace
	expired bool             // --max-time has run out
	// suspended is for how long the driver did not run lately; 0: it always did.
	suspended time.Duration
	out       []Command // commands of the present Step, in order

	hosts      hosts
	generation generation
	progress   progress

	late search // for a host that has not answered
	busy search // for a host with tasks that have not ended

	start     start
	failures  failures // of this generation, not yet judged
	tolerance tolerance
	restart   restart
	regroup   regroup
	scale     scale
	save      save
	watch     hang.Watch
}

// New returns the machine of a job that has not begun.
func New(plan protocol.Plan) *Machine {
	m := &Machine{plan: plan, grace: plan.Grace}
	for _, h := range plan.Hosts {
		m.hosts = append(m.hosts, &host{plan: h})
	}
	m.lay(0)
	return m
}

// Begin starts the job's clocks.
func (m *Machine) Begin() []Command {
	return slices.Concat(timer(startTimer, m.plan.StartTimeout), timer(maxTimer, m.plan.MaxTime))
}

// Step takes one event and returns the commands to carry out, in order. It ignores
// every event of a host that has left the job, messages of a lost host, and messages
// about any generation but the present one.
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
		if !m.hosts[e.Host].gone {
			m.heard(e.Host, e.Message)
		}
	case StopAsked:
		m.stopAsked(e)
	case Suspended:
		m.suspended = max(m.suspended, e.For) // its consequences are heard later
		m.do(timer(suspendedTimer, 2*m.plan.Lease+time.Minute))
	case Elapsed:
		m.elapsed(e.Timer)
	}
	m.decide(m.save.goOn(m.view()))
	m.do(m.scale.goOn(m.view()))
	m.endIfAllGone()
	if m.stage == regrouping {
		m.decide(m.regroup.next(m.view()))
	}
	return m.out
}

// view is what the small machines may read.
func (m *Machine) view() view {
	return view{
		plan: m.plan, stage: m.stage, hosts: m.hosts, generation: m.generation,
		restarts: m.restart.made, coming: m.restart.coming, scaling: m.scale.underWay(), saving: m.save.wanted, expired: m.expired,
		suspended: m.suspended, launched: m.start.launched, stepped: m.progress.stepped, held: cmp.Or(m.progress.held, m.progress.heldBefore),
	}
}

// do gives commands to the driver. Some of them change what the job knows.
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

// elapsed takes the end of a timer. Timers are not stopped: one may end when
// nothing waits for it any more.
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
		m.do(timer(settleTimer, prolonging*m.plan.Settle))
	case t == settleTimer && m.stage == settling:
		m.judge()
	case t == doubtTimer && (m.stage == starting || m.stage == running):
		for _, f := range m.tolerance.endDoubt() { // no task that the job needs has failed meanwhile
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
		m.do(v.notEnded())
		if m.stage == stopping || !m.tolerance.unclear(v) {
			m.stopped()
			return
		}
		for _, h := range m.hosts {
			h.told = false // only leases are waited for
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

// lay begins a generation: every host that is there takes part in it, and those
// that are not left out get tasks.
func (m *Machine) lay(generation int) {
	m.progress.end()
	m.hosts.lay()
	m.generation = newGeneration(generation, m.hosts)
	m.start = start{launched: m.start.launched, warned: m.start.warned}
	m.failures, m.verdict, m.tolerance, m.suspended = failures{}, protocol.Verdict{}, tolerance{}, 0
}

// enter begins a stage.
func (m *Machine) enter(s stage, phase protocol.Phase) {
	m.stage = s
	m.do([]Command{Enter{Phase: phase}})
}

// proceed enters the next stage if the present one is complete.
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
		m.proceed() // all may have ended already
	case m.stage == running && m.tolerance.done(v):
		m.finish()
	}
}

// advance enters a stage in which every agent has to answer one request.
func (m *Machine) advance(s stage, phase protocol.Phase) {
	m.enter(s, phase)
	for h := range m.hosts {
		m.request(h)
	}
}

// request sends the stage's request to a host that has not answered it. A host
// without a connection gets it after Up, so that it gets it once.
func (m *Machine) request(h int) {
	v, to := m.view(), m.hosts[h]
	if !to.in || !to.listens() || to.answered >= m.stage {
		return
	}
	switch m.stage {
	case preparing, checking, starting:
		if m.stage == starting {
			to.told = true
		}
		m.do(m.start.request(v, h))
	case finishing:
		if tasks := append(v.generation.servers(to.tasks), m.tolerance.lingering(v, h)...); len(tasks) > 0 {
			m.do([]Command{send(h, protocol.Message{Stop: &protocol.Stop{Tasks: tasks, Grace: m.grace}})})
		}
	case stopping: // not while settling: a task that is told to end no longer fails
		m.do([]Command{send(h, protocol.Message{Stop: &protocol.Stop{Grace: m.grace, Quit: m.verdict.Hang != nil, Interrupt: m.verdict.Interrupted()}})})
	}
}

// goBack returns to the old hosts if new ones have failed, and reports whether it
// does. The failure is in the verdict.
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

// again begins the next generation on the hosts that are there.
func (m *Machine) again() {
	next := m.generation.number + 1
	m.lay(next)
	m.do(m.restart.again(m.view(), m.hosts.where(next)))
	m.do([]Command{Lay{Generation: next, Hosts: m.hosts.layout()}})
	m.do(m.scale.release(m.view()))
	m.do(timer(startTimer, m.plan.StartTimeout))
	m.advance(preparing, protocol.Idle)
}

// decide carries out a decision of a small machine, after its commands.
func (m *Machine) decide(commands []Command, d decision) {
	m.do(commands)
	switch d := d.(type) {
	case answered:
		h := m.hosts[d.host]
		h.answered = max(h.answered, d.stage)
		m.proceed()
	case refused: // a generation after the first has started before: it can again
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
