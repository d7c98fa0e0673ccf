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

// askEvery is how often the agents of a job that is followed are asked what runs.
const askEvery = 15 * time.Second

// status shows the status line of a job that is followed until done is called. The line is nil
// if none is shown.
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

// newLine returns a line for the job, which knows the user's patterns.
func (j *Job) newLine() *live.Line {
	patterns, _ := metrics.ParsePatterns(j.Metrics) // of a damaged record: the others count
	line := live.New(patterns)
	line.Update(func(s *live.State) { s.Since = j.Created })
	return line
}

// askAll has the line say what runs on the hosts. A host that gives no answer stays as it was:
// that its logs are cut off is said elsewhere.
func askAll(ctx context.Context, agents []*hosts.AgentHost, line *live.Line) {
	ctx, cancel := within(ctx, lookTime)
	defer cancel()
	restarts := make([]int, len(agents))
	_ = hosts.Each(ctx, agents, func(i int, a *hosts.AgentHost) error { // see above
		state, err := a.State(ctx)
		if err != nil {
			return err
		}
		now, of := 0, 0
		for name, task := range state.Tasks {
			if task.Exit == nil || task.Exit.Code != 0 { // one that is done is not missing
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
