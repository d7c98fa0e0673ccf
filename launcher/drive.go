package launcher

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/plx-run/plx/launcher/driver"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/fetch"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/jobs"
	"github.com/plx-run/plx/launcher/jobstate"
	"github.com/plx-run/plx/launcher/logstream"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/logs"
)

// drive is an attached job that this process drives: it starts the agents, prints the
// logs, and stays until the verdict.
type drive struct {
	launch   *launch
	out      *logstream.Output
	streams  logstream.Streams
	starting chan struct{} // holds one element for each agent that is being started
	members  []*member     // hosts that the job began with, then those that joined
	// layout is where the tasks of the present generation run, as members. Nil: where
	// the first generation began.
	layout []protocol.HostPlan
}

// begin makes a member of each host, and opens the output of the logs.
func (d *drive) begin() {
	opts := logs.Options{Grep: d.launch.cfg.Grep}
	for i, a := range d.launch.agents {
		placed := d.launch.placed.Hosts[i]
		d.members = append(d.members, &member{drive: d, index: i, agent: a, tasks: placed.Specs()})
		opts.Hosts = append(opts.Hosts, a.Name())
		for _, t := range placed.Tasks {
			opts.Tasks = append(opts.Tasks, t.Task.String())
		}
	}
	d.out = logstream.NewOutput(logstream.Config{Terminal: d.launch.cfg.Terminal, Printer: d.launch.printer, Logs: opts, Dir: d.launch.logDir,
		Unread: func() { d.launch.signals.noReader(d.launch.cfg.Grace) }})
}

// run runs the job to its verdict, and returns plx's exit status.
func (d *drive) run(ctx context.Context) (int, error) {
	d.begin()
	stops := d.launch.signals.listen()
	if cause := context.Cause(ctx); cause != nil {
		return exit.Code(cause), errors.Join(cause, d.out.Close(), d.record().Forget())
	}
	var reached []driver.Host
	for _, m := range d.members {
		reached = append(reached, m.host(ctx))
	}
	verdict, err := driver.Run(context.WithoutCancel(ctx), d.launch.plan(), reached, driver.Options{
		Lease: d.launch.cfg.Lease, Stop: stops, Observer: d,
		Join: func(_ int, j protocol.Joining) driver.Host { return d.join(ctx, j) },
	})
	err = errors.Join(err, d.awaitLogs(err, stops), d.out.Close())
	d.launch.report(d.record(), verdict)
	if d.launch.cfg.Fetch != "" {
		d.launch.signals.end()
		err = errors.Join(err, d.fetch(ctx, stops))
	}
	if err != nil {
		d.launch.printer.Error(err)
	}
	if err != nil && verdict.Code == 0 {
		return exit.Code(err), nil
	}
	return verdict.Code, nil
}

// awaitLogs waits for the rest of all logs. It reports a lost host whose logs are not
// complete, and returns the errors of the others: the job's verdict counts. err is the
// driver's: it names agents that were not seen to end.
func (d *drive) awaitLogs(err error, stops <-chan jobstate.StopAsked) error {
	lost := map[*hosts.AgentHost]bool{}
	for _, m := range d.members {
		if m.lost.Load() {
			lost[m.agent] = true
		}
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range joined.Unwrap() {
			var u *driver.UnendedError
			if errors.As(one, &u) {
				lost[d.members[u.Index].agent] = true
			}
		}
	}
	var errs []error
	for _, f := range d.streams.Wait(lost, stops) {
		err := f.Agent.Named(fmt.Errorf("logs: %w", f.Err))
		if d.memberOf(f.Agent).lost.Load() {
			d.launch.printer.Error(err)
			continue
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (d *drive) memberOf(a *hosts.AgentHost) *member {
	for _, m := range d.members {
		if m.agent == a {
			return m
		}
	}
	panic("logs of a host that is no member") // Follow is called for members only
}

// Entered ignores the phases of the job: the driver's notes tell the user enough.
func (d *drive) Entered(protocol.Phase) {}

// Noted prints a line of the driver's.
func (d *drive) Noted(line string) { d.launch.printer.Printf("%s", line) }

// Laid records where the tasks of a new generation run.
func (d *drive) Laid(_ int, layout []protocol.HostPlan) {
	d.layout = layout
	if err := d.record().Save(); err != nil {
		d.launch.printer.Error(err)
	}
}

// record returns what this machine remembers of the job as it is now. The chief is the
// host that runs worker:0.
func (d *drive) record() *jobs.Record {
	r := d.launch.record()
	if len(d.layout) == 0 {
		return r
	}
	r.Restarts, r.Hosts = true, nil
	chief := d.launch.chief()
	for i, h := range d.layout {
		for _, t := range h.Tasks {
			if t.Task.IsChief() {
				chief = i
			}
		}
	}
	known := d.members[:max(len(d.launch.agents), len(d.layout))]
	for i, m := range known {
		var now protocol.HostPlan
		if i < len(d.layout) {
			now = d.layout[i]
		}
		h := m.record(now)
		if i == chief {
			r.Chief = len(r.Hosts)
		}
		if !h.Left || !joinedAgain(known[i+1:], m) {
			r.Hosts = append(r.Hosts, h)
		}
	}
	return r
}

// joinedAgain reports whether m is on the same host as one of the later members.
func joinedAgain(later []*member, m *member) bool {
	for _, other := range later {
		if other.agent.Folder == m.agent.Folder {
			return true
		}
	}
	return false
}

// fetch brings the job's checkpoints to this machine, after its logs are printed. A signal
// of the user ends it.
func (d *drive) fetch(ctx context.Context, stops <-chan jobstate.StopAsked) error {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	done := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(done)
	wg.Go(func() {
		select {
		case stop := <-stops:
			cancel(exit.WithCode(fmt.Errorf("not all checkpoints are fetched: %s; plx fetch %s %s fetches the rest", stop.Reason, d.launch.job, d.launch.cfg.Fetch), stop.Code))
		case <-done:
		}
	})
	var from []*hosts.AgentHost
	for _, m := range d.members {
		from = append(from, m.agent)
	}
	return fetch.Checkpoints(ctx, fetch.Request{Hosts: from, Name: d.launch.checkpoints, Dir: d.launch.cfg.Fetch, Terminal: d.launch.cfg.Terminal, Printer: d.launch.printer})
}
