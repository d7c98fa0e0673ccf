package jobstate

import (
	"github.com/plx-run/plx/launcher/protocol"
)

// lay begins a generation: every host that is there takes part in it, and those
// that are not left out get tasks.
func (m *Machine) lay(generation int) {
	m.progress.end()
	m.hosts.lay()
	m.generation = newGeneration(generation, m.hosts)
	m.start.reset()
	m.failures, m.verdict, m.tolerance = failures{}, protocol.Verdict{}, tolerance{}
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
	case m.stage == gathering && v.hosts.arrived():
		m.advance(preparing, protocol.Idle)
	case m.stage == preparing && v.hosts.answered(preparing):
		m.advance(checking, protocol.Ready)
	case m.stage == checking && v.hosts.answered(checking):
		m.advance(starting, protocol.Ready)
	case m.stage == starting && v.hosts.answered(starting):
		m.enter(running, protocol.Running)
		m.do(m.restart.steady(v))
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
			to.tell(true)
		}
		m.do(m.start.request(v, h))
	case finishing:
		if tasks := append(v.generation.servers(to.tasks), m.tolerance.lingering(v, h)...); len(tasks) > 0 {
			m.do([]Command{send(h, protocol.Message{Stop: &protocol.Stop{Tasks: tasks, Grace: m.grace}})})
		}
	case stopping: // not while settling: a task that is told to end no longer fails
		m.do([]Command{send(h, protocol.Message{Stop: &protocol.Stop{Grace: m.grace}})})
	}
}

// retreat waits, now that nothing of the generation runs, for the next one.
func (m *Machine) retreat() {
	v := m.view()
	pause := m.restart.backoff(m.plan.Restarts)
	m.restart.cancel()
	if m.scale.phase == ending {
		commands, members, partings := m.scale.move(v)
		m.do(commands)
		m.hosts.move(members, partings)
		pause = 0
	}
	m.enter(regrouping, protocol.Idle)
	m.do(m.regroup.begin(v, pause))
}

// goBack returns to the old hosts if new ones have failed, and reports whether it
// does. The failure is in the verdict.
func (m *Machine) goBack() bool {
	if !m.scale.canGoBack(m.view()) {
		return false
	}
	commands, members, partings, notice := m.scale.goBack(m.verdict.Reason)
	m.do(commands)
	m.hosts.move(members, partings)
	m.restart.follow(notice)
	return true
}

// again begins the next generation on the hosts that are there.
func (m *Machine) again() {
	after, next := m.verdict.Reason, m.generation.number+1
	m.lay(next)
	timers, notes := m.restart.again(m.view(), after, m.hosts.where(next))
	m.do(timers)
	m.do(notes)
	m.do([]Command{Lay{Generation: next, Hosts: m.hosts.layout()}})
	m.do(m.scale.release(m.view()))
	m.do(timer(StartTimer, m.plan.StartTimeout))
	m.advance(preparing, protocol.Idle)
}

// decide carries out a decision of a small machine, after its commands.
func (m *Machine) decide(commands []Command, d decision) {
	m.do(commands)
	switch d := d.(type) {
	case answered:
		m.hosts[d.host].answer(d.stage)
		m.proceed()
	case refused: // a generation after the first has started before: it can again
		switch {
		case m.generation.number > 0 && m.view().beforeStop():
			m.fail(failureOfHost(d.host, d.reason))
		case m.view().beforeStop():
			m.endWith(protocol.Verdict{Code: CodePlx, Reason: d.reason})
		}
	case failed:
		for _, f := range d.failures {
			m.fail(f)
		}
	case doubtOver:
		for _, f := range m.tolerance.endDoubt() {
			if !m.tolerate(f, true) {
				m.fail(f)
			}
		}
	case stopNow:
		m.stopAsked(d.ask)
	case held:
		m.progress.holdAt(d.step)
		m.verdict = protocol.Verdict{Code: CodePlx, Reason: "its hosts were being changed"}
		m.restart.follow(m.scale.heldNotice())
		m.end()
	case another:
		if d.bar >= 0 {
			m.hosts[d.bar].bar()
		}
	case final:
		m.verdict = m.verdict.Adding("; " + d.why)
	case begin:
		m.again()
	case tooFew:
		m.verdict = protocol.Verdict{Code: CodePlx, Reason: d.why}
		m.goBack()
		m.restart.cancel()
		m.decide(m.regroup.choose(m.view(), false))
	case abandon:
		m.verdict = m.verdict.Adding("; not restarted: " + d.why)
		m.conclude()
	}
}
