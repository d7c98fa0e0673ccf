// Package telemetry records the training steps of a worker. The chief (worker
// 0) writes summaries for TensorBoard, if --summary-dir is set. Every worker
// writes a timeline of the steps that --profile-steps lists.
//
//	r, err := telemetry.Open(config, task, logf)
//	r.Before(step)
//	... r.Ready(replica, name, i), r.Computed(replica, virtualWorker, begin)
//	err = r.After(scalars, rows, timing, histograms)
//	r.Evaluated(step, rows, loss, sum, metrics)
//	err = r.Close(steps)
//
// Package summary writes the summary files, and package timeline the
// timelines. Package telemetry takes no measurements apart from what its
// callers report, and does not influence the training.
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

// maxEvents is the largest number of events that a timeline keeps in memory.
const maxEvents = 1 << 20

// Recorder records the training steps of one worker for summaries and
// timelines.
type Recorder struct {
	config    *config.Effective
	task      cluster.Task
	logf      func(slog.Level, string, ...any)
	summaries *summary.Writer    // nil unless this worker is the chief (worker 0) and --summary-dir is set
	last      *summary.Scalars   // report of the last step, if it was not written yet; otherwise nil
	next      uint64             // number of the first step for which the next summary may be written
	test      evaluation         // results of evaluations since the last training step
	profile   timeline.Steps     // steps that the timeline records; nil means no timeline
	trace     *timeline.Recorder // timeline of this worker; nil means no timeline
	pacedAt   time.Time          // when pace last logged the speed; before the first such log line: when the first step began
	pacedStep int                // number of training steps at the time in pacedAt
	first     atomic.Int64       // when the first gradient of the current step was complete, in Unix nanoseconds; 0 means that none is complete yet
}

// Timing holds the times at which the phases of a training step ended.
type Timing struct {
	Begin    time.Time
	Pulled   time.Time // when the rows of embedding tables had arrived
	Computed time.Time // when all gradients were complete
	End      time.Time // when the variables were updated
}

// Open returns a Recorder for this task. It creates the folders and files that
// --profile-dir and --summary-dir name.
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

// Whole returns path as an absolute path, so that a log line also names a file
// in the task's own working directory.
func Whole(path string) string {
	if whole, err := filepath.Abs(path); err == nil {
		return whole
	}
	return path
}

// Trace returns the recorder of this worker's timeline. It is nil if this
// worker writes no timeline.
func (r *Recorder) Trace() *timeline.Recorder { return r.trace }

// Before prepares the Recorder for a step that begins now.
func (r *Recorder) Before(step int) {
	r.first.Store(0)
	if r.trace != nil {
		r.trace.Record(r.profile.Contains(uint64(step)))
	}
}

// Ready records that a replica (copy of the graph) has computed gradient i.
// The worker then sends it to the task that stores the variable. name(i)
// describes the gradient in the timeline.
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

// Computed records that a replica (copy of the graph) has computed the
// gradients of virtual worker vw, which is a part of the batch. begin is when
// the computation began.
func (r *Recorder) Computed(replica, vw int, begin time.Time) {
	if r.trace.Enabled() {
		r.trace.Span(track(replica), fmt.Sprintf("virtual worker %d", vw), begin, time.Now())
	}
}

// track returns the name of the row in which the timeline shows a replica.
func track(replica int) string { return fmt.Sprintf("replica %d", replica) }

// After records the end of a step. rows is the number of rows in the global
// batch. After computes how long the phases of the step took, and writes a
// summary if one is due. It calls histograms only for a summary, because
// computing histograms is slow.
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
	if first := r.first.Load(); first > 0 { // communication begins with the first complete gradient, and overlaps with computation
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

// paceTime is the least time between two log lines about the speed of
// training.
const paceTime = 30 * time.Second

// pace logs the number of steps per second, if the last such line is at least
// paceTime old. Only the chief (worker 0) logs it.
func (r *Recorder) pace(step int, t Timing) {
	if !r.task.IsChief() {
		return
	}
	if r.pacedAt.IsZero() {
		r.pacedAt, r.pacedStep = t.Begin, step-1
	}
	if past := t.End.Sub(r.pacedAt); past >= paceTime {
		r.logf(slog.LevelInfo, "step %d: %.3g steps per second", step, float64(step-r.pacedStep)/past.Seconds())
		r.pacedAt, r.pacedStep = t.End, step
	}
}

// Close writes the last report, the last evaluation and the timeline, and
// closes the files. steps is the number of training steps taken.
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
		host = "?" // the timeline only shows the host's name to the user
	}
	if n := r.trace.Dropped(); n > 0 {
		r.logf(slog.LevelWarn, "the timeline was full: %d events were dropped", n)
	}
	if uint64(steps) <= r.profile.First() {
		r.logf(slog.LevelWarn, "--profile-steps %s: only %d steps were taken, the timeline is empty", r.config.ProfileSteps, steps)
	}
	r.logf(slog.LevelInfo, "the timeline is in %s", Whole(path))
	return r.trace.Save(path, timeline.Process{Name: r.task.String(), ID: r.task.Index, Host: host})
}
