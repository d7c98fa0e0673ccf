package chaos

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plx-run/plx/internal/test/chaos/ledger"
)

// Sample is the result of one cell.
type Sample struct {
	Cell    string  `json:"cell"`    // name of the cell, such as ps/worker/kill
	Outcome Outcome `json:"outcome"` // required outcome of the cell, from its Promise
	Began   string  `json:"began"`   // time at which the cell began, in UTC, in RFC 3339 format
	Commit  string  `json:"commit"`  // git commit of the tested tree
	Seed    uint64  `json:"seed"`    // seed that was passed to Cell.Target
	Target  int     `json:"target"`  // step after which the fault was to happen
	Proof   string  `json:"proof"`   // how the test saw that the fault took effect, such as "plx was sent SIGKILL"
	Measures
	Code  int     `json:"code"`  // plx's exit status
	Ended float64 `json:"ended"` // seconds from the fault to the end of the job
	Said  string  `json:"said"`  // the output line that names the fault; "" if the promise requires none
	Took  float64 `json:"took"`  // duration of the whole cell, in seconds
}

// Samples is the JSON file with the results of all cells.
type Samples struct {
	Samples []Sample `json:"samples"`
}

// Survived checks the sample of a job that had to survive the fault, and
// returns all violations of the promise. digest is the checksum of the weights
// of a run without the fault.
func (s *Sample) Survived(c Cell, digest string) error {
	if c.Loose() {
		digest = "" // without lockstep the weights are not reproducible, so no task prints a digest
	}
	return errors.Join(verdict(c.Promise(), *s, digest), s.toldOf(c))
}

// Relaunched checks the launch that follows a job which the fault ended.
// reached is the last step of that job, and next holds the measures of the
// following launch.
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

// Named returns the output line that names the fault. It returns an error if
// the promise requires such a line and no line after the time fault is one.
// host and address are those of the victim.
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

// Scaled checks the output of plx scale: it must report whether it has scaled
// the job, and its exit status code must match the report.
func (t *Transcript) Scaled(code int) error {
	lines, _ := t.so()
	for word, want := range scaledWords {
		if _, found := saying(lines, time.Time{}, []string{word}, own); found && code == want {
			return nil
		}
	}
	return fmt.Errorf("plx scale: exit status %d, and no word that belongs to it", code)
}

// Audit checks the steps of a job whose workers do not wait for each other. It
// reads the workers' ledgers and the counts of the counting variables from
// folders.
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

// verdict returns all violations of the promise by a job that had to survive.
// digest is the checksum of the weights of a run without the fault.
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
	// At most three checkpoint intervals are lost per generation, because the
	// newest checkpoint may still be incomplete when the fault happens.
	if most := s.Generations * 3 * CheckpointEvery; s.Redone > most {
		wrong("%d steps were made twice, want at most %d", s.Redone, most)
	}
	return errors.Join(errs...)
}

// toldOf checks the number of recomputed steps that plx reports. This number
// may be one more than the chief's output shows. The chief may have lost its
// connection before it printed the last step, or another worker may have been
// one step ahead. toldOf ignores jobs in which workers do not wait for each
// other, which the method losses checks. It also ignores jobs that are being
// scaled, because plx scale prints the number.
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
