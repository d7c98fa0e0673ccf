// Package telemetry records the steps of a training: as summaries, which the
// chief writes, and as a timeline of chosen steps, which every worker writes.
//
//	r, err := telemetry.Open(telemetry.Config{...})
//	r.Before(step)
//	... r.Ready(replica, name, i), r.Computed(replica, virtualWorker, begin)
//	err = r.After(scalars, rows, timing, histograms)
//	r.Evaluated(step, rows, loss, metrics)
//	err = r.Close(steps)
//
// Package summary writes the one, package timeline the other.
//
// # What it refuses
//
// It measures nothing that it is not told, and changes nothing of a step.
package telemetry

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/config"
	"github.com/plx-run/plx/trainer/summary"
	"github.com/plx-run/plx/trainer/timeline"
)

// maxEvents bounds a timeline in memory.
const maxEvents = 1 << 20

// Recorder records the steps of one worker.
type Recorder struct {
	config    *config.Effective
	task      cluster.Task
	logf      func(slog.Level, string, ...any)
	summaries *summary.Writer    // nil unless this worker is the chief and --summary-dir is set
	last      *summary.Scalars   // of the last step, if no summary has them yet
	next      uint64             // number of the first step that the next summary can be of
	test      evaluation         // what the program has evaluated since the last step
	profile   timeline.Steps     // steps of the timeline; nil: there is none
	trace     *timeline.Recorder // records the timeline; nil: there is none
	marked    time.Time          // when the pace was logged last, or the first step began
	markedAt  int                // number of steps taken then
	first     atomic.Int64       // when the step's first gradient was complete, in Unix nanoseconds; 0 means that none is
}

// Timing are the moments of a step.
type Timing struct {
	Begin    time.Time
	Pulled   time.Time // the rows of tables have come
	Computed time.Time // all gradients are complete
	End      time.Time // the variables are updated
}

// Open opens the files that the flags ask for.
func Open(c *config.Effective, task cluster.Task, logf func(slog.Level, string, ...any)) (r *Recorder, err error) {
	r = &Recorder{config: c, task: task, logf: logf}
	if r.profile, err = c.Profile(task.Index); err != nil {
		return nil, err
	}
	if r.profile != nil {
		if err := os.MkdirAll(c.ProfileDir, 0o755); err != nil {
			return nil, fmt.Errorf("--profile-dir: %w", err)
		}
		r.trace = timeline.New(maxEvents)
	}
	if task.IsChief() && c.SummaryDir != "" {
		if r.summaries, err = summary.Open(c.SummaryDir); err != nil {
			return nil, fmt.Errorf("--summary-dir: %w", err)
		}
		logf(cluster.VerboseLevel, "summaries go to %s", Whole(c.SummaryDir))
	}
	return r, nil
}

// Whole is an absolute path: a relative one is below the task's own folder.
func Whole(path string) string {
	if whole, err := filepath.Abs(path); err == nil {
		return whole
	}
	return path
}

// Trace is the recorder of the timeline; nil: none is recorded.
func (r *Recorder) Trace() *timeline.Recorder { return r.trace }

// Before begins a step.
func (r *Recorder) Before(step int) {
	r.first.Store(0)
	if r.trace != nil {
		r.trace.Record(r.profile.Contains(uint64(step)))
	}
}

// Ready notes that a replica has completed gradient i. From now on it is on its
// way to its shard holder. name describes it.
func (r *Recorder) Ready(replica int, name func(i int) string, i int) {
	if r.summaries == nil && !r.trace.Enabled() {
		return
	}
	now := time.Now()
	r.first.CompareAndSwap(0, now.UnixNano())
	if r.trace.Enabled() {
		r.trace.Instant(track(replica), "gradient of "+name(i), now)
	}
}

// Computed notes that a replica has computed a virtual worker.
func (r *Recorder) Computed(replica, vw int, begin time.Time) {
	if r.trace.Enabled() {
		r.trace.Span(track(replica), fmt.Sprintf("virtual worker %d", vw), begin, time.Now())
	}
}

// track is the line of a replica in a timeline.
func track(replica int) string { return fmt.Sprintf("replica %d", replica) }

// After ends a step over so many rows. The recorder adds to the step's numbers how
// long its parts took. It calls histograms for a summary that is due.
func (r *Recorder) After(s summary.Scalars, rows int, t Timing, histograms func() ([]summary.Histogram, error)) (err error) {
	if r.trace.Enabled() {
		r.trace.Span("step", fmt.Sprintf("step %d", s.Step), t.Begin, t.End, "loss", s.Loss)
	}
	r.pace(int(s.Step)+1, t)
	if r.summaries == nil {
		return nil
	}
	s.SamplesPerSecond = float64(rows) / t.End.Sub(t.Begin).Seconds()
	s.Compute, s.Wait = t.Computed.Sub(t.Pulled), t.Pulled.Sub(t.Begin)+t.End.Sub(t.Computed)
	if first := r.first.Load(); first > 0 { // gradients and values travelled from then on, in part while others were computed
		s.Communication = t.End.Sub(time.Unix(0, first))
	}
	if err := r.test.write(r.config.SummaryDir); err != nil {
		return err
	}
	if r.last = &s; s.Step < r.next {
		return nil
	}
	every := uint64(r.config.SummaryEverySteps)
	r.next = (s.Step/every + 1) * every
	if s.Histograms, err = histograms(); err != nil {
		return err
	}
	r.last = nil
	return r.summaries.Step(s)
}

// paceTime is how often the chief logs how fast steps are.
const paceTime = 30 * time.Second

// pace logs the steps per second, now and then.
func (r *Recorder) pace(step int, t Timing) {
	if !r.task.IsChief() {
		return
	}
	if r.marked.IsZero() {
		r.marked, r.markedAt = t.Begin, step-1
	}
	if past := t.End.Sub(r.marked); past >= paceTime {
		r.logf(slog.LevelInfo, "step %d: %.3g steps per second", step, float64(step-r.markedAt)/past.Seconds())
		r.marked, r.markedAt = t.End, step
	}
}

// Close writes what is left, after so many steps.
func (r *Recorder) Close(steps int) error {
	var errs []error
	if r.last != nil {
		errs = append(errs, r.summaries.Step(*r.last))
	}
	if r.summaries != nil {
		errs = append(errs, r.summaries.Close(), r.test.write(r.config.SummaryDir), r.test.close())
	}
	if r.trace != nil {
		errs = append(errs, r.save(steps))
	}
	return errors.Join(errs...)
}

func (r *Recorder) save(steps int) error {
	path := filepath.Join(r.config.ProfileDir, fmt.Sprintf("timeline-%s-%d.json", r.task.Role, r.task.Index))
	host, err := os.Hostname()
	if err != nil {
		host = "?" // a name for the reader alone
	}
	if n := r.trace.Dropped(); n > 0 {
		r.logf(slog.LevelWarn, "the timeline was full: %d events are not in it", n)
	}
	if uint64(steps) <= r.profile.First() {
		r.logf(slog.LevelWarn, "--profile-steps %s: only %d steps were taken, the timeline is empty", r.config.ProfileSteps, steps)
	}
	r.logf(slog.LevelInfo, "the timeline is in %s", Whole(path))
	return r.trace.Save(path, timeline.Process{Name: r.task.String(), ID: r.task.Index, Host: host})
}
