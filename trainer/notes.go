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

// notes holds what a program adds to its checkpoints: numbers of its own and
// the best score.
type notes struct {
	mu     sync.Mutex
	values map[string]float64
	best   *float64 // highest score so far, set by SaveIfBest; nil before the first score
	isBest bool     // the current variables have the highest score, and no checkpoint contains them yet
}

// restore copies the program's numbers and the best score from m, the manifest
// of the checkpoint from which training resumes. m is nil if training begins
// from scratch.
func (n *notes) restore(m *checkpoint.Manifest) {
	n.values = map[string]float64{}
	if m != nil {
		maps.Copy(n.values, m.Notes)
		n.best = m.Best
	}
}

// write copies the program's numbers and the best score to m, the manifest of
// a new checkpoint.
func (n *notes) write(m *checkpoint.Manifest) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m.Notes, m.Best, m.IsBest = maps.Clone(n.values), n.best, n.isBest
	n.isBest = false
}

// Note stores a number of the program under a name in all later checkpoints.
// So a program that resumes can continue its own counts, such as the number of
// evaluations without an improvement.
//
// A checkpoint after step n contains the numbers that were noted before step
// n+1 began. Only the numbers of the chief (worker 0) are saved; after a
// resume every worker can read them with Noted. Note returns an error for NaN
// and infinities.
func (s *Session) Note(name string, value float64) error {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return fmt.Errorf("note %q is %v: want a finite number", name, value)
	}
	s.saving.notes.mu.Lock()
	defer s.saving.notes.mu.Unlock()
	s.saving.notes.values[name] = value
	return nil
}

// Noted returns the number that the program last passed to Note under a name,
// before or after a restart from a checkpoint. It returns false if there is
// none.
func (s *Session) Noted(name string) (float64, bool) {
	s.saving.notes.mu.Lock()
	defer s.saving.notes.mu.Unlock()
	value, ok := s.saving.notes.values[name]
	return value, ok
}

// Save requests a checkpoint of the current variables and returns at once. The
// checkpoint is made right before the next step, or at the end of training. On
// workers other than the chief (worker 0), and without --ckpt-dir, Save does
// nothing.
func (s *Session) Save() {
	s.mu.Lock()
	s.unsaved = true
	s.mu.Unlock()
	if s.saving.saver != nil {
		s.saving.saver.RequestSave(saver.Request{Exact: true, Tell: func(step int, _ time.Duration, err error) {
			if err != nil {
				s.job.Logf(slog.LevelWarn, "the checkpoint that the program requested with Save failed: %v", err)
			}
		}})
	}
}

// SaveIfBest reports whether score is higher than all scores before, including
// those before a restart. If so, it requests a checkpoint as [Session.Save]
// does. The checkpoint store keeps that checkpoint, besides the --ckpt-keep
// newest ones, until a better one is written. For a loss, pass minus the loss.
// NaN and infinities are never best.
//
// Every worker may call SaveIfBest with the same score, but only the chief
// (worker 0) saves.
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
