package coordinator

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// up takes the state of an agent that just connected: the first time as its
// arrival, later as what was missed in between.
func (m *Machine) up(e Up) {
	h := m.hosts[e.Host]
	switch {
	case h.gone && !m.plan.Restarts.Revive:
		return
	case h.gone:
		m.revived(e.Host)
	case h.silent != "" && h.in:
		m.note("host %s: connected", m.name(e.Host))
	}
	h.up, h.silent, h.addr = true, "", e.State.Addr
	h.leaving = e.State.Phase == protocol.Stopping || e.State.Phase == protocol.Over
	if e.State.Phase == protocol.Idle || e.State.Phase == protocol.Ready {
		h.told = false // Start was lost on the way: no task runs
	}
	before := m.stage
	m.missed(e.Host, e.State)
	if m.stage != before {
		return // what was missed changed it, and this host was told with the others
	}
	if m.stage == gathering {
		m.gathered()
		return
	}
	m.request(e.Host)
	m.requestSave(e.Host)
	m.requestHold(e.Host)
}

// missed takes what a state tells of the tasks.
func (m *Machine) missed(h int, s protocol.State) {
	if s.Generation != m.generation {
		return
	}
	for name, now := range s.Tasks {
		m.bearing.on = m.bearing.on || now != nil && now.Bears && name == cluster.Chief.String() && m.runs(h, cluster.Chief)
	}
	for _, said := range missedWords(s, func(now *protocol.TaskNow) *cluster.ControlMessage { return now.Word }) {
		if m.runs(h, said.Task) {
			m.progressed(said)
		}
	}
	for _, exit := range missedExits(s) {
		m.exited(h, exit)
	}
	for _, said := range missedWords(s, failed) {
		m.said(h, said)
	}
}

// missedExits returns the exits in a state in the order in which they
// happened, so that the first failure is blamed.
func missedExits(s protocol.State) []protocol.Exit {
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

// failed is what a task that has not ended said of its failure.
func failed(now *protocol.TaskNow) *cluster.ControlMessage {
	if now.Exit != nil {
		return nil
	}
	return now.Failed
}

// missedWords returns words of tasks in the order of these; nil is none.
func missedWords(s protocol.State, word func(*protocol.TaskNow) *cluster.ControlMessage) []protocol.Said {
	var words []protocol.Said
	for name, now := range s.Tasks {
		if now == nil || word(now) == nil {
			continue
		}
		if t, err := cluster.ParseTask(name); err == nil {
			words = append(words, protocol.Said{Task: t, Generation: s.Generation, Message: *word(now)})
		}
	}
	slices.SortFunc(words, func(a, b protocol.Said) int {
		return cmp.Or(cmp.Compare(a.Task.Role, b.Task.Role), cmp.Compare(a.Task.Index, b.Task.Index))
	})
	return words
}

func (m *Machine) fellSilent(e Silent) {
	h := m.hosts[e.Host]
	h.silent = e.Cause
	switch {
	case h.gone: // no new agent yet
	case h.up && h.in:
		m.note("host %s: connection lost: %s; dialling again", m.name(e.Host), e.Cause)
	case !h.up:
		m.note("host %s: no connection yet: %s; dialling again", m.name(e.Host), e.Cause)
	}
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
	to := m.hosts[h]
	if to.gone || !to.in || !to.up || to.silent != "" || to.answered >= m.stage {
		return
	}
	switch m.stage {
	case preparing:
		m.send(h, protocol.Message{Prepare: &protocol.Prepare{Generation: m.generation, Tasks: to.tasks, GroupRank: m.groupRank(h)}})
	case checking:
		m.send(h, protocol.Message{Check: &protocol.Check{Generation: m.generation, Peers: m.peers(h)}})
	case starting:
		to.told, m.launched = true, true
		m.send(h, protocol.Message{Start: &protocol.Start{Generation: m.generation, Cluster: m.cluster, Foreign: m.foreign}})
	case finishing:
		m.endServers(h)
	case stopping: // not while settling: what is told to end fails no more
		m.send(h, protocol.Message{Stop: &protocol.Stop{Grace: m.grace, Keep: m.restarts.coming && m.worked()}})
	}
}

// groupRank is the host's index among those with workers.
func (m *Machine) groupRank(h int) int {
	rank := 0
	for _, before := range m.hosts[:h] {
		if protocol.Workers(before.tasks) > 0 {
			rank++
		}
	}
	return rank
}

// peers are the other hosts with tasks; one without needs to reach none.
func (m *Machine) peers(of int) []protocol.Peer {
	if m.generation > 0 && len(m.hosts[of].tasks) == 0 {
		return nil
	}
	var peers []protocol.Peer
	for i, h := range m.hosts {
		if i != of && h.in && (m.generation == 0 || len(h.tasks) > 0) {
			peers = append(peers, protocol.Peer{Index: i, Host: m.name(i), Addr: h.addr})
		}
	}
	return peers
}

// answer notes that a host answered the stage's request, and goes on once all
// have.
func (m *Machine) answer(h int, s stage) {
	m.hosts[h].answered = max(m.hosts[h].answered, s)
	m.proceed()
}

func (m *Machine) proceed() {
	for _, h := range m.hosts {
		if h.in && h.answered < m.stage {
			return
		}
	}
	switch m.stage {
	case preparing:
		m.advance(checking)
	case checking:
		m.advance(starting)
	case starting:
		m.enter(running, protocol.Running)
		m.steady()
		m.workersDone()
	}
}

func (m *Machine) prepared(h int, p protocol.Prepared) {
	if m.stage != preparing || !m.hosts[h].in {
		return // answered twice: Prepare was sent again after a lost connection
	}
	if p.Error == "" {
		p.Error = m.mismatch(h, p)
	}
	if p.Error != "" {
		m.refuse(h, fmt.Sprintf("host %s: open sockets: %s", m.name(h), p.Error))
		return
	}
	for t, addr := range p.Open {
		m.cluster.Set(t, addr)
	}
	for t, addr := range p.Reserved {
		m.foreign.Set(t, addr)
	}
	m.answer(h, preparing)
}

// mismatch says what is wrong with a host's addresses: there is to be one for
// each of its tasks, and none for another's.
func (m *Machine) mismatch(h int, p protocol.Prepared) string {
	for _, t := range m.hosts[h].tasks {
		if p.Open[t.Task] == "" {
			return fmt.Sprintf("the agent gave no address for %s", t.Task)
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
	if m.hosts[h].in && (m.stage == checking || m.stage == settling) {
		m.unreached(h, c.Failures)
	}
	if m.stage != checking || !m.hosts[h].in {
		return // answered twice, as in prepared
	}
	m.answer(h, checking)
}

// unreached takes what a host could not reach. In the first generation that is
// a mistake in the resources.
func (m *Machine) unreached(h int, failures []protocol.Unreached) {
	for _, f := range failures {
		reason := fmt.Sprintf("host %s cannot reach host %s at %s: %s", m.name(h), f.Peer.Host, f.Peer.Addr, f.Cause)
		if m.generation == 0 {
			m.refuse(h, reason+" (a firewall? see --port-range, or addr= in the resource file)")
			return
		}
		if f.Peer.Index >= 0 && f.Peer.Index < len(m.hosts) {
			m.fail(failure{host: f.Peer.Index, reason: reason, exit: protocol.Exit{Code: CodePlx}, hearsay: true})
		}
	}
}

func (m *Machine) started(h int) {
	if m.stage >= starting && m.hosts[h].in {
		m.answer(h, starting)
	}
}
