package launcher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/internal/plural"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/driver"
	"github.com/plx-run/plx/launcher/entrypoint"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/fetch"
	"github.com/plx-run/plx/launcher/hang"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/jobs"
	"github.com/plx-run/plx/launcher/jobstate"
	"github.com/plx-run/plx/launcher/live"
	"github.com/plx-run/plx/launcher/logstream"
	"github.com/plx-run/plx/launcher/metrics"
	"github.com/plx-run/plx/launcher/notify"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/launcher/provision"
	"github.com/plx-run/plx/launcher/transport"
	"github.com/plx-run/plx/logs"
)

// drive is an attached job that this process drives: it starts the agents, prints the
// logs, and stays until the verdict.
type drive struct {
	launch  *launch
	out     *logstream.Output
	streams logstream.Streams
	turns   chan struct{} // holds one element for each agent that is being started
	members []*member     // hosts that the job began with, then those that joined; none is removed
	// layout is where the tasks of the present generation run, by index into members.
	// Nil: generation 0 still runs, as in launch.placed.
	layout []protocol.HostPlan

	agents *console.Tally // agents that are being started
	away   *console.Tally // hosts that are being dialled again, or were lost
	shown  func()         // ends the display of the present phase; nil: nothing is shown
	phase  protocol.Phase // entered last; empty: none was
	line   *live.Line     // the status line
}

// begin makes a member of each host, and opens the output of the logs.
func (d *drive) begin() (reached []driver.Host) {
	patterns, _ := metrics.ParsePatterns(d.launch.cfg.Metrics) // the command has refused wrong ones
	d.line = live.New(patterns)
	d.agents = d.launch.printer.NewTally("starting agents", len(d.launch.agents))
	d.away = d.launch.printer.NewTally("no connection to", 0)
	opts := logs.Options{Grep: d.launch.cfg.Grep, Verbose: d.launch.cfg.Verbose, Timestamps: d.launch.cfg.Stamps, NoPrefix: d.launch.cfg.NoPrefix, Only: d.launch.cfg.Show, Fold: !d.launch.cfg.Verbose, JSON: d.launch.cfg.JSON}
	for i, a := range d.launch.agents {
		placed := d.launch.placed.Hosts[i]
		reached = append(reached, d.add(&member{drive: d, index: i, agent: a, tasks: placed.Specs()}))
		opts.Hosts = append(opts.Hosts, a.Name())
		for _, t := range placed.Tasks {
			opts.Tasks = append(opts.Tasks, t.Task.String())
		}
	}
	line := d.line
	if !d.launch.printer.ShowsStatus() {
		line = nil // nobody sees what the tasks report
	}
	d.out = logstream.NewOutput(logstream.Config{Printer: d.launch.printer, Logs: opts, Dir: d.launch.logDir, Line: line,
		Unread: func() { // as in "plx launch ... | head"
			d.launch.signals.ask(jobstate.StopAsked{Reason: "stopped because its output is no longer read", Code: codePipe, Grace: d.launch.cfg.Grace})
		}})
	d.show(console.Waiting(d.launch.starting(), d.those(unstarted)))
	return reached
}

// show shows what the job does until the next call.
func (d *drive) show(phase console.Phase) {
	d.hide()
	d.shown = d.launch.printer.Phase(phase)
}

// hide ends show.
func (d *drive) hide() {
	if d.shown != nil {
		d.shown()
		d.shown = nil
	}
}

// starting describes the start of the tasks.
func (l *launch) starting() string {
	return fmt.Sprintf("starting %s on %s", plural.Count(len(taskNames(l.placed)), "task"), plural.Count(len(l.agents), "host"))
}

// those returns a function that names the hosts that are not lost and of which held is true.
func (d *drive) those(held func(*member) bool) func() []string {
	members := slices.Clone(d.members) // others may join meanwhile
	return func() (names []string) {
		for _, m := range members {
			if !m.lost.Load() && held(m) {
				names = append(names, m.agent.Name())
			}
		}
		return names
	}
}

// What a job waits for its hosts for.
func unstarted(m *member) bool { return !m.began.Load() }
func runs(m *member) bool      { return m.running.Load() > 0 }
func unended(m *member) bool   { return m.made.Load() == nil }

const (
	// silence is after how long without output a terminal shows that the job runs.
	silence = 2 * time.Second
	// lateFirst is until when a line about the first line is printed in a pipe: once.
	lateFirst = 30 * time.Second
)

// running describes a job that runs, while it prints nothing.
func (d *drive) running(long time.Duration) string {
	t := d.launch.cfg.Terminal
	terminal, last := t.StderrTTY && !t.Dumb, d.out.Last()
	if last.IsZero() && (terminal || long < lateFirst) {
		return console.Waiting(fmt.Sprintf("the tasks run: waiting for the first line of %s", entrypoint.Title(d.launch.cfg.Program, d.launch.cfg.Args)), nil).Text(long)
	}
	if quiet := time.Since(last); quiet >= silence && terminal && !d.launch.printer.ShowsStatus() {
		return fmt.Sprintf("the tasks run: no line for %ds", int(quiet.Seconds()))
	}
	return ""
}

// run runs the job to its verdict, and returns plx's exit status.
func (d *drive) run(ctx context.Context) (int, error) {
	reached := d.begin()
	plan := d.launch.plan()
	if sink, err := jobs.Events(d.launch.job); err == nil { // else saving the record has failed too
		d.launch.events.Add(sink)
	}
	d.launch.events.Begin(d.launch.job, d.launch.cfg.Name, d.launch.cfg.Program, plan.Hosts)
	defer d.launch.printer.Status(d.line.Parts)()
	d.launch.signals.expect(d.launch.saving())
	stops := d.launch.signals.listen()
	if cause := context.Cause(ctx); cause != nil {
		return exit.Code(cause), errors.Join(cause, d.out.Close(), d.record().Forget())
	}
	verdict, err := driver.Run(context.WithoutCancel(ctx), plan, reached, driver.Options{
		Lease: d.launch.cfg.Lease, Stop: stops, Observer: d, Events: d.launch.events,
		Join: func(_ int, j protocol.Joining) driver.Host { return d.join(ctx, j) },
	})
	d.away.Stop()
	d.launch.signals.end()
	d.show(console.Waiting("waiting for the last logs", d.streams.Waiting))
	err = errors.Join(err, d.awaitLogs(err, stops), d.out.Close())
	d.show(console.Waiting("counting what the job made", d.those(unended)))
	made, named := d.made(ctx, stops)
	d.hide()
	if made != "" {
		d.launch.printer.Printf("%s", made)
	}
	record := d.record()
	d.launch.report(record, verdict, d.out)
	d.keep(ctx, stops, record)
	// Files in a folder of the hosts' own are not counted.
	if d.launch.cfg.Fetch == "" && (named > 0 || len(d.launch.cfg.Output) > 0 && d.launch.cfg.Chdir != "") {
		d.launch.printer.Printf("hint: plx fetch %s DIR brings the outputs to this machine", d.launch.job)
	}
	if d.launch.cfg.Fetch != "" {
		err = errors.Join(err, d.fetch(ctx, stops))
	}
	if err != nil {
		d.launch.printer.Error(err)
		d.launch.failed = err
	}
	if err != nil && verdict.Code == 0 {
		verdict.Code, verdict.Reason = exit.Code(err), err.Error()
	}
	d.notify(ctx, stops, verdict)
	return verdict.Code, nil
}

// notify runs the command of --notify, after all else: it may use what was fetched. A signal of the
// user ends it.
func (d *drive) notify(ctx context.Context, stops <-chan jobstate.StopAsked, v protocol.Verdict) {
	ctx, cancel := untilSignal(ctx, stops, func(reason string) error { return errors.New(reason) })
	defer cancel(nil)
	d.launch.notifier.End(ctx, notify.Ended(d.launch.job, d.launch.cfg.Name, d.launch.created, v))
}

// awaitLogs waits for the rest of all logs. It reports a lost host whose logs are not
// complete, and returns the errors of the others: the job's verdict counts. err is the
// driver's: it names agents that were not seen to end.
func (d *drive) awaitLogs(err error, stops <-chan jobstate.StopAsked) error {
	gone := map[*hosts.AgentHost]bool{} // the driver has lost the agent
	for _, m := range d.members {
		gone[m.agent] = m.lost.Load()
	}
	lost := maps.Clone(gone)
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
		if gone[f.Agent] {
			d.launch.printer.Error(err)
			continue
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Entered shows the phases that may take long.
func (d *drive) Entered(phase protocol.Phase) {
	before := d.phase
	d.phase = phase
	d.line.Update(func(s *live.State) { s.Doing = doing[phase] })
	switch phase {
	case protocol.Idle: // before a further generation
		for _, m := range d.members {
			m.placed.Store(0)
			m.began.Store(false)
			m.count()
		}
		d.show(console.Waiting("waiting to start the tasks again", nil))
	case protocol.Ready: // begin has shown the first start
		if before != "" && before != phase {
			d.show(console.Waiting("starting the tasks", d.those(unstarted)))
		}
	case protocol.Running:
		d.show(console.Phase{Text: d.running})
	case protocol.Stopping:
		d.show(console.Waiting("ending the tasks", d.those(runs)))
	case protocol.Over:
		d.show(console.Waiting("ending the agents", d.those(unended)))
	default:
		d.hide()
	}
}

// doing is what the status line says of a phase. The others have no status line.
var doing = map[protocol.Phase]string{protocol.Running: "running", protocol.Stopping: "ending"}

// Noted prints a line of the driver's.
func (d *drive) Noted(line string) {
	d.line.Update(func(s *live.State) { s.Warnings++ })
	d.launch.printer.Printf("%s", line)
}

// Hung tells of a hang. The command of --notify is not run if the job ends because of it: then its end
// does that.
func (d *drive) Hung(h protocol.Hang) {
	if d.launch.cfg.Hang.Action == protocol.HangStop {
		return
	}
	d.launch.notifier.Hang(notify.Event{Kind: notify.Hung, Job: d.launch.job, Name: d.launch.cfg.Name, Verdict: hang.Reason(h), Took: time.Since(d.launch.created)})
}

// Laid records where the tasks of a new generation run.
func (d *drive) Laid(generation int, layout []protocol.HostPlan) {
	d.line.Update(func(s *live.State) { s.Restarts = generation })
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
		joinedAgain := func(later *member) bool { return later.agent.Folder == m.agent.Folder }
		if !h.Left || !slices.ContainsFunc(known[i+1:], joinedAgain) {
			r.Hosts = append(r.Hosts, h)
		}
	}
	return r
}

// untilSignal returns a context that a further signal of the user ends, with a cause that
// has the exit status.
func untilSignal(ctx context.Context, stops <-chan jobstate.StopAsked, cause func(reason string) error) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	go func() {
		select {
		case stop := <-stops:
			cancel(exit.WithCode(cause(stop.Reason), stop.Code))
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// made returns a line on what the job has made and nothing names, or "", and how many files an
// --output names. A signal of the user ends the count.
func (d *drive) made(ctx context.Context, stops <-chan jobstate.StopAsked) (line string, named int) {
	ctx, cancel := untilSignal(ctx, stops, func(reason string) error {
		return fmt.Errorf("what the job made is not counted: %s", reason)
	})
	defer cancel(nil)
	var from []*hosts.AgentHost
	var counts []protocol.Made
	known := map[string]bool{} // by folder: a host that came back is two members
	for _, m := range slices.Backward(d.members) {
		if m.lost.Load() || known[m.agent.Folder] { // the verdict names hosts that were lost
			continue
		}
		known[m.agent.Folder] = true
		if made := m.made.Load(); made != nil {
			counts = append(counts, *made)
		} else {
			from = append(from, m.agent)
		}
	}
	line, named, err := fetch.Made(ctx, d.launch.job, from, counts...)
	if err != nil {
		d.launch.printer.Error(err)
	}
	return line, named
}

// fetch brings the job's checkpoints, outputs and logs to this machine, after its logs are printed. A signal
// of the user ends it.
func (d *drive) fetch(ctx context.Context, stops <-chan jobstate.StopAsked) error {
	ctx, cancel := untilSignal(ctx, stops, func(reason string) error {
		return fmt.Errorf("not everything is fetched: %s; plx fetch %s %s fetches the rest", reason, d.launch.job, d.launch.cfg.Fetch)
	})
	defer cancel(nil)
	var from []*hosts.AgentHost
	for _, m := range d.members {
		from = append(from, m.agent)
	}
	err := fetch.Job(ctx, fetch.Request{Hosts: from, Name: d.launch.checkpoints, Outputs: d.launch.cfg.outputs, Dir: d.launch.cfg.Fetch, Printer: d.launch.printer})
	if fetch.Nothing(err) {
		d.launch.printer.Printf("note: nothing but logs to fetch into %s: the job has no checkpoints, and no file of it matches an --output", d.launch.cfg.Fetch)
		return nil
	}
	return err
}

// keepFrom is how long a job takes at least whose course is kept at its end. A report on a shorter one asks the hosts.
const keepFrom = 5 * time.Second

// keep saves the course of the job on this machine, for reports. A signal of the user ends it.
func (d *drive) keep(ctx context.Context, stops <-chan jobstate.StopAsked, record *jobs.Record) {
	if time.Since(record.Created) < keepFrom {
		return
	}
	ctx, cancel := untilSignal(ctx, stops, func(reason string) error {
		return fmt.Errorf("the metrics are not kept: %s", reason)
	})
	defer cancel(nil)
	var agents []*hosts.AgentHost
	for _, m := range slices.Backward(d.members) { // of a host that came back the last one counts
		if !m.lost.Load() {
			agents = append(agents, m.agent)
		}
	}
	d.show(console.Waiting("reading the metrics", nil))
	defer d.hide()
	if err := jobs.Keep(ctx, record, agents); err != nil {
		d.launch.printer.Printf("note: plx report will lack a part of this job's data: %v", err)
	}
}

// member is a host of a job that this process drives. It is a driver.Dialer, Queuer,
// Reviver and Watcher.
type member struct {
	drive   *drive
	index   int // index into drive.members
	agent   *hosts.AgentHost
	tasks   []protocol.TaskSpec // of the host's first generation: as placed, or as plx scale asked
	joined  bool                // plx scale has started the agent, so Dial only connects to it
	started bool                // Dial has started the agent, so further calls only connect to it
	began   atomic.Bool         // its tasks of the present generation have started
	running atomic.Int32        // number of its tasks that run
	placed  atomic.Int32        // number of its tasks of the present generation that are not done
	lost    atomic.Bool         // the driver has lost the agent; false again once a new one is connected
	// made is what the job has made on the host, as the agent counted it at its end. Nil: it
	// has not.
	made atomic.Pointer[protocol.Made]
	// early gets the first logs of the present agent. Nil: it sends none of its own.
	early atomic.Pointer[logstream.Early]
}

// add adds a member, and returns it as the driver knows it.
func (d *drive) add(m *member) driver.Host {
	d.members = append(d.members, m)
	return driver.Host{Name: m.agent.Name(), Agent: m, Swept: true}
}

// record returns what this machine remembers of the member. now is its part of the
// present layout, or zero.
func (m *member) record(now protocol.HostPlan) jobs.HostRecord {
	tasks := m.tasks
	if m.joined && len(now.Tasks) > 0 {
		tasks = now.Tasks
	}
	h := hostRecord(m.agent, tasks)
	h.Left = now.Left
	return h
}

// Dial starts the agent at the first call, unless plx scale has, and connects to it
// later. The driver calls it from one goroutine at a time.
func (m *member) Dial(ctx context.Context) (*protocol.Conn, error) {
	if m.joined || m.started {
		m.early.Store(nil) // an agent sends logs only to the launcher that starts it
		m.drive.away.Begin(m.agent.Name())
		conn, err := m.agent.Connect(ctx)
		if err == nil {
			m.drive.away.End(m.agent.Name())
		}
		return conn, err
	}
	m.started = true
	return m.start(ctx)
}

// Up has the logs of the agent followed.
func (m *member) Up() {
	m.lost.Store(false)
	m.made.Store(nil)
	m.drive.away.End(m.agent.Name())
	m.drive.streams.Follow(m.agent, m.early.Load(), m.drive.out, m.drive.launch.cfg.Lease)
}

// Started notes that the member's tasks have started.
func (m *member) Started(s protocol.Started) {
	tasks := len(s.PIDs)
	m.running.Store(int32(tasks))
	m.began.Store(true)
	m.placed.Store(int32(tasks))
	m.count()
}

// count tells the status line how many of the member's tasks run.
func (m *member) count() {
	running := int(m.running.Load())
	if m.lost.Load() {
		running = 0
	}
	m.drive.line.Tasks(m.index, running, int(m.placed.Load()))
}

// Exited notes that a task of the member has ended. One that is done is not missing.
func (m *member) Exited(x protocol.Exit) {
	m.running.Add(-1)
	if x.Code == 0 {
		m.placed.Add(-1)
	}
	m.count()
}

// Lost notes that the member has no agent.
func (m *member) Lost() {
	m.lost.Store(true)
	m.count()
	m.drive.away.Begin(m.agent.Name())
}

// Logged takes logs that the agent has sent of its own.
func (m *member) Logged(part protocol.Logged) {
	if early := m.early.Load(); early != nil {
		early.Add(part)
	}
}

// Made notes what the job has made on the host.
func (m *member) Made(made protocol.Made) { m.made.Store(&made) }

// unreached is a host that joined and cannot be reached from here.
type unreached struct{ err error }

func (u unreached) Dial(context.Context) (*protocol.Conn, error) { return nil, hosts.NotStarted(u.err) }

// Turn waits until fewer agents than turns has room for are being started.
func (m *member) Turn(ctx context.Context) (done func(), err error) {
	if m.joined || m.started {
		return func() {}, nil
	}
	return m.drive.turn(ctx)
}

func (d *drive) turn(ctx context.Context) (done func(), err error) {
	select {
	case d.turns <- struct{}{}:
		return func() { <-d.turns }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// start starts the agent.
func (m *member) start(ctx context.Context) (*protocol.Conn, error) {
	spec, err := m.drive.launch.spec(m.index, m.agent, m.tasks)
	if err != nil {
		return nil, hosts.NotStarted(err)
	}
	m.drive.agents.Begin(m.agent.Name())
	defer m.drive.agents.End(m.agent.Name())
	m.early.Store(logstream.NewEarly())
	return m.agent.Start(ctx, spec)
}

// Revive starts a new agent after the last one was lost. The host may have lost its
// files too.
func (m *member) Revive(ctx context.Context) (*protocol.Conn, error) {
	err := m.agent.Meet(ctx)
	m.drive.launch.set.Placed(err)
	if err != nil {
		return nil, err
	}
	if err := m.agent.Reap(ctx); err != nil {
		return nil, err
	}
	gpus := 0
	for _, t := range m.tasks {
		if t.Devices != "" {
			gpus++
		}
	}
	recipe := m.drive.launch.recipe()
	recipe.Again = true
	recipe.Like, _ = m.agent.DataAddr() // the one that it had; Ready refuses a host without one
	if err := recipe.Ready(ctx, []*provision.Target{{AgentHost: m.agent, GPUs: gpus}}); err != nil {
		return nil, err
	}
	done, err := m.drive.turn(ctx)
	if err != nil {
		return nil, hosts.NotStarted(err)
	}
	defer done()
	return m.start(ctx)
}

// join adds a host on which plx scale has started an agent. This process reaches it with
// its own SSH, by the host's line.
func (d *drive) join(ctx context.Context, j protocol.Joining) driver.Host {
	a, err := d.joining(ctx, j)
	host := d.add(&member{drive: d, index: len(d.members), agent: a, tasks: j.Tasks, joined: true})
	if err != nil {
		return driver.Host{Name: j.Host, Agent: unreached{err}}
	}
	return host
}

// joining opens the host that an agent announced. With an error it returns a host that
// cannot be reached.
func (d *drive) joining(ctx context.Context, j protocol.Joining) (a *hosts.AgentHost, err error) {
	line, err := hosts.ReadPlan(j.HostPlan)
	if err == nil {
		line.Interface = j.Interface
		for _, e := range j.Env {
			line.Env = append(line.Env, string(e))
		}
		var set *hosts.Set
		set, err = hosts.Open(ctx, hosts.Reach{Hosts: []hostfile.Host{line}, Via: d.launch.cfg.Via, Slurm: d.launch.cfg.Slurm, AcceptNewHostKeys: d.launch.cfg.AcceptNewHostKeys}, d.launch.printer)
		d.launch.set.Add(set)
		if err == nil {
			return &hosts.AgentHost{Host: set.Hosts[0], Job: d.launch.job, Folder: j.Folder, Binary: j.Binary}, nil
		}
	}
	unreached := func(context.Context) (transport.Transport, error) { return nil, err }
	return &hosts.AgentHost{Host: hosts.NewHost(hostfile.Host{Name: j.Host}, unreached), Job: d.launch.job}, err
}
