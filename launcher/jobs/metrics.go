package jobs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/live"
	"github.com/plx-run/plx/launcher/openmetrics"
	"github.com/plx-run/plx/launcher/protocol"
)

// MetricsConfig selects a job and how Metrics prints its metrics.
type MetricsConfig struct {
	Query
	Listen string // address of the HTTP server for OpenMetrics; if empty, Metrics prints the metrics once
	JSON   bool   // print the stored history of each task as JSON lines
}

// Metrics prints or serves the metrics of a job in a machine-readable format.
// If the job has ended, these are its last values. With cfg.Listen, Metrics
// serves them over HTTP until ctx ends.
func Metrics(ctx context.Context, cfg MetricsConfig) error {
	var listener net.Listener
	if cfg.Listen != "" {
		var err error
		if listener, err = listen(ctx, cfg.Listen); err != nil {
			return err
		}
		defer listener.Close() // the error is ignored: Serve may have closed the listener already
	}
	j, err := cfg.open(ctx, false)
	if err != nil {
		return err
	}
	defer j.close()
	if cfg.JSON {
		return j.printHistory(ctx, cfg.Terminal.JSON())
	}
	p := newPoller(j)
	defer func() { closeAll(p.visits) }()
	first := p.poll(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, err := range p.failed {
		j.printer.Error(err)
	}
	if listener == nil {
		if !slices.ContainsFunc(first.Hosts, func(h openmetrics.Host) bool { return h.Up }) && !p.ended {
			return fmt.Errorf("job %s: none of its hosts replied", j.Job)
		}
		var text strings.Builder
		if err := openmetrics.Write(&text, first); err != nil {
			return err
		}
		return cfg.Terminal.Text(text.String())
	}
	j.printer.Printf("metrics of job %s: http://%s%s (Ctrl-C ends this, not the job)", j.Job, listener.Addr(), openmetrics.Path)
	return p.serve(ctx, listener, first)
}

// listen opens the address of --listen. The address must name an interface,
// because anyone who reaches the port can read the metrics without a password.
// 0.0.0.0 means all interfaces.
func listen(ctx context.Context, addr string) (net.Listener, error) {
	const hint = "--listen 127.0.0.1:9400 serves only this machine; 0.0.0.0:9400 serves every machine that can connect, without a password"
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, exit.Mistake(fmt.Errorf("--listen %s: want an address and a port", addr), hint)
	}
	if host == "" {
		return nil, exit.Mistake(fmt.Errorf("--listen %s: it names no address", addr), hint)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, exit.Mistake(fmt.Errorf("--listen %s: the address is in use", addr), "take another port, or 0 for a free one: --listen %s", net.JoinHostPort(host, "0"))
	case err != nil:
		return nil, exit.Mistake(fmt.Errorf("--listen %s: %w", addr, err), hint)
	}
	return l, nil
}

// poller polls the hosts of a job for its metrics. Only one goroutine at a time
// may use it.
type poller struct {
	job    *Job
	agents []*hosts.AgentHost
	visits []*hosts.Visitor
	line   *live.Line // computes steps per second from successive polls

	newest openmetrics.Job
	tasks  map[taskAt]openmetrics.Task // each task's values at the last poll, with the host on which it ran
	ended  bool                        // true once the job has ended
	done   bool                        // the job has ended and all hosts have replied with their stored metrics
	failed []error                     // errors of the last poll, with the names of the hosts
}

// taskAt identifies a task on one host: after a restart, another host may run
// a task of the same name.
type taskAt struct{ task, host string }

func newPoller(j *Job) *poller {
	agents := j.present()
	return &poller{job: j, agents: agents, visits: make([]*hosts.Visitor, len(agents)), line: j.newLine(), ended: j.Verdict != nil, tasks: map[taskAt]openmetrics.Task{}}
}

// serve polls the hosts every pollInterval and replies to HTTP requests with the
// values of the newest poll, until ctx ends.
func (p *poller) serve(ctx context.Context, l net.Listener, first openmetrics.Job) error {
	var newest atomic.Pointer[openmetrics.Job]
	newest.Store(&first)
	asking, cancel := context.WithCancel(ctx)
	var working sync.WaitGroup
	working.Go(func() {
		again(asking, func() {
			now := p.poll(asking)
			newest.Store(&now)
		})
	})
	err := openmetrics.Serve(ctx, l, openmetrics.Handler(func() openmetrics.Job { return *newest.Load() }))
	cancel()
	working.Wait()
	return err
}

// poll polls all hosts once and returns the job's metrics. A host that does
// not reply is marked as down, and its tasks keep the values of the last poll.
// If the job has ended, poll reads the metrics that the hosts have stored.
func (p *poller) poll(ctx context.Context) openmetrics.Job {
	if p.done {
		return p.newest
	}
	j := p.job
	now := openmetrics.Job{ID: j.Job, Name: j.Name, Created: j.Created, State: "running", PolledAt: time.Now(), Generation: p.newest.Generation}
	up := make([]openmetrics.Host, len(p.agents))
	for i, a := range p.agents {
		up[i].Name = a.Name()
	}
	p.failed = nil
	if p.ended || !p.pollRunning(ctx, &now, up) && ctx.Err() == nil {
		p.setState(ctx, &now)
	}
	if p.ended {
		p.readEnded(ctx, up)
	}
	now.Hosts = up
	for _, t := range p.tasks {
		now.Tasks = append(now.Tasks, t)
	}
	slices.SortFunc(now.Tasks, func(a, b openmetrics.Task) int { return compareTasks(a.Name, b.Name) })
	p.newest = now
	return now
}

// setState sets the job's state in now. poll calls setState if the chief's agent
// does not confirm that the job runs.
func (p *poller) setState(ctx context.Context, now *openmetrics.Job) {
	row := newRow(ctx, &p.job.Record, p.job.printer, p.job.state)
	now.State, now.Code, now.Generation = row.State, row.Code, max(now.Generation, row.Generation)
	p.ended = !row.runs()
}

// pollRunning polls the agents of a running job for their tasks' metrics. It
// returns false if the host of the chief (worker:0), which knows the job's
// state, did not reply.
func (p *poller) pollRunning(ctx context.Context, now *openmetrics.Job, up []openmetrics.Host) (runs bool) {
	runs = true
	for i, of := range pollAll(ctx, p.agents, p.visits, protocol.ActivityRequest{Host: true, Metrics: true}) {
		if of.err != nil {
			p.failed = append(p.failed, p.agents[i].Named(of.err))
			runs = runs && p.agents[i] != p.job.chief()
			continue
		}
		up[i].Up, up[i].Use = true, of.seen.Host
		now.Generation = max(now.Generation, of.state.Generation)
		for key := range p.tasks { // tasks of an earlier generation (run of all tasks) may no longer run on this host
			if _, has := of.state.Tasks[key.task]; key.host == p.agents[i].Name() && !has {
				delete(p.tasks, key)
			}
		}
		for _, t := range of.tasks {
			p.line.Report(t.Task, sampleOf(t.Metrics), of.at)
			p.store(t)
		}
	}
	return runs
}

// store records the state and the metrics of one task of a running job.
func (p *poller) store(t taskStatus) {
	one := openmetrics.Task{Name: t.Task, Host: t.Host, Runs: t.Code == nil && t.PID > 0, Code: t.Code, Values: t.Metrics}
	if one.Runs {
		idle := time.Duration(t.Idle * float64(time.Second))
		one.Age, one.Idle = time.Duration(t.Age*float64(time.Second)), &idle
		one.Rate = p.line.Task(t.Task).Rate
	} else {
		// An agent reports no values for a task that has ended. Keep the
		// values of the last poll.
		one.Values = p.tasks[taskAt{t.Task, t.Host}].Values
	}
	one.Values = stepped(one.Values, t.Step)
	p.tasks[taskAt{t.Task, t.Host}] = one
}

// readEnded reads the metrics of a job that has ended. The hosts have stored
// them.
func (p *poller) readEnded(ctx context.Context, up []openmetrics.Host) {
	p.failed = nil // drop errors of requests to agents: the agents have ended with the job
	closeAll(p.visits)
	clear(p.visits)
	for key, t := range p.tasks {
		t.Runs, t.Age, t.Idle, t.Rate = false, 0, nil, 0
		p.tasks[key] = t
	}
	ctx, cancel := within(ctx, pollTime)
	defer cancel()
	all := make([]reports, len(p.agents))
	states := make([]protocol.State, len(p.agents))
	err := hosts.Each(ctx, p.agents, func(i int, a *hosts.AgentHost) (err error) {
		if all[i], err = reportsOn(ctx, a); err == nil {
			up[i].Up = true
			states[i], err = a.State(ctx)
		}
		return err
	})
	if p.done = err == nil || onlyForgotten(err); err != nil {
		p.failed = append(p.failed, err)
	}
	for i, a := range p.agents {
		for name, now := range states[i].Tasks {
			t := openmetrics.Task{Name: name, Host: a.Name(), Values: stepped(p.tasks[taskAt{name, a.Name()}].Values, now.Step)}
			if now.Exit != nil {
				t.Code = &now.Exit.Code
			}
			p.tasks[taskAt{name, a.Name()}] = t
		}
		for task, history := range all[i].histories {
			key := taskAt{task.String(), a.Name()}
			t := p.tasks[key]
			t.Name, t.Host, t.Values = key.task, key.host, history.Newest()
			p.tasks[key] = t
		}
		p.failed = append(p.failed, all[i].damaged...)
	}
	if p.done && err == nil && !slices.ContainsFunc(all, func(r reports) bool { return len(r.histories) > 0 }) {
		p.failed = append(p.failed, noMetrics(p.job.Job))
	}
}
