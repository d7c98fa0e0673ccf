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
		if t.Role != cluster.Worker {
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
	m.stage = finishing
	m.verdict = protocol.Verdict{Reason: "done"}
	m.endAllServers()
}

func (m *Machine) endAllServers() {
	for h := range m.hosts {
		m.request(h)
	}
	m.timer(StopTimer, m.grace+stopMargin)
}

func (m *Machine) endServers(h int) {
	if servers := m.servers(m.plan.Hosts[h]); len(servers) > 0 {
		m.send(h, protocol.Message{Stop: &protocol.Stop{Tasks: servers, Grace: m.grace}})
	}
}

func (m *Machine) servers(p protocol.HostPlan) []cluster.Task {
	var servers []cluster.Task
	for _, t := range p.Tasks {
		if _, ended := m.exits[t]; t.Role == cluster.PS && !ended {
			servers = append(servers, t)
		}
	}
	return servers
}

// refuse ends a job that cannot start.
func (m *Machine) refuse(reason string) {
	if !m.beforeStop() {
		return
	}
	m.verdict = protocol.Verdict{Code: CodePlx, Reason: reason}
	m.stop()
}

func (m *Machine) stopAsked(e StopAsked) {
	if e.SaveTime > 0 && m.saveFirst(e) {
		return
	}
	if (m.stage == stopping || m.stage == finishing) && e.Grace >= m.grace {
		return // already under way
	}
	m.grace = min(m.grace, e.Grace)
	switch m.stage {
	case finishing: // the work is done: only hurry
		m.endAllServers()
		return
	case stopping:
	case settling:
		m.sentence() // on what is known: the user wants to go
	default:
		if e.Code == 0 {
			e.Code = CodePlx // 0 would say that the work was done
		}
		m.verdict = protocol.Verdict{Code: e.Code, Reason: e.Reason}
	}
	m.stop()
}

// stop tells every task to end. The verdict is in place.
func (m *Machine) stop() {
	if m.stage != stopping {
		m.enter(stopping, protocol.Stopping)
	}
	for h := range m.hosts {
		m.request(h)
	}
	m.timer(StopTimer, m.grace+stopMargin)
}

func (m *Machine) elapsed(t Timer) {
	switch {
	case t == StartTimer && m.stage < running:
		m.refuse(fmt.Sprintf("%s did not start within %s", m.waitingFor(), m.plan.StartTimeout))
	case t == MaxTimer && m.beforeStop():
		m.verdict = protocol.Verdict{Code: CodeTimeout, Reason: fmt.Sprintf("--max-time %s ran out", m.plan.MaxTime)}
		m.stop()
	case t == SettleTimer && m.stage == settling:
		m.judge()
	case t == SaveTimer:
		m.saveOverdue()
	case t == StopTimer && (m.stage == stopping || m.stage == finishing):
		m.noteUnended()
		m.conclude()
	}
}

func (m *Machine) noteUnended() {
	for i, h := range m.hosts {
		if n := m.unended(i); h.told && !h.gone && n > 0 {
			m.note("host %s: %d of its tasks were told to end and were not seen to", m.name(i), n)
		}
	}
}

// waitingFor names the hosts that hold up the start.
func (m *Machine) waitingFor() string {
	for i, h := range m.hosts {
		if h.up && (m.stage == gathering || h.answered >= m.stage) {
			continue
		}
		if h.silent != "" {
			return fmt.Sprintf("host %s (%s)", m.name(i), h.silent)
		}
		return "host " + m.name(i)
	}
	return "the job"
}

// settleIfAllGone concludes a stop, or cuts the settling time short, once no
// task is left.
func (m *Machine) settleIfAllGone() {
	for i, h := range m.hosts {
		if h.told && !h.gone && m.unended(i) > 0 {
			return
		}
	}
	switch m.stage {
	case settling:
		m.judge()
		m.conclude()
	case stopping, finishing:
		m.conclude()
	}
}

// unended counts the host's tasks that have not ended.
func (m *Machine) unended(h int) int {
	n := 0
	for _, t := range m.plan.Hosts[h].Tasks {
		if _, ended := m.exits[t]; !ended {
			n++
		}
	}
	return n
}

func (m *Machine) conclude() {
	m.verdict.Notices = m.notices
	m.recordSave()
	m.enter(over, protocol.Over)
	m.do(Conclude{Verdict: m.verdict})
}
