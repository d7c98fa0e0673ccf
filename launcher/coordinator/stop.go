package coordinator

import (
	"fmt"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// workersDone looks whether the job's work is done, and then ends the
// servers.
func (m *Machine) workersDone() {
	if m.stage == running && m.allWorkersDone() {
		m.finish()
	}
}

// allWorkersDone reports whether every worker has ended without a fault.
func (m *Machine) allWorkersDone() bool {
	for t, h := range m.hostOf {
		if t.Role != cluster.Worker || m.bearing.without[t] {
			continue
		}
		if e, ended := m.exits[t]; !ended || m.fault(h, e) != "" {
			return false
		}
	}
	return true
}

// finish ends the servers of a job whose work is done. From here on nothing
// fails the job.
func (m *Machine) finish() {
	m.unscale("all workers are done")
	m.stage = finishing
	m.verdict = protocol.Verdict{Reason: m.done()}
	m.endAllServers()
}

func (m *Machine) endAllServers() {
	for h := range m.hosts {
		m.request(h)
	}
	m.timer(StopTimer, m.grace+stopMargin)
}

func (m *Machine) endServers(h int) {
	if tasks := append(m.servers(m.hosts[h].tasks), m.lingering(h)...); len(tasks) > 0 {
		m.send(h, protocol.Message{Stop: &protocol.Stop{Tasks: tasks, Grace: m.grace}})
	}
}

func (m *Machine) servers(tasks []protocol.TaskSpec) []cluster.Task {
	var servers []cluster.Task
	for _, t := range tasks {
		if _, ended := m.exits[t.Task]; t.Task.Role == cluster.PS && !ended {
			servers = append(servers, t.Task)
		}
	}
	return servers
}

// refuse ends a job that cannot start, because of host h. What started once is
// begun anew, as after any failure.
func (m *Machine) refuse(h int, reason string) {
	if !m.beforeStop() {
		return
	}
	if m.generation > 0 {
		m.fail(failure{host: h, reason: reason, exit: protocol.Exit{Code: CodePlx}})
		return
	}
	m.verdict = protocol.Verdict{Code: CodePlx, Reason: reason}
	m.stop()
}

func (m *Machine) stopAsked(e StopAsked) {
	if e.SaveTime > 0 && m.saveFirst(&e) {
		return
	}
	underWay := m.stage == finishing || m.stage == stopping && !m.restarts.coming
	if underWay && e.Grace >= m.grace {
		return
	}
	m.grace = min(m.grace, e.Grace)
	switch {
	case m.stage == finishing: // the work is done: only hurry
		m.endAllServers()
		return
	case underWay:
	case m.stage == settling:
		m.sentence() // on what is known: the user wants to go
	default:
		if e.Code == 0 {
			e.Code = CodePlx // 0 would say that the work was done
		}
		m.noteRestart()
		m.verdict = protocol.Verdict{Code: e.Code, Reason: e.Reason}
	}
	m.restarts.coming = false
	m.stop()
}

// expire ends a job that has had its time.
func (m *Machine) expire() {
	m.expired = true
	if !m.beforeStop() && !m.between() {
		return
	}
	m.noteRestart()
	m.restarts.coming = false
	m.verdict = protocol.Verdict{Code: CodeTimeout, Reason: fmt.Sprintf("--max-time %s ran out", m.plan.MaxTime)}
	m.stop()
}

// stop tells every task to end. The verdict is in place.
func (m *Machine) stop() {
	m.unscale(m.verdict.Reason)
	m.stopAll()
}

// stopAll is stop without a verdict.
func (m *Machine) stopAll() {
	if m.stage != stopping {
		m.enter(stopping, protocol.Stopping)
	}
	for h := range m.hosts {
		m.request(h)
	}
	m.timer(StopTimer, m.grace+stopMargin)
}

func (m *Machine) noteUnended() {
	for i, h := range m.hosts {
		if n := m.unended(i); h.told && !h.gone && n > 0 {
			m.note("host %s: %d of its tasks were told to end and were not seen to", m.name(i), n)
		}
	}
}

// waitingFor names a host that holds up the start.
func (m *Machine) waitingFor() (host int, who string) {
	for i, h := range m.hosts {
		if !h.in || h.up && (m.stage == gathering || h.answered >= m.stage) {
			continue
		}
		if h.silent != "" {
			return i, fmt.Sprintf("host %s (%s)", m.name(i), h.silent)
		}
		return i, "host " + m.name(i)
	}
	return 0, "the job"
}

// settleIfAllGone concludes a stop, or cuts the settling time short, once no
// task is left of which more is to be heard.
func (m *Machine) settleIfAllGone() {
	ended, waiting := true, true
	for i, h := range m.hosts {
		if n := m.unended(i); h.told && !h.gone && n > 0 {
			ended, waiting = false, waiting && n == m.waiting(i)
		}
	}
	if waiting && m.stage == settling && !m.failures[0].hearsay { // there, others are still to be heard
		m.judge()
	}
	if !ended {
		return
	}
	if m.stage == stopping || m.stage == finishing && !m.unclear() {
		m.stopped()
	}
}

// stopped goes on when no task is left, or is waited for any more.
func (m *Machine) stopped() {
	if m.scale != nil && m.scale.ending && m.finishedMeanwhile() {
		m.verdict = protocol.Verdict{Reason: m.done()}
		m.restarts.coming = false
		m.unscale("all workers are done")
	}
	if m.restarts.coming {
		m.retreat()
		return
	}
	m.conclude()
}

// unended counts the host's tasks that have not ended.
func (m *Machine) unended(h int) int {
	n := 0
	for _, t := range m.hosts[h].tasks {
		if _, ended := m.exits[t.Task]; !ended {
			n++
		}
	}
	return n
}

// waiting counts the host's tasks that have failed, and wait in their processes
// for what is next.
func (m *Machine) waiting(h int) int {
	n := 0
	for _, f := range m.failures {
		if f.host == h && f.waits {
			n++
		}
	}
	return n
}

func (m *Machine) conclude() {
	m.restarts.coming = false
	m.unscale(m.verdict.Reason)
	m.verdict.Notices, m.verdict.Generation, m.verdict.Stepped = m.notices, m.generation, m.stepped
	m.recordSave()
	m.enter(over, protocol.Over)
	m.do(Conclude{Verdict: m.verdict})
}
