package chaos

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plx-run/plx/internal/test/chaos/ledger"
)

// Sample is what became of one cell.
type Sample struct {
	Cell    string  `json:"cell"`    // name, such as ps/worker/kill
	Outcome Outcome `json:"outcome"` // what the promise says
	Began   string  `json:"began"`   // when the cell began, in UTC, as in RFC 3339
	Commit  string  `json:"commit"`  // of the tree that was tried
	Seed    uint64  `json:"seed"`    // from which Target follows
	Target  int     `json:"target"`  // the step after which the fault was to come
	Proof   string  `json:"proof"`   // how the test saw that the fault took effect, such as "plx was sent SIGKILL"
	Measures
	Code  int     `json:"code"`  // plx's exit status
	Ended float64 `json:"ended"` // seconds from the fault until the job had ended
	Said  string  `json:"said"`  // the line that names the fault; "": the promise wants none
	Took  float64 `json:"took"`  // seconds that the whole cell took
}

// Samples are those of all cells, as they are kept.
type Samples struct {
	Samples []Sample `json:"samples"`
}

// Survived says what is wrong with a sample of a job that was to survive. digest is
// that of the weights without a fault.
func (s *Sample) Survived(c Cell, digest string) error {
	if c.Loose() {
		digest = "" // nobody prints one
	}
	return errors.Join(verdict(c.Promise(), *s, digest), s.toldOf(c))
}

// Relaunched says what is wrong with the launch after a job that has ended at a step, of
// which next was measured.
func (s *Sample) Relaunched(reached int, next Measures, digest string) error {
	s.Reached, s.Resumed, s.Digest = reached, next.Resumed, next.Digest
	s.Redone = reached + 1 - next.Resumed
	switch {
	case next.Resumed < 0 || s.Redone > 3*CheckpointEvery:
		return fmt.Errorf("the next launch went on after %d steps, there had been %d", next.Resumed, reached+1)
	case next.Digest != digest:
		return fmt.Errorf("the next launch: the weights are not those without the fault: digest %q, want %q", next.Digest, digest)
	}
	return nil
}

// Named returns the line that names the fault, or says why there is none where the
// promise wants one. The fault came at a time; host and address are the victim's.
func (t *Transcript) Named(c Cell, fault time.Time, host, address string) (said string, err error) {
	p := c.Promise()
	names := strings.NewReplacer("VICTIM", c.Task(), "HOST", host, "ADDRESS", address)
	lines, _ := t.so()
	for _, w := range []struct {
		words []string
		who   string
		meant func(string) bool
	}{
		{p.Says, "plx", own},
		{p.Warns, "a task", func(text string) bool { return !own(text) && !firedLine.MatchString(text) }},
	} {
		if len(w.words) == 0 {
			continue
		}
		words := slices.Clone(w.words)
		for i, word := range words {
			words[i] = names.Replace(word)
		}
		text, found := saying(lines, fault, words, w.meant)
		if !found {
			return "", fmt.Errorf("no line of %s says %q", w.who, words)
		}
		said = text
	}
	return said, nil
}

// Scaled says what is wrong with what plx scale wrote: whether the job was scaled, with
// the exit status that belongs to it.
func (t *Transcript) Scaled(code int) error {
	lines, _ := t.so()
	for word, want := range scaledWords {
		if _, found := saying(lines, time.Time{}, []string{word}, own); found && code == want {
			return nil
		}
	}
	return fmt.Errorf("plx scale: exit status %d, and no word that belongs to it", code)
}

// Audit says what is wrong with the steps of a job whose workers do not wait for each
// other: with what workers noted, and variables counted, in folders.
func (t *Transcript) Audit(mode string, folders []string) error {
	lines, _ := t.so()
	a := account{mode: mode, story: tell(lines)}
	var errs []error
	for _, folder := range folders {
		entries, err := ledger.Read(folder)
		a.entries, errs = append(a.entries, entries...), append(errs, err)
		applied, err := ledger.ReadApplied(folder)
		if errs = append(errs, err); applied != nil {
			a.applied = applied
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return a.audit()
}

// verdict says in what a job that was to survive has broken the promise.
func verdict(p Promise, s Sample, digest string) error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if s.Code != 0 {
		wrong("exit status %d", s.Code)
	}
	if s.Digest != digest {
		wrong("the weights are not those without the fault: digest %q, want %q", s.Digest, digest)
	}
	switch {
	case p.Outcome == Recovers && s.Generations == 0:
		wrong("it made no other generation")
	case p.Outcome == GoesOn && s.Generations > 0:
		wrong("it made %d more generations, none was needed", s.Generations)
	}
	if limit := p.Within.Seconds(); s.Back < 0 || s.Back > limit {
		wrong("training went on after %.1f s, want at most %.0f", s.Back, limit)
	}
	if s.Unsaved > p.Unsaved && len(p.Warns) == 0 {
		wrong("%d checkpoints were not made", s.Unsaved)
	}
	// A checkpoint is written while training goes on: the newest may not be whole.
	if most := s.Generations * 3 * CheckpointEvery; s.Redone > most {
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
	case s.Generations == 0 || c.Victim.Detached() || c.Victim.Scaled() || c.Loose():
		return nil
	case s.Told < 0:
		return errors.New("nothing was said of the step after which training resumes")
	case s.Told > s.Redone+1:
		return fmt.Errorf("%d steps were recomputed, plx says at least %d", s.Redone, s.Told)
	}
	return nil
}
