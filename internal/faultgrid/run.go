package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/plx-run/plx/internal/testhosts"
)

// Sample is what became of one cell.
type Sample struct {
	Cell    string  `json:"cell"`
	Outcome outcome `json:"outcome"` // that was wanted
	Began   string  `json:"began"`
	Commit  string  `json:"commit"`
	Seed    uint64  `json:"seed"`
	Target  int     `json:"target"` // the step behind which the fault was to come
	Proof   string  `json:"proof"`  // that it came
	measures
	Code   int     `json:"code"`  // plx's exit status
	Ended  float64 `json:"ended"` // seconds from the fault until nothing of a job that ends was left
	Said   string  `json:"said"`  // the line in which plx names it
	Took   float64 `json:"took"`
	Failed string  `json:"failed,omitempty"`
}

// run is a cell that is tried.
type run struct {
	*bench
	cell    Cell
	inject  injection
	script  *transcript
	name    string // the job's
	id      string // of a detached one
	job     *job
	scaling *scaling // nil: the job is not scaled
	stopped []testhosts.Process
	struck  time.Time
	sample  *Sample
}

func (r *run) host() *testhosts.Host { return r.cluster.Hosts[r.cell.Victim.host()] }

// limit bounds one cell, with all that it may wait for.
const limit = 3 * time.Minute

// try tries a cell.
func (b *bench) try(ctx context.Context, c Cell) (s Sample) {
	began := time.Now()
	s = Sample{Cell: c.Name(), Outcome: c.promise().outcome, Began: began.UTC().Format(time.RFC3339), Commit: b.results.Machine.Commit,
		Seed: b.seed, Target: c.target(b.seed), measures: unmeasured}
	log, err := b.openLog(c.Name())
	if err != nil {
		s.Failed = err.Error()
		return s
	}
	defer log.Close()
	r := &run{bench: b, cell: c, inject: c.injection(), script: newTranscript(log), sample: &s,
		name: "grid-" + strings.ReplaceAll(c.Name(), "/", "-")}
	bounded, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the cell took more than %v", limit))
	defer cancel()
	err = r.all(bounded)
	err = errors.Join(err, r.clean(ctx))
	if err != nil {
		s.Failed = clip(err.Error())
	}
	s.Took = time.Since(began).Seconds()
	return s
}

func (r *run) all(ctx context.Context) error {
	if err := r.begin(ctx); err != nil {
		return err
	}
	if !r.script.await(ctx, r.job.ended, reached(r.sample.Target)) {
		return fmt.Errorf("it did not come to step %d", r.sample.Target)
	}
	r.struck = time.Now()
	proof, err := r.inject.strike(ctx, r)
	if err != nil {
		return fmt.Errorf("the fault: %w", err)
	}
	r.sample.Proof = proof
	if r.inject.then != nil {
		more, err := r.inject.then(ctx, r)
		if err != nil {
			return fmt.Errorf("the second fault: %w", err)
		}
		r.sample.Proof += "; then " + more
	}
	if r.cell.promise().outcome == ends {
		return r.judgeEnd(ctx)
	}
	return r.judgeSurvival(ctx)
}

// clip bounds what is said of a cell that has failed.
func clip(text string) string {
	const most = 1000
	if len(text) > most {
		text = text[:most] + " [...]"
	}
	return text
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
		r.job, r.id, err = r.detached(ctx, r.script, r.launch(r.cell, r.name, r.cell.pace(), append(more, "--detach")...))
		return err
	}
	r.job, err = r.start(r.script, r.launch(r.cell, r.name, r.cell.pace(), more...)...)
	return err
}

// undo takes the fault back, once.
func (r *run) undo(ctx context.Context) error {
	after := r.inject.after
	r.inject.after = nil
	if after == nil || r.struck.IsZero() && r.inject.before == nil {
		return nil
	}
	return after(ctx, r)
}

// clean ends what is left, so that no cell suffers from the one before.
func (r *run) clean(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err := r.undo(ctx)
	for _, j := range r.started {
		j.stop()
	}
	r.started = nil
	for _, h := range r.cluster.Hosts {
		err = errors.Join(err, emptied(ctx, h))
	}
	return err
}

// emptied ends what is left on a host and removes jobs and checkpoints.
func emptied(ctx context.Context, h *testhosts.Host) error {
	brief, cancel := context.WithTimeout(ctx, 2*lease)
	defer cancel()
	if h.AwaitIdle(brief) != nil {
		h.PowerOff()
		h.PowerOn()
	}
	_, err := h.Command(ctx, "sh", "-c", "rm -rf ~/.plx/jobs ~/.plx/ckpt "+triggers+"*").CombinedOutput()
	return err
}

// nothingLeft fails where a process of the job is left on a host or here.
func (r *run) nothingLeft(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var errs []error
	for _, h := range r.cluster.Hosts {
		errs = append(errs, h.AwaitIdle(ctx))
	}
	return errors.Join(errs...)
}

func (r *run) launchersGone() error {
	left, err := r.left()
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("processes of the launcher's are left: %s", strings.Join(left, "; "))
	}
	return err
}

// reference trains without a fault.
func (b *bench) reference(ctx context.Context, arch string) (Reference, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	log, err := b.openLog(arch)
	if err != nil {
		return Reference{}, err
	}
	defer log.Close()
	r := &run{bench: b, cell: Cell{Arch: arch}, script: newTranscript(log), name: "grid-" + arch}
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

// last are the last few lines, for an error.
func last(lines []line) string {
	var text []string
	for _, l := range lines[max(0, len(lines)-12):] {
		text = append(text, l.text)
	}
	return strings.Join(text, " / ")
}
