package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/plx-run/plx/internal/test/chaos/ledger"
)

// judgeSurvival waits for a job that is to survive, and says what is wrong.
func (r *run) judgeSurvival(ctx context.Context) error {
	if err := r.survive(ctx); err != nil {
		return err
	}
	code, err := r.job.wait(ctx)
	if err != nil {
		return err
	}
	ended := time.Now()
	lines, _ := r.script.so()
	r.take(lines, code, ended)
	digest := r.lab.digest
	if r.cell.loose() {
		digest = "" // nobody prints one
	}
	return errors.Join(verdict(r.cell.promise(), *r.sample, digest), r.sample.toldOf(r.cell), r.named(lines), r.audited(lines), r.judgeScaling(ctx),
		r.nothingLeft(ctx, lease), r.lab.launchersGone())
}

// judgeScaling waits for plx scale, which must have reported the truth with the right
// exit status.
func (r *run) judgeScaling(ctx context.Context) error {
	if r.scaling == nil {
		return nil
	}
	code, err := r.scaling.wait(ctx)
	if err = errors.Join(err, r.scaled.log.Close()); err != nil {
		return fmt.Errorf("plx scale: %w", err)
	}
	lines, _ := r.scaled.so()
	for word, want := range scaledWords {
		if _, found := saying(lines, time.Time{}, []string{word}, own); found && code == want {
			return nil
		}
	}
	return fmt.Errorf("plx scale: exit status %d: %s", code, last(lines))
}

// audited reads what workers noted and variables counted on the hosts, and audits it.
func (r *run) audited(lines []line) error {
	if !r.cell.loose() {
		return nil
	}
	a := account{mode: r.cell.Arch, story: tell(lines)}
	var errs []error
	for _, h := range r.lab.cluster.Hosts {
		folders, err := filepath.Glob(filepath.Join(h.HomeDir, ".plx", "ckpt", "*", ledgers))
		errs = append(errs, err)
		for _, folder := range folders {
			entries, err := ledger.Read(folder)
			a.entries, errs = append(a.entries, entries...), append(errs, err)
			applied, err := ledger.ReadApplied(folder)
			if errs = append(errs, err); applied != nil {
				a.applied = applied
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return a.audit()
}

// survive does what a job needs whose launching machine was struck: once it is
// cut off for so long that nothing is left on the hosts, the network is whole
// again; and a detached job is followed anew.
func (r *run) survive(ctx context.Context) error {
	switch {
	case r.cell.Victim == departed:
		return r.follow(ctx)
	case r.cell.Victim == launching && slices.Contains([]fault{stop, cut, mute, deaf}, r.cell.Fault):
		return errors.Join(r.nothingLeft(ctx, lease+2*time.Second), r.undo(ctx))
	}
	return nil
}

// follow waits for a detached job's end after its follower was struck, and then
// follows it again.
func (r *run) follow(ctx context.Context) error {
	if err := r.nothingLeft(ctx, limit); err != nil {
		return err
	}
	if err := r.undo(ctx); err != nil {
		return err
	}
	r.job.stop()
	var err error
	r.job, err = r.lab.start(r.script, "attach", "--color", "never", r.id)
	return err
}

// take notes what was measured.
func (r *run) take(lines []line, code int, ended time.Time) {
	m := measure(lines, r.struck)
	if r.cell.Victim == departed {
		m.Noticed, m.Back = -1, 0 // whoever followed was away, the training was not
	}
	r.sample.take(m, code, ended.Sub(r.struck))
}

// named fails where plx has not said what the promise wants it to say.
func (r *run) named(lines []line) error {
	p := r.cell.promise()
	for _, c := range []struct {
		words []string
		who   string
		meant func(string) bool
	}{
		{p.says, "plx", own},
		{p.warns, "a task", func(text string) bool { return !own(text) && !firedLine.MatchString(text) }},
	} {
		words := r.names(c.words)
		if len(words) == 0 {
			continue
		}
		text, found := saying(lines, r.struck, words, c.meant)
		if !found {
			return fmt.Errorf("no line of %s says %q", c.who, words)
		}
		r.said = text
	}
	return nil
}

// names puts the victim's names into words.
func (r *run) names(words []string) []string {
	if r.cell.Victim.person().host < 0 {
		return words
	}
	names := strings.NewReplacer("VICTIM", r.cell.task(), "HOST", r.host().Name, "ADDRESS", r.host().Addr)
	words = slices.Clone(words)
	for i, w := range words {
		words[i] = names.Replace(w)
	}
	return words
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

// learning is how long it may take whoever follows a job from outside to learn
// that its hosts are gone.
const learning = time.Minute

// judgeEnd waits for a job that is to end, launches another of its name, and
// says what is wrong.
func (r *run) judgeEnd(ctx context.Context) error {
	p := r.cell.promise()
	if err := r.nothingLeft(ctx, p.within); err != nil {
		return fmt.Errorf("it was to end within %v: %w", p.within, err)
	}
	gone := time.Now()
	told, cancel := context.WithTimeoutCause(ctx, learning, fmt.Errorf("nobody was told for %v", learning))
	defer cancel()
	code, err := r.job.wait(told)
	if err != nil {
		return err
	}
	lines, _ := r.script.so()
	r.take(lines, code, gone)
	// Nobody was told of the steps that were made before the lease was over.
	reached, err := r.spooled()
	if err != nil {
		return err
	}
	if !slices.Contains(p.codes, code) {
		err = fmt.Errorf("exit status %d, want one of %v", code, p.codes)
	}
	err = errors.Join(err, r.named(lines), r.undo(ctx), r.nothingLeft(ctx, 2*lease), r.lab.launchersGone())
	return errors.Join(err, r.resume(ctx, reached))
}

// spooled is the last step that the chief has printed to its spool.
func (r *run) spooled() (int, error) {
	path := filepath.Join(r.lab.cluster.Hosts[chief.person().host].HomeDir, ".plx", "jobs", "*", "*", "logs", "worker-0.stdout")
	spools, err := filepath.Glob(path)
	if err != nil || len(spools) != 1 {
		return 0, fmt.Errorf("%d spools of the chief's, want 1: %v", len(spools), err)
	}
	text, err := os.ReadFile(spools[0])
	if err != nil {
		return 0, err
	}
	found := spoolLine.FindAllStringSubmatch(string(text), -1)
	if len(found) == 0 {
		return 0, fmt.Errorf("no step in %s", spools[0])
	}
	return strconv.Atoi(found[len(found)-1][1])
}

// resume launches a job of the same name, which must resume from a checkpoint. The
// job that ended had reached a step.
func (r *run) resume(ctx context.Context, reached int) error {
	script, err := r.lab.openLog(r.cell.Name() + "-resumed")
	if err != nil {
		return err
	}
	defer script.log.Close() // for a reader only
	j, err := r.lab.start(script, r.lab.launch(r.cell, r.name, fast)...)
	if err != nil {
		return err
	}
	code, err := j.wait(ctx)
	if err != nil {
		return fmt.Errorf("the next launch: %w", err)
	}
	lines, _ := script.so()
	next := measure(lines, time.Now())
	r.sample.resume(reached, next)
	switch {
	case code != 0:
		return fmt.Errorf("the next launch: exit status %d: %s", code, last(lines))
	case next.Resumed < 0 || r.sample.Redone > 3*checkpointEvery:
		return fmt.Errorf("the next launch went on after %d steps, there had been %d", next.Resumed, reached+1)
	case next.Digest != r.lab.digest:
		return fmt.Errorf("the next launch: the weights are not those without the fault: digest %q, want %q", next.Digest, r.lab.digest)
	}
	return r.nothingLeft(ctx, lease)
}
