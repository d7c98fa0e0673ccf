package coordinator

import (
	"fmt"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// saving is a stop that waits for the chief to save. Until then the job runs
// on: should its work be done, or it fail, that is the verdict. It is not begun
// anew then, as the user wants it to end.
type saving struct {
	ask     StopAsked
	outcome *protocol.Saved // nil while it is waited for
}

// saveFirst has the job saved before a stop, and reports whether the stop is to
// wait for that. While nothing runs there is nothing to save: what earlier
// generations have saved is on the disks. Nor is there where the job goes on
// from where it was held, and has made no step since.
func (m *Machine) saveFirst(e *StopAsked) bool {
	switch {
	case m.stage == running && m.saving != nil: // under way: every visitor's wish comes from each host
		return true
	case m.stage == running && m.progress.held() == 0:
	case m.stage <= running || m.between():
		m.nothingToSave(e)
		return false
	default: // it has ended, or failed: that is the verdict
		return false
	}
	m.unscale(e.Reason)
	m.saving = &saving{ask: *e}
	m.timer(SaveTimer, e.SaveTime)
	m.requestSave(m.hostOf[cluster.Chief])
	m.chiefEnded()
	return true
}

// nothingToSave notes that a stop came when no task ran that could save, or
// had anything to.
func (m *Machine) nothingToSave(e *StopAsked) {
	cause := "the job had not started"
	if m.generation > 0 || m.between() {
		cause = "it was being restarted"
	}
	if step := m.progress.held(); step > 0 {
		m.saving = &saving{ask: *e, outcome: &protocol.Saved{Step: step}}
		e.Reason += m.noteSaved(step)
		return
	}
	m.saving = &saving{ask: *e, outcome: &protocol.Saved{Cause: cause}}
	e.Reason += m.noteUnsaved(cause)
}

// requestSave asks the chief, if h is its host and the answer is still wanted.
// It is repeated after a lost connection, which may have swallowed either.
func (m *Machine) requestSave(h int) {
	if _, ended := m.exits[cluster.Chief]; ended || !m.awaitsSave() || h != m.hostOf[cluster.Chief] {
		return
	}
	if to := m.hosts[h]; !to.gone && to.silent == "" {
		m.send(h, protocol.Message{Checkpoint: &protocol.Checkpoint{}})
	}
}

func (m *Machine) awaitsSave() bool {
	return m.stage == running && m.saving != nil && m.saving.outcome == nil
}

// saved takes the chief's answer, or its agent's for it.
func (m *Machine) saved(s protocol.Said) {
	if s.Task != cluster.Chief {
		return
	}
	if s.Message.Request > 0 {
		m.heldAt(s.Message)
		return
	}
	m.endSave(protocol.Saved{Step: s.Message.Step, Cause: s.Message.Cause})
}

// chiefEnded gives up a save whose chief is done before the other workers.
func (m *Machine) chiefEnded() {
	if _, ended := m.exits[cluster.Chief]; ended && m.awaitsSave() {
		m.endSave(protocol.Saved{Cause: fmt.Sprintf("%s has ended", cluster.Chief)})
	}
}

func (m *Machine) saveOverdue() {
	if m.awaitsSave() {
		m.endSave(protocol.Saved{Cause: fmt.Sprintf("%s on %s had not saved within %s",
			cluster.Chief, m.name(m.hostOf[cluster.Chief]), m.saving.ask.SaveTime)})
	}
}

// endSave notes what came of the save, and goes on with the stop that waits
// for it.
func (m *Machine) endSave(outcome protocol.Saved) {
	if m.saving == nil || m.saving.outcome != nil {
		return // the program's own saves, or answered twice
	}
	m.saving.outcome = &outcome
	ask := m.saving.ask
	ask.SaveTime = 0
	if outcome.Cause != "" {
		ask.Reason += m.noteUnsaved(outcome.Cause)
	} else {
		ask.Reason += m.noteSaved(outcome.Step)
	}
	if m.stage == running {
		m.stopAsked(ask)
	}
}

// noteSaved notes that the job is saved, and returns what that adds to the
// reason of its end.
func (m *Machine) noteSaved(step int64) string {
	m.note("saved at step %d", step)
	return fmt.Sprintf(", saved at step %d", step)
}

// noteUnsaved is noteSaved for a job that is not.
func (m *Machine) noteUnsaved(cause string) string {
	m.note("not saved: %s", cause)
	return ", not saved: " + cause
}

// recordSave puts into the verdict what came of the save.
func (m *Machine) recordSave() {
	if m.saving == nil {
		return
	}
	if m.verdict.Saved = m.saving.outcome; m.verdict.Saved == nil {
		m.verdict.Saved = &protocol.Saved{Cause: "the job ended before it was saved"}
	}
}
