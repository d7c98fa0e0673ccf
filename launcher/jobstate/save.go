package jobstate

import (
	"fmt"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// save has the chief save before a stop. Until the chief has answered, the job
// runs on: if its work is done meanwhile, or it fails, that is the verdict. No
// restart follows then, as the user wants the job to end.
type save struct {
	wanted  bool            // a stop has asked for a checkpoint first
	ask     StopAsked       // the stop to carry out after the save; valid if wanted
	outcome *protocol.Saved // result of the save, or why there is none; nil: not yet known
}

// starts reports whether a stop that asks for a save now is to wait for the chief.
// There is nothing to save while nothing runs, as earlier checkpoints are on the
// disks, and while the job has made no step since a change of hosts held it.
func (s *save) starts(v view) bool { return v.stage == running && !s.wanted && v.held == 0 }

// begin takes a stop that asks for a save.
func (s *save) begin(v view, ask StopAsked) ([]Command, decision) {
	switch {
	case v.stage == running && s.wanted: // under way: a visitor's wish comes from each host
		return nil, nil
	case s.starts(v):
		s.wanted, s.ask = true, ask
		return append(timer(saveTimer, ask.SaveTime), s.request(v, v.chief())...), nil
	}
	ask.SaveTime = 0
	if v.stage > running && !v.between() {
		return nil, stopNow{ask} // it has ended, or failed: that is the verdict
	}
	s.wanted, s.ask = true, ask
	cause := "the job had not started"
	if v.generation.number > 0 || v.between() {
		cause = "it was being restarted"
	}
	outcome := protocol.Saved{Cause: cause}
	if v.held > 0 {
		outcome = protocol.Saved{Step: v.held}
	}
	return s.end(outcome)
}

// request asks the chief, if h is its host and the answer is still wanted. It is
// repeated after a lost connection, which may have swallowed either.
func (s *save) request(v view, h int) []Command {
	if v.generation.ended(cluster.Chief) || !s.awaits(v.stage) || h != v.chief() || !v.hosts[h].reachable() {
		return nil
	}
	return []Command{send(h, protocol.Message{Checkpoint: &protocol.Checkpoint{}})}
}

// awaits reports whether the job waits for the chief's answer.
func (s *save) awaits(now stage) bool { return now == running && s.wanted && s.outcome == nil }

// answered takes the chief's answer, or its agent's for it. It ignores the saves
// that the program makes by itself, and a second answer.
func (s *save) answered(v view, m cluster.ControlMessage) ([]Command, decision) {
	if !s.wanted || s.outcome != nil {
		return nil, nil
	}
	commands, d := s.end(protocol.Saved{Step: m.Step, Cause: m.Cause})
	if v.stage != running {
		return commands, nil
	}
	return commands, d
}

// goOn gives the save up, after any event, if the chief has ended before other workers.
func (s *save) goOn(v view) ([]Command, decision) {
	if !v.generation.ended(cluster.Chief) || !s.awaits(v.stage) {
		return nil, nil
	}
	return s.end(protocol.Saved{Cause: fmt.Sprintf("%s has ended", cluster.Chief)})
}

// overdue gives the save up at the end of its time.
func (s *save) overdue(v view) ([]Command, decision) {
	if !s.awaits(v.stage) {
		return nil, nil
	}
	return s.end(protocol.Saved{Cause: fmt.Sprintf("%s on %s had not saved within %s", cluster.Chief, v.name(v.chief()), s.ask.SaveTime)})
}

// end notes what came of the save, and goes on with the stop.
func (s *save) end(outcome protocol.Saved) ([]Command, decision) {
	s.outcome = &outcome
	ask := s.ask
	ask.SaveTime = 0
	text := fmt.Sprintf("saved at step %d", outcome.Step)
	if outcome.Cause != "" {
		text = "not saved: " + outcome.Cause
	}
	ask.Reason += ", " + text
	return notice("%s", text), stopNow{ask}
}

// record is what the verdict says of the save; nil if none was asked for.
func (s *save) record() *protocol.Saved {
	if s.wanted && s.outcome == nil {
		return &protocol.Saved{Cause: "the job ended before it was saved"}
	}
	return s.outcome
}
