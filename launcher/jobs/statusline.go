package jobs

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/live"
	"github.com/plx-run/plx/launcher/metrics"
)

// askEvery is the interval at which plx asks the agents of a followed job
// which tasks run.
const askEvery = 15 * time.Second

// status shows a status line at the bottom of the terminal while the job's
// logs are followed. The caller must call done to remove the line. The
// returned line is nil if the terminal shows no status line.
func (j *Job) status(ctx context.Context, agents []*hosts.AgentHost) (line *live.Line, done func()) {
	if !j.printer.ShowsStatus() {
		return nil, func() {}
	}
	line = j.newLine()
	ctx, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	asking.Go(func() {
		tick := time.NewTicker(askEvery)
		defer tick.Stop()
		for {
			askAll(ctx, agents, line)
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	hide := j.printer.Status(line.Parts)
	return line, func() {
		cancel()
		hide()
		asking.Wait()
	}
}

// newLine returns a status line for the job. The line recognizes metrics in
// the output by the user's patterns.
func (j *Job) newLine() *live.Line {
	patterns, _ := metrics.ParsePatterns(j.Metrics) // the error is ignored: a damaged pattern in the record only means fewer metrics
	line := live.New(patterns)
	line.Update(func(s *live.State) { s.Since = j.Created })
	return line
}

// askAll updates the status line with the tasks that run on the hosts. If a
// host does not reply, the line keeps the host's previous state. The function
// print reports that the host's logs are interrupted.
func askAll(ctx context.Context, agents []*hosts.AgentHost, line *live.Line) {
	ctx, cancel := within(ctx, pollTime)
	defer cancel()
	restarts := make([]int, len(agents))
	_ = hosts.Each(ctx, agents, func(i int, a *hosts.AgentHost) error { // the error is ignored: for a host that does not reply, the line keeps the previous state
		state, err := a.State(ctx)
		if err != nil {
			return err
		}
		now, of := 0, 0
		for name, task := range state.Tasks {
			if task.Exit == nil || task.Exit.Code != 0 { // do not count a task that has ended with status 0
				of++
			}
			if task.PID > 0 && task.Exit == nil {
				now++
			}
			if task.Step > 0 {
				line.Report(name, metrics.Sample{{Name: metrics.Step, Number: metrics.Number(task.Step)}}, time.Now())
			}
		}
		line.Tasks(i, now, of)
		restarts[i] = state.Generation
		return nil
	})
	line.Update(func(s *live.State) {
		s.Doing, s.Restarts = "running", max(s.Restarts, slices.Max(restarts))
	})
}
