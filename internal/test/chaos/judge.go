package chaos

import (
	"errors"
	"fmt"
)

// Sample is what became of one cell.
type Sample struct {
	Cell    string  `json:"cell"`    // name, such as ps/worker/kill
	Outcome outcome `json:"outcome"` // what the promise says
	Began   string  `json:"began"`   // when the cell began, in UTC, as in RFC 3339
	Commit  string  `json:"commit"`  // of the tree that was tried
	Seed    uint64  `json:"seed"`    // from which Target follows
	Target  int     `json:"target"`  // the step after which the fault was to come
	Proof   string  `json:"proof"`   // how the test saw that the fault took effect, such as "plx was sent SIGKILL"
	measures
	Code  int     `json:"code"`  // plx's exit status
	Ended float64 `json:"ended"` // seconds from the fault until the job had ended
	Said  string  `json:"said"`  // the line that names the fault; "": the promise wants none
	Took  float64 `json:"took"`  // seconds that the whole cell took
}

// verdict says in what a job that was to survive has broken the promise.
func verdict(p promise, s Sample, digest string) error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if s.Code != 0 {
		wrong("exit status %d", s.Code)
	}
	if s.Digest != digest {
		wrong("the weights are not those without the fault: digest %q, want %q", s.Digest, digest)
	}
	switch {
	case p.outcome == recovers && s.Generations == 0:
		wrong("it made no other generation")
	case p.outcome == goesOn && s.Generations > 0:
		wrong("it made %d more generations, none was needed", s.Generations)
	}
	if limit := p.within.Seconds(); s.Back < 0 || s.Back > limit {
		wrong("training went on after %.1f s, want at most %.0f", s.Back, limit)
	}
	if s.Unsaved > p.unsaved && len(p.warns) == 0 {
		wrong("%d checkpoints were not made", s.Unsaved)
	}
	// A checkpoint is written while training goes on: the newest may not be whole.
	if most := s.Generations * 3 * checkpointEvery; s.Redone > most {
		wrong("%d steps were made twice, want at most %d", s.Redone, most)
	}
	return errors.Join(errs...)
}

// toldOf says in what plx has counted recomputed steps wrongly. It may know of one
// more than the chief has printed: the connection broke when that was made, or another
// worker had come a step further. If workers do not wait for each other their books
// say it (losses); whoever scales a job is told elsewhere.
func (s Sample) toldOf(c Cell) error {
	switch {
	case s.Generations == 0 || c.Victim.detached() || c.Victim.scaled() || c.loose():
		return nil
	case s.Told < 0:
		return errors.New("nothing was said of the step after which training resumes")
	case s.Told > s.Redone+1:
		return fmt.Errorf("%d steps were recomputed, plx says at least %d", s.Redone, s.Told)
	}
	return nil
}
