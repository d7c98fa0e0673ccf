package coordinator

import (
	"cmp"
	"fmt"
	"slices"
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
	over
)

// Machine is the state of one job. It is not safe for concurrent use.
type Machine struct {
	plan    protocol.Plan
	stage   stage
	hosts   []*host
	exits   map[cluster.Task]protocol.Exit
	hostOf  map[cluster.Task]int
	cluster cluster.Spec
	foreign cluster.Spec

	failures []failure
	verdict  protocol.Verdict
	notices  []string
	saving   *saving // the stop that waits, or waited, for a save; nil without
	grace    time.Duration
	out      []Command
}

// host is what the machine knows of one agent.
type host struct {
	up       bool   // an agent answered at least once
	silent   string // why the connection is lost; "" while it is there
	gone     bool
	addr     string
	answered stage // the last stage whose request the agent answered
	told     bool  // Start was sent: tasks may run
}

// New returns the machine of a job that has not begun.
func New(plan protocol.Plan) *Machine {
	m := &Machine{
		plan:   plan,
		exits:  map[cluster.Task]protocol.Exit{},
		hostOf: map[cluster.Task]int{},
		grace:  plan.Grace,
	}
	for i, h := range plan.Hosts {
		m.hosts = append(m.hosts, &host{})
		for _, t := range h.Tasks {
			m.hostOf[t] = i
		}
	}
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
// What a host that is Lost is still heard to say counts for nothing.
func (m *Machine) Step(e Event) []Command {
	if m.stage == over {
		return nil
	}
	switch e := e.(type) {
	case Up:
		if !m.hosts[e.Host].gone {
			m.up(e)
		}
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
	m.settleIfAllGone()
	return m.take()
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

// up takes the state of an agent that just connected: the first time as its
// arrival, later as what was missed in between.
func (m *Machine) up(e Up) {
	h := m.hosts[e.Host]
	if h.silent != "" {
		m.note("host %s: connected", m.name(e.Host))
	}
	h.up, h.silent, h.addr = true, "", e.State.Addr
	if e.State.Phase == protocol.Idle || e.State.Phase == protocol.Ready {
		h.told = false // Start was lost on the way: no task runs
	}
	before := m.stage
	for _, exit := range missed(e.State) {
		m.exited(e.Host, exit)
	}
	if m.stage != before {
		return // what was missed changed it, and this host was told with the others
	}
	if m.stage == gathering {
		m.gathered()
		return
	}
	m.request(e.Host)
	m.requestSave(e.Host)
}

// missed returns the exits in a state in the order in which they happened, so
// that the first failure is blamed.
func missed(s protocol.State) []protocol.Exit {
	var exits []protocol.Exit
	for _, now := range s.Tasks {
		if now != nil && now.Exit != nil {
			exits = append(exits, *now.Exit)
		}
	}
	slices.SortFunc(exits, func(a, b protocol.Exit) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Task.Role, b.Task.Role), cmp.Compare(a.Task.Index, b.Task.Index))
	})
	return exits
}

func (m *Machine) fellSilent(e Silent) {
	h := m.hosts[e.Host]
	if h.gone {
		return
	}
	h.silent = e.Cause
	if h.up {
		m.note("host %s: connection lost: %s; dialling again", m.name(e.Host), e.Cause)
		return
	}
	m.note("host %s: no connection yet: %s; dialling again", m.name(e.Host), e.Cause)
}

func (m *Machine) gathered() {
	for _, h := range m.hosts {
		if !h.up {
			return
		}
	}
	m.advance(preparing)
}

// advance enters a stage in which every agent has to answer one request.
func (m *Machine) advance(s stage) {
	phase := protocol.Ready
	if s == preparing {
		phase = protocol.Idle
	}
	m.enter(s, phase)
	for i := range m.hosts {
		m.request(i)
	}
}

// request sends the stage's request to a host that has not answered it. One
// without a connection gets it after Up, so that it gets it once.
func (m *Machine) request(h int) {
	if to := m.hosts[h]; to.gone || !to.up || to.silent != "" || to.answered >= m.stage {
		return
	}
	switch m.stage {
	case preparing:
		m.send(h, protocol.Message{Prepare: &protocol.Prepare{}})
	case checking:
		m.send(h, protocol.Message{Check: &protocol.Check{Peers: m.peers(h)}})
	case starting:
		m.hosts[h].told = true
		m.send(h, protocol.Message{Start: &protocol.Start{Cluster: m.cluster, Foreign: m.foreign}})
	case finishing:
		m.endServers(h)
	case stopping: // not while settling: what is told to end fails no more
		m.send(h, protocol.Message{Stop: &protocol.Stop{Grace: m.grace}})
	}
}

func (m *Machine) peers(of int) []protocol.Peer {
	var peers []protocol.Peer
	for i, h := range m.hosts {
		if i != of {
			peers = append(peers, protocol.Peer{Index: i, Host: m.name(i), Addr: h.addr})
		}
	}
	return peers
}

// answer notes that a host answered the stage's request and tells whether
// all have.
func (m *Machine) answer(h int, s stage) bool {
	m.hosts[h].answered = max(m.hosts[h].answered, s)
	if m.stage != s {
		return false
	}
	for _, other := range m.hosts {
		if other.answered < s {
			return false
		}
	}
	return true
}

func (m *Machine) heard(h int, msg protocol.Message) {
	switch {
	case msg.Prepared != nil:
		m.prepared(h, *msg.Prepared)
	case msg.Checked != nil:
		m.checked(h, *msg.Checked)
	case msg.Started != nil:
		m.started(h)
	case msg.Exited != nil:
		m.exited(h, *msg.Exited)
	case msg.Said != nil && msg.Said.Message.Kind == cluster.Failed:
		m.announced(h, *msg.Said)
	case msg.Said != nil && msg.Said.Message.Kind == cluster.Checkpoint:
		m.saved(h, *msg.Said)
	case msg.StopAsk != nil:
		s := msg.StopAsk
		m.stopAsked(StopAsked{Reason: s.Reason, Code: s.Code, Grace: s.Grace, SaveTime: s.SaveTime})
	case msg.Notice != "":
		m.note("host %s: %s", m.name(h), msg.Notice)
	}
}

func (m *Machine) prepared(h int, p protocol.Prepared) {
	if m.stage != preparing {
		return // answered twice: Prepare was sent again after a lost connection
	}
	if p.Error == "" {
		p.Error = m.mismatch(h, p)
	}
	if p.Error != "" {
		m.refuse(fmt.Sprintf("host %s: open sockets: %s", m.name(h), p.Error))
		return
	}
	for t, addr := range p.Open {
		m.cluster.Set(t, addr)
	}
	for t, addr := range p.Reserved {
		m.foreign.Set(t, addr)
	}
	if m.answer(h, preparing) {
		m.advance(checking)
	}
}

// mismatch says what is wrong with a host's addresses: there is to be one for
// each of its tasks, and none for another's.
func (m *Machine) mismatch(h int, p protocol.Prepared) string {
	for _, t := range m.plan.Hosts[h].Tasks {
		if p.Open[t] == "" {
			return fmt.Sprintf("the agent gave no address for %s", t)
		}
	}
	for _, addresses := range []map[cluster.Task]string{p.Open, p.Reserved} {
		for t := range addresses {
			if of, known := m.hostOf[t]; !known || of != h {
				return fmt.Sprintf("the agent gave an address for %s, which is not its task", t)
			}
		}
	}
	return ""
}

func (m *Machine) checked(h int, c protocol.Checked) {
	if m.stage != checking {
		return // answered twice, as in prepared
	}
	if len(c.Failures) > 0 {
		f := c.Failures[0]
		m.refuse(fmt.Sprintf("host %s cannot reach host %s at %s: %s (a firewall? see --port-range, or addr= in the resource file)",
			m.name(h), f.Peer.Host, f.Peer.Addr, f.Cause))
		return
	}
	if m.answer(h, checking) {
		m.advance(starting)
	}
}

func (m *Machine) started(h int) {
	if m.answer(h, starting) {
		m.enter(running, protocol.Running)
		m.workersDone()
	}
}
