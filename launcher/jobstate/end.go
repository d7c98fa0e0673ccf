package jobstate

import (
	"cmp"
	"time"

	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/protocol"
)

// stopMargin is added to the grace before the job ends without the tasks' own
// exits: agents kill at the end of the grace and then report.
const stopMargin = 10 * time.Second

// prolonging is how many times longer than Plan.Settle failures are collected if nobody knows
// which peer was lost: a program may dump core before it ends, and a connection may break
// late.
const prolonging = 5

// fail takes a failure. The first one that is not tolerated begins the time in
// which failures are collected.
func (m *Machine) fail(f failure) {
	switch {
	case m.stage == stopping || m.stage == regrouping:
		return // the job itself ends its tasks
	case f.task != nil && m.tolerance.without[*f.task]:
		return // it was taken out before
	case m.stage == finishing:
		m.do(notice("%s, after all workers were done", f.reason))
		return
	case m.tolerate(f, m.plan.Settle <= 0):
		return
	}
	m.failures.add(m.tolerance.endDoubt()...)
	m.failures.add(f)
	if m.stage == settling {
		if m.failures.prolonged && !m.failures.unexplained(m.view()) {
			m.do(timer(settleTimer, m.plan.Settle)) // others may still be heard
		}
		return
	}
	m.stage = settling
	if m.plan.Settle <= 0 {
		m.judge()
		return
	}
	m.do(timer(settleTimer, m.plan.Settle))
}

// tolerate reports whether the job tolerates a failure, or may turn out to. sure
// is as in tolerance.take.
func (m *Machine) tolerate(f failure, sure bool) bool {
	commands, tolerated := m.tolerance.take(m.view(), f, sure)
	m.do(commands)
	if tolerated {
		m.proceed()
	}
	return tolerated
}

// judge chooses who is to blame and ends the generation. If all workers have
// turned out to be done meanwhile, the failures are those of servers that lost
// them: no failure of the job.
func (m *Machine) judge() {
	if m.tolerance.done(m.view()) {
		m.finish()
		for _, f := range m.failures.all {
			m.fail(f) // becomes a note
		}
		return
	}
	var culprit failure
	culprit, m.verdict = m.failures.verdict(m.view(), m.tolerance.short)
	m.restart.blame(culprit)
	if !m.goBack() {
		commands, bar, why := m.restart.decide(m.view(), culprit, m.verdict.Reason)
		m.do(commands)
		m.verdict = m.verdict.Adding(why)
		if bar >= 0 {
			m.hosts[bar].barred = true
		}
	}
	m.end()
}

// stopAsked takes the user's wish that the job ends.
func (m *Machine) stopAsked(e StopAsked) {
	v := m.view()
	if e.SaveTime > 0 {
		if m.save.starts(v) {
			m.do(m.scale.giveUp(v, e.Reason))
		}
		m.decide(m.save.begin(m.view(), e))
		return
	}
	underWay := m.stage == finishing || m.stage == stopping && !v.coming
	if underWay && e.Grace >= m.grace {
		return
	}
	m.grace = min(m.grace, e.Grace)
	switch {
	case m.stage == finishing: // the work is done: only hurry
		m.requestEnd()
	case underWay:
		m.end()
	case m.stage == settling: // on what is known: the user wants to go
		_, m.verdict = m.failures.verdict(v, m.tolerance.short)
		m.end()
	default: // status 0 would say that the work was done
		m.endWith(protocol.Verdict{Code: cmp.Or(e.Code, exit.CodePlx), Reason: e.Reason})
	}
}

// endWith ends the job with a verdict. If a generation was to follow that is no restart,
// the failure before it becomes a notice. That of a restart is one already.
func (m *Machine) endWith(v protocol.Verdict) {
	if m.verdict.Reason != "" && m.restart.uncounted != "" && m.view().between() {
		m.do(notice("%s", m.verdict.Reason))
	}
	m.restart.coming = false
	m.verdict = v
	m.end()
}

// end tells every task to end. The verdict is in place.
func (m *Machine) end() {
	m.do(m.scale.giveUp(m.view(), m.verdict.Reason))
	if m.stage != stopping {
		m.enter(stopping, protocol.Stopping)
	}
	m.requestEnd()
}

// requestEnd tells tasks to end, and sets a bound on that.
func (m *Machine) requestEnd() {
	for h := range m.hosts {
		m.request(h)
	}
	m.do(timer(stopTimer, m.grace+stopMargin))
}

// finish ends the servers of a job whose work is done. From here on nothing fails
// the job.
func (m *Machine) finish() {
	v := m.view()
	m.do(m.scale.giveUp(v, "all workers are done"))
	m.stage = finishing
	m.verdict = protocol.Verdict{Reason: m.restart.done() + m.tolerance.fewer(v)}
	m.requestEnd()
}

// endIfAllGone ends a stop, or the time in which failures are collected, once no
// task is left.
func (m *Machine) endIfAllGone() {
	if m.stage < finishing || m.stage > stopping {
		return
	}
	v := m.view()
	if m.busy.finds(len(m.hosts), func(h int) bool { return m.hosts[h].told && !m.hosts[h].gone && v.unended(h) > 0 }) {
		return
	}
	if m.stage == settling && !m.failures.all[0].hearsay { // after hearsay the failed host may still be heard
		m.judge()
	}
	if m.stage == stopping || m.stage == finishing && !m.tolerance.unclear(m.view()) {
		m.stopped()
	}
}

// stopped goes on when no task is left, or none is waited for any more: with the
// verdict, or by waiting for the next generation.
func (m *Machine) stopped() {
	v := m.view()
	if m.scale.phase == ending && m.generation.finished() {
		m.verdict = protocol.Verdict{Reason: m.restart.done() + m.tolerance.fewer(v)}
		m.restart.coming = false
		m.do(m.scale.giveUp(m.view(), "all workers are done"))
	}
	if !m.restart.coming {
		m.conclude()
		return
	}
	pause := m.restart.backoff(m.plan.Restarts)
	m.restart.coming = false
	if m.scale.phase == ending {
		m.do(m.scale.move(v))
		m.hosts.move(m.scale.joined, m.scale.ask.Leave)
		pause = 0
	}
	m.enter(regrouping, protocol.Idle)
	m.do(m.regroup.begin(v, pause))
}

// conclude ends the job with its verdict.
func (m *Machine) conclude() {
	m.restart.coming = false
	m.do(m.scale.giveUp(m.view(), m.verdict.Reason))
	last := m.view().summary(m.failures, m.verdict)
	m.verdict = protocol.Verdict{Code: last.Code, Reason: last.Reason, First: last.First, Culprit: last.Culprit, Host: last.Host,
		Victims: last.Victims, MoreVictims: last.MoreVictims,
		Ends: last.Ends, MoreEnds: last.MoreEnds, Hang: last.Hang, Suspended: last.Suspended, Notices: m.notices, Generation: m.generation.number, Stepped: m.progress.stepped, Saved: m.save.record()}
	m.enter(over, protocol.Over)
	m.do([]Command{Conclude{Verdict: m.verdict}})
}
