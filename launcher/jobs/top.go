package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/plx-run/plx/internal/plural"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/live"
	"github.com/plx-run/plx/launcher/metrics"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/launcher/top"
	"github.com/plx-run/plx/logs"
	"github.com/plx-run/plx/trainer/cluster"
)

const (
	// pollInterval is the interval at which Top polls the hosts.
	pollInterval = protocol.SampleEvery
	// topLines is how many existing lines of each log stream Top loads at its
	// start.
	topLines = 100
)

// Top shows a job on the whole terminal until the user leaves the view. The
// job does not end when the user leaves, and the view stays open when the job
// ends. keys is the keyboard input.
func Top(ctx context.Context, q Query, keys io.Reader) error {
	if err := canDraw(q.Terminal); err != nil {
		return err
	}
	q.Printer = q.printer()
	j, err := q.open(ctx, true)
	if err != nil {
		return err
	}
	defer j.close()
	agents := j.present()
	// Connect before the view is shown, because SSH may ask for a password.
	err = hosts.Each(ctx, agents, func(_ int, a *hosts.AgentHost) error {
		ctx, cancel := within(ctx, askTime)
		defer cancel()
		_, err := a.State(ctx)
		return err
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		j.printer.Error(err)
	}
	line := j.newLine()
	return show(ctx, j.printer, top.Config{Title: cmp.Or(j.Name, j.Job), Line: line, Colour: q.Terminal.StdoutColour}, keys, q.Terminal.Stdout,
		func(ctx context.Context, view *top.View) { j.feed(ctx, agents, line, view) },
		func(ctx context.Context, view *top.View) { j.pollUntil(ctx, agents, line, view) })
}

// feed shows the job's log lines in the view, and at the end how the job
// ended.
func (j *Job) feed(ctx context.Context, agents []*hosts.AgentHost, line *live.Line, view *top.View) {
	_, err := j.print(ctx, agents, logs.Request{TailLines: topLines, Follow: true}, logs.Options{Verbose: true}, line)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		j.printer.Error(err)
	}
	asking, cancel := within(ctx, askTime)
	defer cancel()
	switch state, err := j.chief().State(asking); {
	case err != nil:
		view.End(j.chief().Named(err).Error())
	case state.Verdict != nil:
		view.End(state.Verdict.Reason)
	default:
		view.End("ended without a verdict")
	}
}

// pollUntil polls the hosts every pollInterval and shows the replies in the view,
// until ctx ends.
func (j *Job) pollUntil(ctx context.Context, agents []*hosts.AgentHost, line *live.Line, view *top.View) {
	visits := make([]*hosts.Visitor, len(agents)) // one connection per agent, in the order of agents; nil where there is no connection
	defer closeAll(visits)
	again(ctx, func() {
		shown, tasks := pollOnce(ctx, agents, visits, line)
		view.Set(shown, tasks)
	})
}

// again calls the function poll every pollInterval until ctx ends.
func again(ctx context.Context, poll func()) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		poll()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// pollOnce polls all hosts of a job once, and returns the hosts and tasks to
// show. If visits has no connection to a host, pollOnce opens one and stores
// it there.
func pollOnce(ctx context.Context, agents []*hosts.AgentHost, visits []*hosts.Visitor, line *live.Line) (shown []top.Host, tasks []top.Task) {
	shown = make([]top.Host, len(agents))
	generation := 0
	for i, of := range pollAll(ctx, agents, visits, protocol.ActivityRequest{Waits: true, Host: true, Metrics: true}) {
		shown[i].Name = agents[i].Name()
		if of.err != nil {
			shown[i].Trouble = firstLine(of.err)
			continue
		}
		shown[i].Use, generation = of.seen.Host, max(generation, of.state.Generation)
		running, all := 0, 0
		for _, t := range of.tasks {
			text := stateOf(t)
			one := top.Task{Name: t.Task, Host: t.Host, State: text, Level: taskLevel("STATE", text), Ended: t.Code != nil, Age: time.Duration(t.Age * float64(time.Second))}
			if task, err := cluster.ParseTask(t.Task); err == nil && of.seen.Tasks[task] != nil {
				one.Waits = waiting(of.seen.Tasks[task].Processes)
				one.Computes = one.Waits == computes
			}
			if t.Code == nil && t.PID > 0 {
				running++
			}
			if t.Code == nil || *t.Code != 0 { // do not count a task that has ended with status 0
				all++
			}
			line.Report(t.Task, sampleOf(t.Metrics), of.at)
			tasks = append(tasks, one)
		}
		line.Tasks(i, running, all)
	}
	line.Update(func(s *live.State) { s.Doing, s.Restarts = "running", generation })
	slices.SortFunc(tasks, func(a, b top.Task) int { return compareTasks(a.Name, b.Name) })
	return shown, tasks
}

// hostReply is the reply of one host to a poll.
type hostReply struct {
	state protocol.State
	seen  protocol.ActivityReport
	tasks []taskStatus
	at    time.Time // time at which the reply arrived
	err   error     // why the host has not replied; nil if it has
}

// pollAll polls all hosts of a job once, for at most pollTime. If visits has
// no connection to a host, pollAll opens one and stores it there.
func pollAll(ctx context.Context, agents []*hosts.AgentHost, visits []*hosts.Visitor, m protocol.ActivityRequest) []hostReply {
	ctx, cancel := within(ctx, pollTime)
	defer cancel()
	all := make([]hostReply, len(agents))
	_ = hosts.Each(ctx, agents, func(i int, a *hosts.AgentHost) error { // the error of Each is ignored: it only joins the errors that are in all
		of := &all[i]
		of.state, of.seen, of.err = visit(ctx, a, &visits[i], m)
		if of.err == nil {
			of.at, of.tasks = time.Now(), statuses(a, of.state, of.seen)
		}
		return of.err
	})
	return all
}

// visit sends a request to an agent over the connection *v. If *v is nil,
// visit opens a connection and stores it in *v. After an error, it closes the
// connection and sets *v to nil.
func visit(ctx context.Context, a *hosts.AgentHost, v **hosts.Visitor, m protocol.ActivityRequest) (state protocol.State, seen protocol.ActivityReport, err error) {
	if *v == nil {
		fresh, err := a.Visitor(ctx)
		if err != nil {
			return state, seen, err
		}
		*v = fresh
	}
	if state, seen, err = (*v).Poll(ctx, m); err != nil {
		(*v).Close() // the error of Close is ignored, because the error before it matters more
		*v = nil
	}
	return state, seen, err
}

// closeAll closes all open connections in visits.
func closeAll(visits []*hosts.Visitor) {
	for _, v := range visits {
		if v != nil {
			v.Close() // the error is ignored: all replies have arrived
		}
	}
}

// TopHosts shows the load of hosts, without a job, on the whole terminal until
// the user leaves the view.
func TopHosts(ctx context.Context, q Query, keys io.Reader) error {
	if err := canDraw(q.Terminal); err != nil {
		return err
	}
	printer := q.printer()
	set, err := hosts.Open(ctx, q.Reach, printer)
	if err != nil {
		return errors.Join(err, set.Close())
	}
	defer set.Close() // the error is ignored because no user data was written
	met := make([]bool, len(set.Hosts))
	// Connect before the view is shown, because SSH may ask for a password.
	err = hosts.Each(ctx, set.Hosts, func(i int, h *hosts.Host) error {
		err := h.Survey(ctx)
		met[i] = err == nil
		return err
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil && !slices.Contains(met, true) {
		return err
	}
	if err != nil {
		printer.Error(err)
	}
	return show(ctx, printer, top.Config{Title: plural.Count(len(set.Hosts), "host"), Colour: q.Terminal.StdoutColour}, keys, q.Terminal.Stdout, func(ctx context.Context, view *top.View) {
		again(ctx, func() {
			ctx, cancel := within(ctx, pollTime)
			defer cancel()
			shown := make([]top.Host, len(set.Hosts))
			_ = hosts.Each(ctx, set.Hosts, func(i int, h *hosts.Host) error { // the error of Each is ignored: the view shows the errors
				shown[i].Name = h.Name()
				var err error
				if !met[i] {
					err = h.Survey(ctx)
					met[i] = err == nil
				}
				var use protocol.HostUse
				if err == nil {
					use, err = h.Agent().Use(ctx)
				}
				if err != nil {
					met[i], shown[i].Trouble = false, firstLine(err)
					return err
				}
				shown[i].Use = &use
				return nil
			})
			view.Set(shown, nil)
		})
	})
}

// canDraw returns an error if standard output is not a terminal on which plx
// can move the cursor.
func canDraw(t console.Terminal) error {
	if t.StdoutTTY && !t.Dumb {
		return nil
	}
	return exit.Mistake(errors.New("plx top needs a terminal that it can draw on"), "plx status --json and plx logs -f print the same for other outputs")
}

// show runs the view until the user leaves it. Meanwhile, each function in
// feeds runs in the background, and the printer's messages appear as lines in
// the view.
func show(ctx context.Context, printer *console.Printer, cfg top.Config, keys io.Reader, out io.Writer, feeds ...func(context.Context, *top.View)) error {
	view := top.New(cfg)
	defer printer.Display().Divert(view)()
	viewed, leave := context.WithCancel(ctx)
	var working sync.WaitGroup
	for _, feed := range feeds {
		working.Go(func() { feed(viewed, view) })
	}
	err := view.Run(ctx, keys, out)
	leave()
	working.Wait()
	return err
}

// sampleOf converts metrics that an agent collected to a sample, ordered by
// name. Most values come from the program's output. Others, such as the step
// count, may come directly from plx's trainer.
func sampleOf(values map[string]metrics.Number) (s metrics.Sample) {
	for name, n := range values {
		s = append(s, metrics.Value{Name: name, Number: n})
	}
	slices.SortFunc(s, func(a, b metrics.Value) int { return cmp.Compare(a.Name, b.Name) }) // a fixed order, so that the same metric is shown first each time
	return s
}

// firstLine returns the first line of the error's text.
func firstLine(err error) string {
	first, _, _ := strings.Cut(err.Error(), "\n")
	return first
}

// computes is what the function waiting returns for a task that waits for
// nothing.
const computes = "it computes"

// waiting describes what the first thread of a task waits for. If the process
// waits for its child process, waiting describes the child's first thread.
func waiting(processes []protocol.Process) string {
	for i := len(processes) - 1; i >= 0; i-- {
		threads := processes[i].Threads
		if len(threads) == 0 || threads[0].Wait == protocol.OnChild && i > 0 {
			continue
		}
		switch t := threads[0]; t.Wait {
		case protocol.Runs:
			return computes
		case protocol.Sleeps:
			return "it sleeps"
		case protocol.OnRead, protocol.OnPoll, protocol.OnWrite:
			if t.What != "" {
				return "it waits for " + t.What
			}
			return fmt.Sprintf("it waits for a pipe or socket (%s)", t.Wait)
		case protocol.InKernel:
			return fmt.Sprintf("it waits in the kernel (%s)", t.Where)
		default:
			return fmt.Sprintf("it waits: %s", t.Wait)
		}
	}
	return ""
}
