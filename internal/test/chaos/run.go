package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plx-run/plx/internal/test/measured"
	"github.com/plx-run/plx/internal/test/testhosts"
)

// all trains without a fault, then tries the cells one after the other. It saves the
// samples after each.
func (l *lab) all(ctx context.Context) error {
	cells := l.chosen()
	for _, arch := range architectures {
		if !slices.ContainsFunc(cells, func(c Cell) bool { return c.Arch == arch }) {
			continue
		}
		ref, err := l.reference(ctx, arch)
		if err != nil {
			return fmt.Errorf("%s without a fault: %w", arch, err)
		}
		fmt.Fprintf(l.stderr, "%s without a fault: %.1f s\n", arch, ref.Seconds)
		if l.digest == "" {
			l.digest = ref.Digest
		}
		if ref.Digest != l.digest {
			return fmt.Errorf("%s has other weights than %s without a fault", arch, l.results.References[0].Arch)
		}
		l.results.References = append(l.results.References, ref)
	}
	for i, c := range cells {
		s := l.try(ctx, c)
		if err := ctx.Err(); err != nil {
			return err
		}
		l.results.keep(s)
		fmt.Fprintf(l.stderr, "%d of %d: %s\n", i+1, len(cells), s.summary())
		if err := measured.Save(l.samples(), l.results); err != nil {
			return err
		}
	}
	return nil
}

// run is a cell that is tried.
type run struct {
	lab     *lab
	cell    Cell
	inject  injection           // how the fault is brought about
	script  *transcript         // what plx prints
	name    string              // of the job
	id      string              // of a detached job; "": the job is not detached
	job     *job                // the plx that drives or follows the job
	scaling *job                // plx scale; nil: the job is not scaled
	scaled  *transcript         // what plx scale prints; nil: the job is not scaled
	stopped []testhosts.Process // processes of the victim that were signalled last
	struck  time.Time           // when the fault came; zero: not yet
	undone  bool                // the fault was taken back, or that was tried
	proof   string              // how the test saw that the fault came
	said    string              // the line that names the fault; "": the promise wants none
	sample  *Sample             // the result, written meanwhile
}

// host is the victim's.
func (r *run) host() *testhosts.Host { return r.lab.cluster.Hosts[r.cell.Victim.person().host] }

// limit bounds one cell, with all that it may wait for.
const limit = 3 * time.Minute

// try tries a cell.
func (l *lab) try(ctx context.Context, c Cell) (s Sample) {
	began := time.Now()
	s = Sample{Cell: c.Name(), Outcome: c.promise().outcome, Began: began.UTC().Format(time.RFC3339), Commit: l.results.Machine.Commit,
		Seed: l.seed, Target: c.target(l.seed), measures: unmeasured}
	bounded, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the cell took more than %v", limit))
	defer cancel()
	script, err := l.openLog(c.Name())
	if err == nil {
		defer script.log.Close() // for a reader only
		r := &run{lab: l, cell: c, inject: c.injection(), script: script, sample: &s, name: "grid-" + strings.ReplaceAll(c.Name(), "/", "-")}
		err = errors.Join(r.all(bounded), r.clean(ctx))
		s.Proof, s.Said = r.proof, r.said
	}
	if err != nil {
		s.Failed = clip(err.Error())
	}
	s.Took = time.Since(began).Seconds()
	return s
}

// clip bounds the length of the report of a failed cell.
func clip(text string) string {
	const most = 1000
	if len(text) > most {
		text = text[:most] + " [...]"
	}
	return text
}

func (r *run) all(ctx context.Context) error {
	if err := r.begin(ctx); err != nil {
		return err
	}
	if !r.script.await(ctx, r.job.ended, reached(r.sample.Target)) {
		return fmt.Errorf("it did not come to step %d", r.sample.Target)
	}
	r.struck = time.Now()
	inject := r.inject.strike
	if r.inject.then != nil {
		inject = both(inject, r.inject.then)
	}
	var err error
	if r.proof, err = inject(ctx, r); err != nil {
		return fmt.Errorf("the fault: %w", err)
	}
	if r.cell.promise().outcome == ends {
		return r.judgeEnd(ctx)
	}
	return r.judgeSurvival(ctx)
}

// begin launches the job.
func (r *run) begin(ctx context.Context) (err error) {
	if r.inject.before != nil {
		if err := r.inject.before(ctx, r); err != nil {
			return err
		}
	}
	var more []string
	if r.inject.failpoint != "" {
		more = append(more, "--setup", r.inject.setup())
	}
	if r.cell.Victim.detached() {
		r.job, r.id, err = r.lab.detached(ctx, r.script, r.lab.launch(r.cell, r.name, r.cell.pace(), append(more, "--detach")...))
		return err
	}
	r.job, err = r.lab.start(r.script, r.lab.launch(r.cell, r.name, r.cell.pace(), more...)...)
	return err
}

// undo takes the fault back, once.
func (r *run) undo(ctx context.Context) error {
	if r.undone || r.inject.after == nil || r.struck.IsZero() && r.inject.before == nil {
		return nil
	}
	r.undone = true
	return r.inject.after(ctx, r)
}

// clean ends what is left, so that no cell suffers from the one before. It removes
// jobs and checkpoints.
func (r *run) clean(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err := r.undo(ctx)
	r.lab.stopAll()
	for _, h := range r.lab.cluster.Hosts {
		brief, cancel := context.WithTimeout(ctx, 2*lease)
		if h.AwaitIdle(brief) != nil {
			h.PowerOff()
			h.PowerOn()
		}
		cancel()
		_, failed := h.Command(ctx, "sh", "-c", "rm -rf ~/.plx/jobs ~/.plx/ckpt "+triggers+"*").CombinedOutput()
		err = errors.Join(err, failed)
	}
	return err
}

// nothingLeft fails if a process of the job is left on a host after the limit.
func (r *run) nothingLeft(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var errs []error
	for _, h := range r.lab.cluster.Hosts {
		errs = append(errs, h.AwaitIdle(ctx))
	}
	return errors.Join(errs...)
}

// reference trains without a fault.
func (l *lab) reference(ctx context.Context, arch string) (Reference, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	script, err := l.openLog(arch)
	if err != nil {
		return Reference{}, err
	}
	defer script.log.Close() // for a reader only
	r := &run{lab: l, cell: Cell{Arch: arch, Victim: chief}, script: script, name: "grid-" + arch}
	began := time.Now()
	if err := r.begin(ctx); err != nil {
		return Reference{}, err
	}
	code, err := r.job.wait(ctx)
	lines, _ := r.script.so()
	ref := Reference{Arch: arch, Digest: measure(lines, began).Digest, Seconds: time.Since(began).Seconds()}
	if err == nil && (code != 0 || ref.Digest == "") {
		err = fmt.Errorf("without a fault it ended with status %d: %s", code, last(lines))
	}
	return ref, errors.Join(err, r.clean(ctx))
}

// until waits for a condition, ten seconds at most.
func until(ctx context.Context, what string, met func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		if ok, err := met(); ok || err != nil {
			return err
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("not in time: %s", what)
		}
	}
}

// inState waits until processes are in a state; 'X' means gone, and a zombie is gone.
func inState(ctx context.Context, h *testhosts.Host, ps []testhosts.Process, state byte) error {
	return until(ctx, fmt.Sprintf("%v in state %c", ps, state), func() (bool, error) {
		now, err := h.Processes()
		if err != nil {
			return false, err
		}
		return !slices.ContainsFunc(ps, func(p testhosts.Process) bool {
			is := byte('X')
			if i := slices.IndexFunc(now, func(q testhosts.Process) bool { return q.OuterPID == p.OuterPID }); i >= 0 && now[i].State != 'Z' {
				is = now[i].State
			}
			return is != state
		}), nil
	})
}
