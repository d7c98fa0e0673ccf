package coordinator

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// Exit statuses of plx that no task chose.
const (
	CodeTimeout = 124 // --max-time ran out, as timeout(1) says it
	CodePlx     = 125 // plx could not do its part
)

// stopMargin is added to the grace before a stop is concluded without the
// tasks' own exits: agents kill at the end of the grace and then report.
const stopMargin = 10 * time.Second

type stage int

const (
	gathering stage = iota
	preparing
	checking
	starting
	running
	finishing // workers are done, servers are told to end
	settling  // something failed, more may be reported
	stopping
	regrouping // nothing runs; another generation begins once hosts and time allow
	over
)

// Machine is the state of one job. It is not safe for concurrent use.
type Machine struct {
	plan       protocol.Plan
	stage      stage
	hosts      []*host
	generation int
	exits      map[cluster.Task]protocol.Exit // of this generation
	hostOf     map[cluster.Task]int           // likewise
	cluster    cluster.Spec
	foreign    cluster.Spec
	launched   bool // Start was sent, in this generation or one before
	stepped    bool // a task has said that it made a step, likewise
	bearing    bearing
	progress   progress

	failures []failure
	verdict  protocol.Verdict // of this generation; the job's own when it is concluded
	notices  []string
	saving   *saving // the stop that waits, or waited, for a save; nil without
	grace    time.Duration
	expired  bool // --max-time has run out
	restarts restarts
	scale    *scaling // a change of hosts that is under way; nil without
	scales   int      // how many were asked for
	scaled   Answer   // to the last one
	out      []Command
}

// host is what the machine knows of one agent.
type host struct {
	up       bool   // an agent answered at least once
	silent   string // why the connection is lost; "" while it is there
	gone     bool
	addr     string
	tasks    []protocol.TaskSpec // in this generation
	in       bool                // takes part in this generation, perhaps without tasks
	answered stage               // the last stage whose request the agent answered
	told     bool                // Start was sent: tasks may run

	leaving  bool // its agent ends, and not because we said so
	clearing bool // gone, but something may still run there
	answers  bool // gone, but a new agent may be there soon
	blamed   int  // how often in a row the culprit was here
	barred   bool // left out from the next restart on

	place membership
}

// membership is what a host is to the job.
type membership int

const (
	member  membership = iota
	joining            // its agent is there, or is to be; no tasks yet
	parting            // no tasks any more, but the job may have to come back to it
	left
)

// New returns the machine of a job that has not begun.
func New(plan protocol.Plan) *Machine {
	m := &Machine{plan: plan, grace: plan.Grace}
	m.plan.Hosts = slices.Clone(plan.Hosts) // there may be more
	for range plan.Hosts {
		m.hosts = append(m.hosts, &host{})
	}
	m.lay(0)
	return m
}

// Begin starts the job's clocks.
func (m *Machine) Begin() []Command {
	m.timer(StartTimer, m.plan.StartTimeout)
	m.timer(MaxTimer, m.plan.MaxTime)
	return m.take()
}

// Step takes one event and returns what is to be done, in order.
//
// What a host that is Lost is still heard to say counts for nothing, and what
// is said of another generation than the present one as little.
func (m *Machine) Step(e Event) []Command {
	if m.stage == over || m.foreignTo(e) {
		return nil
	}
	switch e := e.(type) {
	case Up:
		m.up(e)
	case Silent:
		m.fellSilent(e)
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
	m.goOnScaling()
	m.settleIfAllGone()
	if m.stage == regrouping {
		m.regroup()
	}
	return m.take()
}

func (m *Machine) elapsed(t Timer) {
	switch {
	case t == StartTimer && m.stage < running:
		h, who := m.waitingFor()
		m.refuse(h, fmt.Sprintf("%s did not start within %s", who, m.plan.StartTimeout))
	case t == MaxTimer:
		m.expire()
	case t == SettleTimer && m.stage == settling:
		m.judge()
	case t == DoubtTimer && (m.stage == starting || m.stage == running):
		m.resolve()
	case t == SaveTimer:
		m.saveOverdue()
	case t == ScaleTimer:
		m.scaleOverdue()
	case t == StopTimer && (m.stage == stopping || m.stage == finishing):
		m.noteUnended()
		if m.stage == finishing && m.unclear() {
			m.waitForNobodyElse()
			return
		}
		m.stopped()
	case t == SteadyTimer && m.stage == running:
		m.forgive()
	case strings.HasPrefix(string(t), "hour "):
		m.restarts.recent--
	default:
		m.waited(t)
	}
}

func (m *Machine) take() []Command {
	out := m.out
	m.out = nil
	return out
}

func (m *Machine) do(c Command)                     { m.out = append(m.out, c) }
func (m *Machine) name(h int) string                { return m.plan.Hosts[h].Host }
func (m *Machine) beforeStop() bool                 { return m.stage < finishing }
func (m *Machine) send(h int, msg protocol.Message) { m.do(Send{Host: h, Message: msg}) }

// maxNotices bounds what a verdict carries: it goes to every agent in one
// message, after a job of months perhaps.
const maxNotices = 100

func (m *Machine) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if len(m.notices) < maxNotices {
		m.notices = append(m.notices, text)
	}
	m.do(Note{Text: text})
}

func (m *Machine) timer(t Timer, after time.Duration) {
	if after > 0 {
		m.do(SetTimer{Timer: t, After: after})
	}
}

func (m *Machine) enter(s stage, phase protocol.Phase) {
	m.stage = s
	m.do(Enter{Phase: phase})
}

// lay begins a generation: every host that is there takes part in it, and
// those that are not left out get tasks.
func (m *Machine) lay(generation int) {
	m.progress.end(m.workers())
	m.generation = generation
	m.exits, m.hostOf = map[cluster.Task]protocol.Exit{}, map[cluster.Task]int{}
	m.cluster, m.foreign = cluster.Spec{}, cluster.Spec{}
	m.failures, m.verdict = nil, protocol.Verdict{}
	m.bearing = bearing{without: map[cluster.Task]bool{}}
	for i, tasks := range renumber(m.plan.Hosts, m.available) {
		h := m.hosts[i]
		h.tasks, h.in, h.answered, h.told = tasks, !h.gone && h.place == member, gathering, false
		for _, t := range tasks {
			m.hostOf[t.Task] = i
		}
	}
}

// heard takes what an agent said. State is no such message, see Up.
func (m *Machine) heard(h int, msg protocol.Message) {
	switch {
	case msg.Prepared != nil && msg.Prepared.Generation == m.generation:
		m.prepared(h, *msg.Prepared)
	case msg.Checked != nil && msg.Checked.Generation == m.generation:
		m.checked(h, *msg.Checked)
	case msg.Started != nil && msg.Started.Generation == m.generation:
		m.started(h)
	case msg.Exited != nil:
		m.exited(h, *msg.Exited)
	case msg.Said != nil && msg.Said.Generation == m.generation:
		m.said(h, *msg.Said)
	case msg.StopAsk != nil:
		s := msg.StopAsk
		m.stopAsked(StopAsked{Reason: s.Reason, Code: s.Code, Grace: s.Grace, SaveTime: s.SaveTime})
	case msg.Scale != nil:
		m.scaleAsked(h, *msg.Scale)
	case msg.Notice != "":
		m.note("host %s: %s", m.name(h), msg.Notice)
	}
}
