package jobs

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/metrics"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// reports has the metrics that one host has stored about a job's tasks.
type reports struct {
	histories map[cluster.Task]*metrics.History
	damaged   []error // one error for each metrics file that cannot be read
}

// reportsOn reads the metrics that a host has stored about the tasks of a job.
// The AgentHost a names the host and the job. The error is hosts.ErrNoState if
// the host has no files of the job any more.
func reportsOn(ctx context.Context, a *hosts.AgentHost) (r reports, err error) {
	kept, err := keptOn(ctx, a, protocol.MaxKept, false)
	if err != nil {
		return r, err
	}
	all, damaged := histories(kept)
	r.histories = map[cluster.Task]*metrics.History{}
	for name, h := range all {
		if task, err := cluster.ParseTask(name); err == nil { // skip other names, such as that of the host's own metrics
			r.histories[task] = h
		}
	}
	for _, text := range damaged {
		r.damaged = append(r.damaged, a.Named(errors.New(text)))
	}
	return r, nil
}

// noMetrics returns the error for a job whose tasks have reported no metrics.
func noMetrics(job string) error {
	return exit.WithHint(fmt.Errorf("job %s: its tasks have reported no metrics, or an old plx ran it, which stored none", job),
		"docs/launching.md lists the lines that plx understands; --metric of plx launch names others")
}

// onlyForgotten reports whether err, an error of hosts.Each, consists only of
// hosts.ErrNoState: hosts that have no files of the job any more.
func onlyForgotten(err error) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return !slices.ContainsFunc(joined.Unwrap(), func(err error) bool { return !onlyForgotten(err) })
	}
	return errors.Is(err, hosts.ErrNoState)
}

// stepped adds the metric "step" with the value step to values, unless values
// contain a step already. plx's trainer reports its steps to plx even if the
// program prints none.
func stepped(values map[string]metrics.Number, step int64) map[string]metrics.Number {
	if _, has := values[metrics.Step]; has || step == 0 {
		return values
	}
	all := maps.Clone(values)
	if all == nil {
		all = map[string]metrics.Number{}
	}
	all[metrics.Step] = metrics.Number(step)
	return all
}

// point is one output line of plx metrics --json: a metric's value at one
// time.
type point struct {
	Time   string          `json:"time"`
	Host   string          `json:"host"`
	Task   string          `json:"task"`
	Metric string          `json:"metric"`
	Step   *int64          `json:"step,omitempty"` // training step of the value; nil if the task had reported no step
	Value  metrics.Number  `json:"value"`
	Min    *metrics.Number `json:"min,omitempty"` // smallest of the values that this point summarizes; nil if all are equal to Value
	Max    *metrics.Number `json:"max,omitempty"`
	at     time.Time
}

// printHistory prints the stored metrics of each task, ordered by time. While
// a job runs, its agents (plx's process on each host) write new values to disk
// every few seconds. The newest values may therefore be missing.
func (j *Job) printHistory(ctx context.Context, to io.Writer) error {
	asking, cancel := within(ctx, pollTime)
	defer cancel()
	all := make([]reports, len(j.agents)) // includes hosts that have left the job, because they still store its metrics
	err := hosts.Each(asking, j.agents, func(i int, a *hosts.AgentHost) (err error) {
		all[i], err = reportsOn(asking, a)
		return err
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	points := map[cluster.Task][]point{}
	for i, a := range j.agents {
		for _, damage := range all[i].damaged {
			j.printer.Error(damage)
		}
		for task, h := range all[i].histories {
			points[task] = append(points[task], pointsOf(a.Name(), task, h)...)
		}
	}
	if len(points) == 0 && err == nil {
		return noMetrics(j.Job)
	}
	for _, task := range slices.SortedFunc(maps.Keys(points), func(a, b cluster.Task) int { return compareTasks(a.String(), b.String()) }) {
		slices.SortStableFunc(points[task], func(a, b point) int { return a.at.Compare(b.at) })
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		for _, p := range points[task] {
			if err := encoder.Encode(p); err != nil {
				return fmt.Errorf("write the metrics: %w", err)
			}
		}
		if _, err := to.Write(text.Bytes()); err != nil {
			return err
		}
	}
	if err != nil {
		return fmt.Errorf("job %s: %w", j.Job, err)
	}
	return nil
}

// pointsOf returns the points of a task on a host, grouped by the metric's
// name.
func pointsOf(host string, task cluster.Task, h *metrics.History) (all []point) {
	for _, name := range h.Names() {
		for _, p := range h.Points(name) {
			one := point{Time: p.Time.UTC().Format("2006-01-02T15:04:05.000Z"), Host: host, Task: task.String(), Metric: name, Value: p.Last, at: p.Time}
			if p.Step >= 0 {
				one.Step = &p.Step
			}
			if cmp.Compare(p.Min, p.Last) != 0 || cmp.Compare(p.Max, p.Last) != 0 { // cmp.Compare treats two NaN as equal, unlike !=
				one.Min, one.Max = &p.Min, &p.Max
			}
			all = append(all, one)
		}
	}
	return all
}
