package coordinator

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"syscall"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// failure is one task's, or one host's when task is nil.
type failure struct {
	host   int
	task   *cluster.Task
	exit   protocol.Exit
	reason string
	// hearsay: another host says so, which could not reach it.
	hearsay bool
	waits   bool // it said that it fails, and its process stays
}

// exited takes the end of a task, once.
func (m *Machine) exited(h int, e protocol.Exit) {
	if _, seen := m.exits[e.Task]; seen || !m.runs(h, e.Task) || e.Generation != m.generation {
		return
	}
	m.exits[e.Task] = e
	if e.Told && (m.beforeStop() || m.stage == settling) {
		m.hosts[h].leaving = true // not by us: the agent ends
	}
	if reason := m.fault(h, e); reason != "" {
		m.fail(failure{host: h, task: &e.Task, exit: e, reason: reason})
		return
	}
	m.workersDone()
	m.chiefEnded()
}

// fault says why an exit is a failure, or "" when it is none.
func (m *Machine) fault(h int, e protocol.Exit) string {
	who := fmt.Sprintf("%s on %s", e.Task, m.name(h))
	switch {
	case e.Told && (m.stage == finishing || m.stage == stopping):
		return ""
	case e.Told: // not by us: the agent's lease is over, or its host shuts down
		return who + " was told to end by its host's agent" + because(e.Cause)
	case !e.Started:
		return fmt.Sprintf("%s could not start: %s", who, e.Cause)
	case e.Signal != 0:
		return fmt.Sprintf("%s was ended by signal %d (%s)", who, e.Signal, syscall.Signal(e.Signal)) + because(e.Cause)
	case e.Code != 0:
		return fmt.Sprintf("%s exited with status %d", who, e.Code) + because(e.Cause)
	case e.Native && !e.Finished:
		return who + " exited with status 0 before its work was finished"
	}
	return ""
}

func because(cause string) string {
	if cause == "" {
		return ""
	}
	return ": " + cause
}

// runs reports whether a task of this generation is host h's.
func (m *Machine) runs(h int, t cluster.Task) bool {
	of, known := m.hostOf[t]
	return known && of == h
}

// said takes what a task said to its agent.
func (m *Machine) said(h int, s protocol.Said) {
	if !m.runs(h, s.Task) {
		return
	}
	m.progressed(s)
	switch s.Message.Kind {
	case cluster.Bears:
		m.bearing.on = m.bearing.on || s.Task.IsChief()
	case cluster.Failed:
		m.announced(h, s)
	case cluster.Checkpoint:
		m.saved(s)
	}
}

// announced takes a task's own word that it failed. Its exit is to follow;
// if it does not, the word is enough.
func (m *Machine) announced(h int, s protocol.Said) {
	if _, ended := m.exits[s.Task]; ended {
		return
	}
	for _, f := range m.failures {
		if f.task != nil && *f.task == s.Task {
			return
		}
	}
	m.fail(failure{host: h, task: &s.Task, waits: s.Message.Keeps, reason: fmt.Sprintf("%s on %s failed%s", s.Task, m.name(h), because(s.Message.Cause)),
		exit: protocol.Exit{Task: s.Task, Code: 1, Started: true, Native: true, Cause: s.Message.Cause, LostPeer: s.Message.Peer}})
}

// fail records a failure. The first begins the settling time.
func (m *Machine) fail(f failure) {
	switch m.stage {
	case stopping, regrouping:
		return // torn down by us
	case finishing:
		if !m.isWithout(f) {
			m.note("%s, after all workers were done", f.reason)
		}
		return
	}
	if m.isWithout(f) || m.bear(f) {
		return
	}
	m.failures = append(m.failures, m.bearing.doubt...)
	m.bearing.doubt = nil
	for i, old := range m.failures {
		if f.task != nil && old.task != nil && *old.task == *f.task {
			if f.exit.LostPeer == "" {
				f.exit.LostPeer = old.exit.LostPeer
			}
			m.failures[i] = f // the exit says more than the announcement did
			return
		}
	}
	m.failures = append(m.failures, f)
	if m.stage == settling {
		return
	}
	m.stage = settling
	if m.plan.Settle <= 0 {
		m.judge()
		return
	}
	m.timer(SettleTimer, m.plan.Settle)
}

// lost takes the loss of a host: with it go its tasks.
func (m *Machine) lost(e Lost) {
	h := m.hosts[e.Host]
	if h.gone {
		return
	}
	ended := m.unended(e.Host) == 0 && h.answered >= starting
	idle := !h.in || m.generation > 0 && len(h.tasks) == 0
	h.gone, h.silent, h.in, h.leaving = true, e.Cause, false, false
	h.answers, h.clearing = e.Answers, e.Clear > 0
	m.timer(clearTimer(e.Host), e.Clear)
	switch {
	case idle:
		m.proceed() // others may have answered before
	case ended:
		m.note("host %s: %s, after its tasks had ended", m.name(e.Host), e.Cause)
	default:
		m.fail(failure{host: e.Host, reason: fmt.Sprintf("host %s: %s", m.name(e.Host), e.Cause), exit: protocol.Exit{Code: CodePlx}})
	}
}

// judge chooses who is to blame and stops everything, to begin anew where that
// may help. Where all workers have turned out to be done meanwhile, what failed
// are servers that lost them: no failure of the job.
func (m *Machine) judge() {
	if m.allWorkersDone() {
		m.finish()
		for _, f := range m.failures {
			m.fail(f) // becomes a note
		}
		return
	}
	m.decide(m.sentence())
	m.stop()
}

// sentence puts the verdict on what has failed in place, and returns the
// culprit.
func (m *Machine) sentence() failure {
	culprit, victims := m.blame()
	m.verdict = protocol.Verdict{Code: status(culprit.exit), Reason: culprit.reason + m.bearing.short, Host: m.name(culprit.host), Victims: victims}
	if culprit.task != nil {
		e := culprit.exit
		m.verdict.First = &e
	}
	return culprit
}

// blame returns the culprit and the tasks that failed because a peer did.
func (m *Machine) blame() (failure, []string) {
	culprit := slices.IndexFunc(m.failures, func(f failure) bool { return f.exit.LostPeer == "" })
	var guilty failure
	if culprit >= 0 {
		guilty = m.failures[m.outvoted(culprit)]
	} else {
		guilty, culprit = m.blamedPeer()
	}
	var victims []string
	for i, f := range m.failures {
		if f.exit.LostPeer != "" && i != culprit {
			victims = append(victims, fmt.Sprintf("%s on %s", f.task, m.name(f.host)))
		}
	}
	sort.Strings(victims)
	return guilty, victims
}

// outvoted replaces a host that another could not reach by the one that most
// could not reach: of two hosts that are cut off from each other, the one that
// is cut off from others too. Any other failure is left as it is.
func (m *Machine) outvoted(culprit int) int {
	if !m.failures[culprit].hearsay {
		return culprit
	}
	votes := map[int]int{}
	for _, f := range m.failures {
		if f.hearsay {
			votes[f.host]++
		}
	}
	for i, f := range m.failures {
		if f.hearsay && votes[f.host] > votes[m.failures[culprit].host] {
			culprit = i
		}
	}
	return culprit
}

// blamedPeer turns a set of victims that all blame peers into one failure:
// that of the peer named most often, the first of equals. Where that is no
// task of the job it is the victim's own. victim tells which of the failures
// is the culprit's own, -1: none.
func (m *Machine) blamedPeer() (f failure, victim int) {
	votes := map[string]int{}
	best := 0
	for i, f := range m.failures {
		peer := f.exit.LostPeer
		if votes[peer]++; votes[peer] > votes[m.failures[best].exit.LostPeer] {
			best = i
		}
	}
	witness := m.failures[best]
	name, _, _ := strings.Cut(witness.exit.LostPeer, " ")
	peer, err := cluster.ParseTask(name)
	h, known := m.hostOf[peer]
	if err != nil || !known {
		return witness, best
	}
	if cause := m.hosts[h].silent; cause != "" {
		return failure{host: h, reason: fmt.Sprintf("host %s: %s", m.name(h), cause), exit: protocol.Exit{Code: CodePlx}}, -1
	}
	// The verdict names no first exit: the peer has none, and the witness's
	// last words are not those of the culprit.
	return failure{host: h, exit: protocol.Exit{Code: status(witness.exit)},
			reason: fmt.Sprintf("%s on %s failed, says %s%s", peer, m.name(h), witness.exit.Task, because(witness.exit.Cause))},
		slices.IndexFunc(m.failures, func(f failure) bool { return f.task != nil && *f.task == peer })
}

// status is the shell's view of an exit: 128 + signal where one ended it.
func status(e protocol.Exit) int {
	switch {
	case e.Told: // by its agent, without us
		return CodePlx
	case e.Signal != 0:
		return 128 + e.Signal
	case e.Code != 0:
		return e.Code
	}
	return 1 // native, exited with 0, not finished
}
