package trainer

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/plx-run/plx/trainer/summary"
	"github.com/plx-run/plx/trainer/timeline"
)

// maxEvents bounds a timeline in memory.
const maxEvents = 1 << 20

// hooks is what happens around steps beside the training: summaries and
// timelines.
type hooks struct {
	job       *Job
	summaries *summary.Writer    // the chief's, nil: none asked for
	trace     *timeline.Recorder // nil: none asked for
	first     atomic.Int64       // when the first gradient of the step was ready, in Unix nanoseconds
}

// open makes what the flags ask for.
func (h *hooks) open(r *Replica) (err error) {
	c := &r.job.config
	h.job = r.job
	if r.job.IsChief() && c.exportGraph != "" {
		if err := exportGraph(c.exportGraph, r.lanes[0].model); err != nil {
			return fmt.Errorf("--export-graph: %w", err)
		}
		h.tell("the graph is in", c.exportGraph)
	}
	if c.profileSteps != "" {
		if err := os.MkdirAll(c.profileDir, 0o755); err != nil {
			return fmt.Errorf("--profile-dir: %w", err)
		}
		h.trace = timeline.New(maxEvents)
	}
	if r.job.IsChief() && c.summaries != "" {
		if h.summaries, err = summary.Open(c.summaries, summary.Options{}); err != nil {
			return fmt.Errorf("--summary-dir: %w", err)
		}
		h.tell("summaries go to", c.summaries)
	}
	return nil
}

// tell says where a file is: a relative name is below the task's own folder.
func (h *hooks) tell(what, path string) {
	if whole, err := filepath.Abs(path); err == nil {
		path = whole
	}
	h.job.Logf(slog.LevelInfo, "%s %s", what, path)
}

// before begins a step.
func (h *hooks) before(step int) {
	h.first.Store(0)
	if h.trace != nil {
		h.trace.Record(h.job.config.profile.Contains(uint64(step)))
	}
}

// ready notes that a gradient is there, from now on on its way to the owners.
func (h *hooks) ready(lane int, name func(int) string, i int) {
	if h.summaries == nil && !h.trace.Enabled() {
		return
	}
	now := time.Now()
	h.first.CompareAndSwap(0, now.UnixNano())
	if h.trace.Enabled() {
		h.trace.Instant(fmt.Sprintf("lane %d", lane), "gradient of "+name(i), now)
	}
}

// communicated is how long values travelled in a step that ended at end, from
// the first gradient out to the last value back. Part of it is computing time
// as well.
func (h *hooks) communicated(end time.Time) time.Duration {
	if first := h.first.Load(); first > 0 {
		return end.Sub(time.Unix(0, first))
	}
	return 0
}

// computed notes that a lane has computed a virtual worker.
func (h *hooks) computed(lane, leaf int, begin time.Time) {
	if h.trace.Enabled() {
		h.trace.Span(fmt.Sprintf("lane %d", lane), fmt.Sprintf("virtual worker %d", leaf), begin, time.Now())
	}
}

// after ends a step that was taken.
func (h *hooks) after(r *Replica, result Result, t timing) error {
	if h.trace.Enabled() {
		h.trace.Span("step", fmt.Sprintf("step %d", r.step-1), t.begin, t.end, "loss", result.Loss)
	}
	if h.summaries == nil {
		return nil
	}
	if math.IsNaN(result.Norm) {
		result.Norm = -1 // not measured
	}
	seconds := t.end.Sub(t.begin).Seconds()
	return h.summaries.Step(summary.Scalars{
		Step: uint64(r.step - 1), Loss: result.Loss, LearningRate: result.Rate, GradientNorm: result.Norm,
		SamplesPerSecond: float64(r.settings.batch) / seconds,
		Compute:          t.computed.Sub(t.pulled),
		Communication:    t.communicated,
		Wait:             t.pulled.Sub(t.begin) + t.end.Sub(t.computed),
		Metrics:          result.Metrics,
	})
}

// close writes what is left.
func (h *hooks) close() error {
	var errs []error
	if h.summaries != nil {
		errs = append(errs, h.summaries.Close())
	}
	if h.trace != nil {
		errs = append(errs, h.save())
	}
	return errors.Join(errs...)
}

func (h *hooks) save() error {
	task := h.job.contract.Task
	path := filepath.Join(h.job.config.profileDir, fmt.Sprintf("timeline-%s-%d.json", task.Role, task.Index))
	host, err := os.Hostname()
	if err != nil {
		host = "?" // a name for the reader alone
	}
	if n := h.trace.Dropped(); n > 0 {
		h.job.Logf(slog.LevelWarn, "the timeline was full: %d events are not in it", n)
	}
	if c := h.job.config; uint64(h.job.steps.Load()) <= c.profile.Start {
		h.job.Logf(slog.LevelWarn, "--profile-steps %s: only %d steps were taken, the timeline is empty", c.profileSteps, h.job.steps.Load())
	}
	h.tell("the timeline is in", path)
	return h.trace.Save(path, timeline.Process{Name: task.String(), ID: task.Index, Host: host})
}
