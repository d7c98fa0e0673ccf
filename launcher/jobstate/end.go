package jobstate

import (
	"cmp"
	"time"

	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/protocol"
)

// stopMargin is how long the driver (the process that controls the job) waits
// for the tasks' exits after the grace period. Agents kill tasks at the end of
// the grace period, and the reports of these exits need time to arrive.
const stopMargin = 10 * time.Second

// prolongFactor is for the case that every failed task reports a lost
// connection to a peer, but none names the peer. The driver then waits
// prolongFactor times Plan.Settle for the peer's own failure. The peer may
// still be writing a core dump, or its connection may break late.
const prolongFactor = 5

// fail handles a failure of a task or host. The first failure that the job
// does not tolerate starts the stage settling, in which further failures are
// collected.
func (m *Machine) fail(f failure) {
	switch {
	case m.stage == stopping || m.stage == regrouping:
		return // ignore f: the job is stopping its tasks itself
	case f.task != nil && m.tolerance.without[*f.task]:
		return // ignore f: the job already continues without this task
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
			m.do(timer(settleTimer, m.plan.Settle)) // a failure now names the lost peer: wait for Plan.Settle only, for more failures
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

// tolerate reports whether the job tolerates failure f, or may tolerate it
// once it is clear which task or host has caused f. sure is true if that is
// clear already.
func (m *Machine) tolerate(f failure, sure bool) bool {
	commands, tolerated := m.tolerance.take(m.view(), f, sure)
	m.do(commands)
	if tolerated {
		m.proceed()
	}
	return tolerated
}

// judge blames one of the collected failures and ends the generation. If all
// workers have finished in the meantime, the failures are those of servers
// without workers, and the job succeeds.
func (m *Machine) judge() {
	if m.tolerance.done(m.view()) {
		m.finish()
		for _, f := range m.failures.all {
			m.fail(f) // in the stage finishing, fail only prints a notice about f
		}
		return
	}
	var culprit failure
	culprit, m.verdict = m.failures.verdict(m.view(), m.tolerance.short)
	m.restart.blame(culprit)
	if !m.goBack() {
		commands, exclude, why := m.restart.decide(m.view(), culprit, m.verdict.Reason)
		m.do(commands)
		m.verdict = m.verdict.Adding(why)
		if exclude >= 0 {
			m.hosts[exclude].excluded = true
		}
	}
	m.end()
}

// stopAsked handles a request of the user to end the job.
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
	case m.stage == finishing: // the job's work is done: only shorten the grace period
		m.requestEnd()
	case underWay:
		m.end()
	case m.stage == settling: // the user wants to stop: judge the failures collected so far
		_, m.verdict = m.failures.verdict(v, m.tolerance.short)
		m.end()
	default: // 0 would mean that the work was done, so use another exit status
		m.endWith(protocol.Verdict{Code: cmp.Or(e.Code, exit.CodePlx), Reason: e.Reason})
	}
}

// endWith ends the job with verdict v (the result and the reason). If the job
// was about to continue on changed hosts, endWith first prints the reason of
// that change. If it was about to restart after a failure, the user has
// already seen the reason.
func (m *Machine) endWith(v protocol.Verdict) {
	if m.verdict.Reason != "" && m.restart.uncounted != "" && m.view().between() {
		m.do(notice("%s", m.verdict.Reason))
	}
	m.restart.coming = false
	m.verdict = v
	m.end()
}

// end asks every task to stop. The caller must have set m.verdict.
func (m *Machine) end() {
	m.do(m.scale.giveUp(m.view(), m.verdict.Reason))
	if m.stage != stopping {
		m.enter(stopping, protocol.Stopping)
	}
	m.requestEnd()
}

// requestEnd asks the tasks on all hosts to stop, and limits the time that
// they may take.
func (m *Machine) requestEnd() {
	for h := range m.hosts {
		m.request(h)
	}
	m.do(timer(stopTimer, m.grace+stopMargin))
}

// finish stops the servers of a job whose workers are done. From now on no
// failure can change the job's success.
func (m *Machine) finish() {
	v := m.view()
	m.do(m.scale.giveUp(v, "all workers are done"))
	m.stage = finishing
	m.verdict = protocol.Verdict{Reason: m.restart.done() + m.tolerance.fewer(v)}
	m.requestEnd()
}

// endIfAllGone continues with the next stage when no task runs any more, in
// the stages settling, stopping and finishing.
func (m *Machine) endIfAllGone() {
	if m.stage < finishing || m.stage > stopping {
		return
	}
	v := m.view()
	if m.busy.finds(len(m.hosts), func(h int) bool { return m.hosts[h].startSent && !m.hosts[h].lost && v.unended(h) > 0 }) {
		return
	}
	if m.stage == settling && !m.failures.all[0].secondhand { // if another host reported the first failure, do not judge yet: the failed host may still report its own failure
		m.judge()
	}
	if m.stage == stopping || m.stage == finishing && !m.tolerance.unclear(m.view()) {
		m.stopped()
	}
}

// stopped is called when all tasks have ended, or when the time limit for
// their end is over. It ends the job with its verdict (the result and the
// reason), or waits for the next generation (run of all tasks).
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

// conclude ends the job: it completes the verdict (the job's result and the
// reason) and enters the stage over.
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
