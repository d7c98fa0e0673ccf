package jobstate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
)

// Exit statuses of plx that no task chose.
const (
	CodeTimeout = 124 // --max-time ran out, as timeout(1) says it
	CodePlx     = 125 // plx could not do its part
)

// maxNotices bounds what a verdict carries: it goes to every agent in one message,
// after a job of months perhaps.
const maxNotices = 100

// Machine is the state of one job. It composes small machines, each of which owns
// the state of its subject; the stage and the verdict are its own. It is not safe
// for concurrent use.
type Machine struct {
	plan    protocol.Plan // its Hosts are those of the beginning, see hosts
	stage   stage
	verdict protocol.Verdict // of this generation; the job's own when that is concluded
	notices []string         // for the verdict, at most maxNotices
	grace   time.Duration    // the least that tasks were given to end
	expired bool             // --max-time has run out
	out     []Command        // of the present Step

	hosts      hosts
	generation generation
	progress   progress

	start     start
	failures  failures // of this generation
	tolerance tolerance
	restart   restart
	regroup   regroup
	scale     scale
	save      save
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
	return slices.Concat(timer(StartTimer, m.plan.StartTimeout), timer(MaxTimer, m.plan.MaxTime))
}

// Step takes one event and returns what is to be done, in order. It ignores what a
// host that is Lost still says, and what is said of another generation than the
// present one.
func (m *Machine) Step(e Event) []Command {
	if h := m.hosts.about(e); m.stage == over || h != nil && h.place == left {
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
	case Elapsed:
		m.elapsed(e.Timer)
	}
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
		coming: m.restart.coming, scaling: m.scale.underWay(), saving: m.save.wanted, expired: m.expired,
		launched: m.start.launched, stepped: m.progress.stepped, held: m.progress.heldAt(),
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
			m.hosts[c.Host].leave()
		}
		m.out = append(m.out, c)
	}
}

// elapsed takes the end of a timer. Timers are not stopped: one may end when
// nothing waits for it any more.
func (m *Machine) elapsed(t Timer) {
	v := m.view()
	switch {
	case t == StartTimer && m.stage < running:
		m.decide(nil, m.start.overdue(v))
	case t == MaxTimer:
		m.expired = true
		if v.beforeStop() || v.between() {
			m.endWith(protocol.Verdict{Code: CodeTimeout, Reason: fmt.Sprintf("--max-time %s ran out", m.plan.MaxTime)})
		}
	case t == SettleTimer && m.stage == settling:
		m.judge()
	case t == DoubtTimer && (m.stage == starting || m.stage == running):
		m.decide(nil, doubtOver{})
	case t == SaveTimer:
		m.decide(m.save.overdue(v))
	case t == ScaleTimer:
		m.decide(m.scale.overdue(v))
	case t == StopTimer && (m.stage == stopping || m.stage == finishing):
		m.do(v.notEnded())
		if m.stage == stopping || !m.tolerance.unclear(v) {
			m.stopped()
			return
		}
		m.hosts.untell() // only leases are waited for
	case t == SteadyTimer && m.stage == running:
		m.restart.forgive()
	case strings.HasPrefix(string(t), "hour "):
		m.restart.hourOver()
	case t == RegroupTimer && m.stage == regrouping:
		m.decide(nil, m.regroup.overdue(v))
	default:
		m.regroup.elapsed(t)
		m.hosts.clear(t)
	}
}
