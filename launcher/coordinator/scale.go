package coordinator

import (
	"fmt"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// joinTime is how long an agent that was started for a change of hosts may take
// to be connected.
const joinTime = 45 * time.Second

// scaling is a change of hosts that is under way: agents join, the chief saves
// and holds the job, the generation is ended, and the next one begins on the new
// hosts. Until that has made a step the job can go back to the old ones.
type scaling struct {
	ask     protocol.Scale
	by      int // the host whose visitor asked
	request int // of the checkpoint
	joined  []int
	leaving []int
	workers int   // before
	step    int64 // behind which hosts are changed
	asked   bool  // the chief, to save and hold
	ending  bool  // it holds: the generation is being ended
	moved   bool  // the next one is laid
	stepped bool  // and has made a step
}

// foreignTo reports whether an event is about a host that has left the job.
func (m *Machine) foreignTo(e Event) bool {
	switch e := e.(type) {
	case Up:
		return m.hosts[e.Host].place == left
	case Silent:
		return m.hosts[e.Host].place == left
	case Lost:
		return m.hosts[e.Host].place == left
	case Heard:
		return m.hosts[e.Host].place == left
	}
	return false
}

// scaleAsked takes a visitor's wish, once.
func (m *Machine) scaleAsked(h int, s protocol.Scale) {
	switch {
	case m.scale != nil && m.scale.ask.ID == s.ID:
		m.scale.by = h // it has lost its connection
	case m.scaled.Scaled.ID != "" && m.scaled.Scaled.ID == s.ID:
		m.do(Answer{Host: h, Scaled: m.scaled.Scaled})
	case s.Known == 0:
		m.do(Answer{Host: h, Scaled: protocol.Scaled{ID: s.ID, Hosts: m.everybody()}})
	default:
		if why := m.unfit(s); why != "" {
			m.do(Answer{Host: h, Scaled: protocol.Scaled{ID: s.ID, Cause: why}})
			return
		}
		m.beginScaling(h, s)
	}
}

// everybody lists all hosts that the job has had, with their present tasks.
func (m *Machine) everybody() []protocol.HostPlan {
	hosts := m.layout()
	for i, h := range m.plan.Hosts {
		if m.hosts[i].place == member && len(hosts[i].Tasks) == 0 {
			hosts[i].Tasks = h.Tasks // left out for the time being
		}
	}
	return hosts
}

func (m *Machine) beginScaling(by int, s protocol.Scale) {
	m.scales++
	m.scale = &scaling{ask: s, by: by, request: m.scales, leaving: s.Leave}
	for t := range m.hostOf {
		if t.Role == cluster.Worker {
			m.scale.workers++
		}
	}
	for _, j := range s.Join {
		i := len(m.hosts)
		m.plan.Hosts = append(m.plan.Hosts, j.HostPlan)
		m.hosts = append(m.hosts, &host{place: joining})
		m.scale.joined = append(m.scale.joined, i)
		m.do(Join{Host: i, Joining: j})
	}
	m.timer(ScaleTimer, joinTime)
}

// goOnScaling begins what can be begun now.
func (m *Machine) goOnScaling() {
	s := m.scale
	switch {
	case s == nil:
	case s.moved && s.stepped && m.stage == running:
		m.scaleDone()
	case m.stage == running && !s.asked && !s.moved:
		for _, i := range s.joined {
			if h := m.hosts[i]; h.gone {
				m.unscale(fmt.Sprintf("host %s: %s", m.name(i), h.silent))
				return
			} else if !h.up || h.silent != "" {
				return
			}
		}
		s.asked = true
		m.timer(ScaleTimer, s.ask.SaveTime)
		m.requestHold(m.hostOf[cluster.Chief])
	}
}

// requestHold asks the chief to save and to hold the job. It is repeated after
// a lost connection.
func (m *Machine) requestHold(h int) {
	s := m.scale
	if s == nil || !s.asked || s.ending || s.moved || m.stage != running || h != m.hostOf[cluster.Chief] {
		return
	}
	if to := m.hosts[h]; to.gone || to.silent != "" {
		return
	}
	hold := &protocol.Hold{Workers: m.workersAfter(s.ask)}
	for _, i := range s.leaving {
		for _, t := range m.hosts[i].tasks {
			hold.Leaving = append(hold.Leaving, t.Task.String())
		}
	}
	m.send(h, protocol.Message{Checkpoint: &protocol.Checkpoint{Request: s.request, Hold: hold}})
}

// heldAt takes the chief's answer: the job stands still, and the generation is
// ended.
func (m *Machine) heldAt(said cluster.ControlMessage) {
	s := m.scale
	if s == nil || !s.asked || s.ending || s.moved || m.stage != running || said.Request != s.request {
		return
	}
	if said.Cause == "" && !said.Hold {
		said.Cause = "the program saves and goes on"
	}
	if said.Cause != "" {
		m.unscale("not saved: " + said.Cause)
		return
	}
	s.ending, s.step = true, said.Step
	m.verdict = protocol.Verdict{Code: CodePlx, Reason: "its hosts were being changed"}
	m.progress.holdAt(s.step)
	m.do(Holding{For: said.Held})
	m.restarts.coming = true
	m.restarts.free = fmt.Sprintf("saved behind step %d to go on with other hosts", s.step)
	m.note("scaling: saved behind step %d, generation %d is ended", s.step, m.generation)
	m.stopAll()
}

// change makes the new hosts those of the job, nothing running on any.
func (m *Machine) change() {
	s := m.scale
	s.ending, s.moved = false, true
	for _, i := range s.joined {
		m.hosts[i].place = member
	}
	for _, i := range s.leaving {
		m.hosts[i].place = parting
	}
	m.timer(ScaleTimer, m.plan.StartTimeout+s.ask.SaveTime)
}

// goBack returns to the old hosts when the new ones come to nothing, and reports
// whether it does.
func (m *Machine) goBack() bool {
	s := m.scale
	if s == nil || !s.moved || m.saving != nil || m.expired {
		return false
	}
	for _, i := range s.leaving {
		m.hosts[i].place = member
	}
	for _, i := range s.joined {
		m.hosts[i].place = parting
	}
	m.scale = nil
	m.reply(s, protocol.Scaled{Cause: m.verdict.Reason + "; the job goes back to the hosts that it had"})
	m.restarts.coming = true
	m.restarts.free = fmt.Sprintf("not scaled: %s: back to the old hosts, behind step %d", m.verdict.Reason, s.step)
	return true
}

// release ends the agents of hosts that the generation just laid has no use for.
func (m *Machine) release() {
	if m.scale != nil {
		return // the job may have to come back to them
	}
	for i, h := range m.hosts {
		if h.place == parting {
			m.part(i)
		}
	}
}

func (m *Machine) part(i int) {
	m.hosts[i].place = left
	m.do(Leave{Host: i})
}

func (m *Machine) sawStep() {
	if m.scale != nil && m.scale.moved {
		m.scale.stepped = true
	}
}

func (m *Machine) scaleDone() {
	s := m.scale
	m.scale = nil
	m.reply(s, protocol.Scaled{Generation: m.generation, Hosts: m.everybody(), From: s.workers, To: m.workersNow(), Step: s.step})
	m.release()
}

// unscale gives a change of hosts up where nothing has been changed yet, and
// otherwise, as the job ends, with it.
func (m *Machine) unscale(why string) {
	s := m.scale
	if s == nil || s.ending && m.restarts.coming {
		return
	}
	m.scale = nil
	m.reply(s, protocol.Scaled{Cause: why})
	if s.moved || s.ending {
		return
	}
	m.do(Note{Text: "not scaled: " + why})
	if chief := m.hostOf[cluster.Chief]; s.asked && m.hosts[chief].silent == "" && !m.hosts[chief].gone {
		m.send(chief, protocol.Message{Checkpoint: &protocol.Checkpoint{Request: s.request, Resume: true}})
	}
	for _, i := range s.joined {
		m.hosts[i].tasks = nil
		m.part(i)
	}
}

func (m *Machine) reply(s *scaling, answer protocol.Scaled) {
	answer.ID = s.ask.ID
	m.scaled = Answer{Host: s.by, Scaled: answer}
	m.do(m.scaled)
}

func (m *Machine) scaleOverdue() {
	s := m.scale
	switch {
	case s == nil || s.ending:
	case s.moved:
		if m.beforeStop() {
			chief := m.hostOf[cluster.Chief]
			m.fail(failure{host: chief, reason: fmt.Sprintf("no step was made within %s on the new hosts", m.plan.StartTimeout+s.ask.SaveTime),
				exit: protocol.Exit{Code: CodePlx}})
		}
	case s.asked:
		m.unscale(fmt.Sprintf("%s on %s had not saved within %s", cluster.Chief, m.name(m.hostOf[cluster.Chief]), s.ask.SaveTime))
	default:
		m.unscale(fmt.Sprintf("no connection to the new hosts within %s", joinTime))
	}
}

// finishedMeanwhile reports whether every worker was done before it was told to
// end.
func (m *Machine) finishedMeanwhile() bool {
	for t := range m.hostOf {
		if e, ended := m.exits[t]; t.Role == cluster.Worker && (!ended || e.Code != 0 || e.Signal != 0 || !e.Finished) {
			return false
		}
	}
	return true
}
