package jobstate

import (
	"fmt"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// save takes a checkpoint before a stop that the user has requested. Until the
// chief (worker 0) has answered, the job continues to run. If the job finishes
// or fails in that time, that is its final result, and not the stop. A failed
// job is then not restarted, because the user wants it to end.
type save struct {
	wanted  bool            // a stop with a checkpoint has been requested
	ask     StopAsked       // the stop to carry out after the checkpoint; valid if wanted is true
	outcome *protocol.Saved // result of the checkpoint; nil until it is known
}

// starts reports whether a stop that is requested now must wait for a new
// checkpoint. If no task runs, there is nothing to save. If v.held is not 0,
// plx scale has made a checkpoint and paused the job, so that no step is
// unsaved.
func (s *save) starts(v view) bool { return v.stage == running && !s.wanted && v.held == 0 }

// begin handles the request to take a checkpoint and then stop.
func (s *save) begin(v view, ask StopAsked) ([]Command, decision) {
	switch {
	case v.stage == running && s.wanted: // ignore a repeated request: plx stop sends its request through each host
		return nil, nil
	case s.starts(v):
		s.wanted, s.ask = true, ask
		return append(timer(saveTimer, ask.SaveTime), s.request(v, v.chief())...), nil
	}
	ask.SaveTime = 0
	if v.stage > running && !v.between() {
		return nil, stopNow{ask} // no checkpoint: the job has finished or failed before the stop
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

// request asks the chief (worker 0) for the checkpoint, if h is the chief's
// host and the chief has not answered. It is called again after a
// reconnection, because the request or the answer may have been lost.
func (s *save) request(v view, h int) []Command {
	if v.generation.ended(cluster.Chief) || !s.awaits(v.stage) || h != v.chief() || !v.hosts[h].reachable() {
		return nil
	}
	return []Command{send(h, protocol.Message{Checkpoint: &protocol.Checkpoint{}})}
}

// awaits reports whether the checkpoint was requested and the chief (worker 0)
// has not answered yet.
func (s *save) awaits(now stage) bool { return now == running && s.wanted && s.outcome == nil }

// answered handles the answer of the chief (worker 0), or of the agent on its
// host if the chief cannot answer. It ignores a second answer, and checkpoints
// that the program takes without a request.
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

// afterEvent is called after each event. Only the chief (worker 0) can take
// the checkpoint. If it has ended before other workers, afterEvent cancels the
// request.
func (s *save) afterEvent(v view) ([]Command, decision) {
	if !v.generation.ended(cluster.Chief) || !s.awaits(v.stage) {
		return nil, nil
	}
	return s.end(protocol.Saved{Cause: fmt.Sprintf("%s has ended", cluster.Chief)})
}

// overdue cancels the checkpoint when its time limit is over.
func (s *save) overdue(v view) ([]Command, decision) {
	if !s.awaits(v.stage) {
		return nil, nil
	}
	return s.end(protocol.Saved{Cause: fmt.Sprintf("%s on %s had not saved within %s", cluster.Chief, v.name(v.chief()), s.ask.SaveTime)})
}

// end records the result of the checkpoint and continues with the requested
// stop.
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

// record returns the result of the checkpoint, which becomes part of the job's
// final result. It returns nil if no checkpoint was requested.
func (s *save) record() *protocol.Saved {
	if s.wanted && s.outcome == nil {
		return &protocol.Saved{Cause: "the job ended before it was saved"}
	}
	return s.outcome
}
