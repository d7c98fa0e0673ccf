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

// reports is what a host keeps of the metrics of a job.
type reports struct {
	histories map[cluster.Task]*metrics.History
	damaged   []error // of files that cannot be read
}

// reportsOn reads what a host keeps. If nothing of the job is left the error is hosts.ErrForgotten.
func reportsOn(ctx context.Context, a *hosts.AgentHost) (r reports, err error) {
	kept, err := keptOn(ctx, a, protocol.MaxKept, false)
	if err != nil {
		return r, err
	}
	all, damaged := histories(kept)
	r.histories = map[cluster.Task]*metrics.History{}
	for name, h := range all {
		if task, err := cluster.ParseTask(name); err == nil { // else it is the host's
			r.histories[task] = h
		}
	}
	for _, text := range damaged {
		r.damaged = append(r.damaged, a.Named(errors.New(text)))
	}
	return r, nil
}

// noMetrics is the error of a job whose tasks have reported nothing.
func noMetrics(job string) error {
	return exit.WithHint(fmt.Errorf("job %s: its tasks have reported no metrics, or a plx that kept none ran it", job),
		"docs/launching.md lists the lines that plx understands; --metric of plx launch names others")
}

// onlyForgotten reports whether all that an error of hosts.Each says is that nothing of the job is left.
func onlyForgotten(err error) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return !slices.ContainsFunc(joined.Unwrap(), func(err error) bool { return !onlyForgotten(err) })
	}
	return errors.Is(err, hosts.ErrForgotten)
}

// stepped returns values with a step, unless they have one: plx knows that of its own trainer.
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

// point is a line of plx metrics --json.
type point struct {
	Time   string          `json:"time"`
	Host   string          `json:"host"`
	Task   string          `json:"task"`
	Metric string          `json:"metric"`
	Step   *int64          `json:"step,omitempty"` // nil: the task had reported none
	Value  metrics.Number  `json:"value"`
	Min    *metrics.Number `json:"min,omitempty"` // of the values that the point stands for; nil: of one
	Max    *metrics.Number `json:"max,omitempty"`
	at     time.Time
}

// printHistory prints what the hosts keep of each task, in the order of time. A job that runs is
// saved every few seconds.
func (j *Job) printHistory(ctx context.Context, to io.Writer) error {
	asking, cancel := within(ctx, lookTime)
	defer cancel()
	all := make([]reports, len(j.agents)) // also of hosts that have left
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

// pointsOf are the points of a task on a host, those of a name together.
func pointsOf(host string, task cluster.Task, h *metrics.History) (all []point) {
	for _, name := range h.Names() {
		for _, p := range h.Points(name) {
			one := point{Time: p.Time.UTC().Format("2006-01-02T15:04:05.000Z"), Host: host, Task: task.String(), Metric: name, Value: p.Last, at: p.Time}
			if p.Step >= 0 {
				one.Step = &p.Step
			}
			if cmp.Compare(p.Min, p.Last) != 0 || cmp.Compare(p.Max, p.Last) != 0 { // NaN is equal to itself here
				one.Min, one.Max = &p.Min, &p.Max
			}
			all = append(all, one)
		}
	}
	return all
}
