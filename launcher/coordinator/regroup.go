package coordinator

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
)

// regroupMargin is added to all that a regrouping may have to wait for, so that
// it ends even if nobody says anything any more.
const regroupMargin = time.Minute

// retreat waits, now that nothing of the generation runs, for the next one.
func (m *Machine) retreat() {
	pause := m.backoff()
	m.restarts.coming, m.restarts.early, m.restarts.waiting = false, true, false
	if m.scale != nil && m.scale.ending {
		pause, m.restarts.early = 0, false
		m.change()
	}
	m.restarts.alone, m.restarts.waited = false, m.plan.Restarts.WaitHost <= 0
	m.enter(regrouping, protocol.Idle)
	m.timer(BackoffTimer, pause)
	m.timer(ReviveTimer, reviveTime)
	m.timer(WaitTimer, m.plan.Restarts.WaitHost)
	// A host is lost a lease after it was heard, and nothing runs there
	// another lease and a bit later.
	m.timer(RegroupTimer, pause+reviveTime+m.plan.Restarts.WaitHost+3*m.plan.Lease+regroupMargin)
}

// waited takes the end of a time that a regrouping waits for.
func (m *Machine) waited(t Timer) {
	switch {
	case t == BackoffTimer:
		m.restarts.early = false
	case t == ReviveTimer:
		m.restarts.alone = true
	case t == WaitTimer:
		m.restarts.waited = true
	case t == RegroupTimer && m.stage == regrouping:
		m.giveUp("it took too long" + m.missing())
	case strings.HasPrefix(string(t), "clear "):
		if h, err := strconv.Atoi(strings.TrimPrefix(string(t), "clear ")); err == nil && h < len(m.hosts) {
			m.hosts[h].clearing = false
		}
	}
}

// regroup begins the next generation once that may be.
func (m *Machine) regroup() {
	for i, h := range m.hosts {
		if m.plan.Hosts[i].Seat && (h.gone || h.leaving) {
			m.giveUp(fmt.Sprintf("host %s conducts the job and is lost: %s", m.name(i), h.silent))
			return
		}
	}
	if m.restarts.early || m.awaited() >= 0 {
		return
	}
	short := m.shortage(m.available)
	if short != "" && m.scale != nil {
		m.verdict.Reason = short + m.missing()
		m.goBack()
		m.restarts.coming = false
		short = m.shortage(m.available)
	}
	switch {
	case short == "":
		m.again()
	case m.shortage(m.mayCome) != "":
		m.giveUp(short + m.missing())
	case !m.restarts.waited:
		m.waitForHosts(short)
	default:
		m.giveUp(fmt.Sprintf("%s, and no host came back within %s (--wait-host)%s", short, m.plan.Restarts.WaitHost, m.missing()))
	}
}

// waitForHosts tells the user, once, that hosts are waited for.
func (m *Machine) waitForHosts(short string) {
	if !m.restarts.waiting {
		m.restarts.waiting = true
		m.do(Note{Text: fmt.Sprintf("%s: waiting up to %s for hosts to come back (--wait-host)%s", short, m.plan.Restarts.WaitHost, m.missing())})
	}
}

// awaited is a host of which it is not known what becomes of it, -1 without
// one: a connection may be back or be lost, a lease runs, an agent is started.
func (m *Machine) awaited() int {
	for i, h := range m.hosts {
		switch {
		case h.place == joining || h.place == left: // nothing has run there, or it is seen to
		case !h.gone && (h.silent != "" || h.leaving || !h.up):
			return i
		case h.gone && h.clearing:
			return i
		case h.place == member && h.gone && !h.barred && h.answers && m.plan.Restarts.Revive && !m.restarts.alone:
			return i
		}
	}
	return -1
}

// missing says of each host that is not there why.
func (m *Machine) missing() string {
	text := ""
	for i, h := range m.hosts {
		if h.gone && !h.barred && h.place == member {
			text += fmt.Sprintf("; host %s: %s", m.name(i), h.silent)
		}
	}
	return text
}

// giveUp ends a job that could not be begun anew.
func (m *Machine) giveUp(why string) {
	m.verdict.Reason += "; not restarted: " + why
	m.conclude()
}

// again begins the next generation on the hosts that are there.
func (m *Machine) again() {
	after := m.verdict.Reason
	m.charge()
	m.lay(m.generation + 1)
	plan := m.layout()
	hosts, workers := 0, 0
	for _, h := range plan {
		workers += protocol.Workers(h.Tasks)
		if len(h.Tasks) > 0 {
			hosts++
		}
	}
	where := fmt.Sprintf("generation %d starts on %s with %s%s", m.generation, count(hosts, "host"), count(workers, "worker"), m.leftOut())
	if m.restarts.free != "" {
		m.note("%s; %s", m.restarts.free, where)
	} else {
		m.note("restarted (%d of %d) after %s; %s", m.restarts.made, m.plan.Restarts.Max, after, where)
	}
	m.restarts.free = ""
	m.do(Lay{Generation: m.generation, Hosts: plan})
	m.release()
	m.timer(StartTimer, m.plan.StartTimeout)
	m.advance(preparing)
}

// charge counts a restart, if it is one.
func (m *Machine) charge() {
	if m.restarts.free != "" {
		return
	}
	m.restarts.made++
	m.restarts.recent++
	m.restarts.doubled++
	m.timer(hourTimer(m.restarts.made), time.Hour)
}

// layout is where the tasks of the present generation run.
func (m *Machine) layout() []protocol.HostPlan {
	var plan []protocol.HostPlan
	for i, h := range m.plan.Hosts {
		h.Tasks, h.Left = m.hosts[i].tasks, m.hosts[i].place != member
		plan = append(plan, h)
	}
	return plan
}

// revived takes the new agent of a host that was lost.
func (m *Machine) revived(h int) {
	host := m.hosts[h]
	host.gone, host.clearing, host.told = false, false, false
	if m.stage >= settling { // soon, perhaps
		m.note("host %s: is back", m.name(h))
		return
	}
	m.note("host %s: is back, the next restart takes it in", m.name(h))
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
