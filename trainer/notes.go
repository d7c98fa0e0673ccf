package trainer

import (
	"fmt"
	"log/slog"
	"maps"
	"math"
	"sync"
	"time"

	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/checkpoint/saver"
)

// notes are what a program adds to checkpoints.
type notes struct {
	mu     sync.Mutex
	values map[string]float64
	best   *float64 // highest score so far; nil: none
	isBest bool     // the state that the variables have got the score best, and no checkpoint has it yet
}

// restore takes the notes of the checkpoint that training resumes from; nil: there is none.
func (n *notes) restore(m *checkpoint.Manifest) {
	n.values = map[string]float64{}
	if m != nil {
		maps.Copy(n.values, m.Notes)
		n.best = m.Best
	}
}

// write adds the notes to the manifest of a checkpoint that is being made.
func (n *notes) write(m *checkpoint.Manifest) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m.Notes, m.Best, m.IsBest = maps.Clone(n.values), n.best, n.isBest
	n.isBest = false
}

// Note keeps a number of the program's own in checkpoints, under a name, so that a program
// that resumes goes on where it was: how often in a row nothing got better, say. A
// checkpoint has what was noted before the step that follows it. Only the chief's numbers
// are saved; every worker reads them after a resume. NaN and infinities are refused.
func (s *Session) Note(name string, value float64) error {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return fmt.Errorf("note %q is %v: want a finite number", name, value)
	}
	s.saving.notes.mu.Lock()
	defer s.saving.notes.mu.Unlock()
	s.saving.notes.values[name] = value
	return nil
}

// Noted returns what was last noted under a name, also before a resume; false if nothing was.
func (s *Session) Noted(name string) (float64, bool) {
	s.saving.notes.mu.Lock()
	defer s.saving.notes.mu.Unlock()
	value, ok := s.saving.notes.values[name]
	return value, ok
}

// Save has a checkpoint made of the variables as they are now, right before the next step or
// at the end. It returns at once. Workers other than the chief do nothing, as does a job
// without --ckpt-dir.
func (s *Session) Save() {
	s.mu.Lock()
	s.unsaved = true
	s.mu.Unlock()
	if s.saving.saver != nil {
		s.saving.saver.Ask(saver.Request{Exact: true, Tell: func(step int, _ time.Duration, err error) {
			if err != nil {
				s.job.Logf(slog.LevelWarn, "the checkpoint that the program has asked for: %v", err)
			}
		}})
	}
}

// SaveIfBest reports whether a score, such as the accuracy of an evaluation, is higher than
// all before, also before a resume, and has a checkpoint made as [Session.Save] does if so.
// That checkpoint stays besides the --ckpt-keep newest ones, until a better one is written.
// For a loss, which is to be low, the score is minus the loss. NaN and infinities are
// never best.
//
// Every worker may call it, with the same score; only the chief's saves.
func (s *Session) SaveIfBest(score float64) bool {
	n := &s.saving.notes
	n.mu.Lock()
	better := !math.IsInf(score, 0) && !math.IsNaN(score) && (n.best == nil || score > *n.best)
	if better {
		n.best, n.isBest = &score, true
	}
	n.mu.Unlock()
	if better {
		s.Save()
	}
	return better
}
