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

// drive controls an attached job (one whose plx process stays until the job's
// end). It starts the agents, prints the tasks' logs, and returns after the
// final verdict.
type drive struct {
	launch  *launch
	out     *logstream.Output
	streams logstream.Streams
	turns   chan struct{} // semaphore: holds one element for each agent that is being started
	members []*member     // hosts of the launch, then hosts that joined later; hosts are never removed
	// layout lists which tasks run on each host since the last restart, by
	// index in members. Before the first restart it is nil, and launch.placed
	// has the tasks.
	layout []protocol.HostPlan

	agents       *console.HostProgress // progress display of the agents that are being started
	reconnecting *console.HostProgress // progress display of the hosts that are lost or are being reconnected
	endPhase     func()                // ends the display of the current phase; nil if no phase is displayed
	phase        protocol.Phase        // job phase that PhaseChanged received last; "" before the first
	line         *live.Line            // status line at the bottom of the terminal
}

// begin creates a member for each host of the launch, and opens the output for
// the tasks' logs.
func (d *drive) begin() (reached []driver.Host) {
	patterns, _ := metrics.ParsePatterns(d.launch.cfg.Metrics) // there is no error: the plx command has already checked these patterns
	d.line = live.New(patterns)
	d.agents = d.launch.printer.NewHostProgress("starting agents", len(d.launch.agents))
	d.reconnecting = d.launch.printer.NewHostProgress("no connection to", 0)
	opts := logs.Options{Grep: d.launch.cfg.Grep, Verbose: d.launch.cfg.Verbose, Timestamps: d.launch.cfg.Timestamps, NoPrefix: d.launch.cfg.NoPrefix, Only: d.launch.cfg.ShowTasks, Fold: !d.launch.cfg.Verbose, JSON: d.launch.cfg.JSON}
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
		line = nil // without a terminal there is no status line to update
	}
	d.out = logstream.NewOutput(logstream.Config{Printer: d.launch.printer, Logs: opts, Dir: d.launch.logDir, Line: line,
		Unread: func() { // called if the reader of stdout has gone away, as in "plx launch ... | head"
			d.launch.signals.ask(jobstate.StopAsked{Reason: "stopped because its output is no longer read", Code: codePipe, Grace: d.launch.cfg.Grace})
		}})
	d.show(console.Waiting(d.launch.starting(), d.namesOf(unstarted)))
	return reached
}

// show displays phase on the terminal until the next call of show or hide.
func (d *drive) show(phase console.Phase) {
	d.hide()
	d.endPhase = d.launch.printer.Phase(phase)
}

// hide ends the display that show began.
func (d *drive) hide() {
	if d.endPhase != nil {
		d.endPhase()
		d.endPhase = nil
	}
}

// starting returns the text that is displayed while the tasks start: how many
// tasks on how many hosts.
func (l *launch) starting() string {
	return fmt.Sprintf("starting %s on %s", plural.Count(len(taskNames(l.placed)), "task"), plural.Count(len(l.agents), "host"))
}

// namesOf returns a function that lists the hosts for which the job waits.
// These are the members for which held is true, except lost members.
func (d *drive) namesOf(held func(*member) bool) func() []string {
	members := slices.Clone(d.members) // a copy, because hosts may join while the function is in use
	return func() (names []string) {
		for _, m := range members {
			if !m.lost.Load() && held(m) {
				names = append(names, m.agent.Name())
			}
		}
		return names
	}
}

// unstarted, runs and unended are values for the parameter held of namesOf.
// Each reports whether the job is waiting for the member: until its tasks have
// started, while they run, or until its files are counted.
func unstarted(m *member) bool { return !m.began.Load() }
func runs(m *member) bool      { return m.running.Load() > 0 }
func unended(m *member) bool   { return m.made.Load() == nil }

const (
	// silence is the time without task output after which a terminal shows
	// that the job still runs.
	silence = 2 * time.Second
	// lateFirst is how long plx waits for the first output line before it
	// prints a note, if stderr is not a terminal.
	lateFirst = 30 * time.Second
)

// running returns the text to display while the tasks run and print nothing;
// it may be "". long is the time since the tasks started.
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

// run controls the job until the driver returns the verdict, and returns plx's
// exit status.
func (d *drive) run(ctx context.Context) (int, error) {
	reached := d.begin()
	plan := d.launch.plan()
	if sink, err := jobs.Events(d.launch.job); err == nil { // print no error: if Events fails, saving the job's record has failed too and printed an error
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
	d.reconnecting.Stop()
	d.launch.signals.end()
	d.show(console.Waiting("waiting for the last logs", d.streams.Incomplete))
	err = errors.Join(err, d.awaitLogs(err, stops), d.out.Close())
	d.show(console.Waiting("counting what the job made", d.namesOf(unended)))
	made, named := d.made(ctx, stops)
	d.hide()
	if made != "" {
		d.launch.printer.Printf("%s", made)
	}
	record := d.record()
	d.launch.report(record, verdict, d.out)
	d.keep(ctx, stops, record)
	// named counts no files in a --chdir directory. With --output, files there
	// may match the patterns, so print the hint in that case too.
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

// notify runs the --notify command as the last action of plx, so that the
// command can use fetched files. A signal from the user cancels the command.
func (d *drive) notify(ctx context.Context, stops <-chan jobstate.StopAsked, v protocol.Verdict) {
	ctx, cancel := untilSignal(ctx, stops, func(reason string) error { return errors.New(reason) })
	defer cancel(nil)
	d.launch.notifier.End(ctx, notify.Ended(d.launch.job, d.launch.cfg.Name, d.launch.created, v))
}

// awaitLogs waits until the logs of all hosts are complete. It prints the
// errors of hosts that the driver has lost, and returns the errors of other
// hosts. err is the driver's result, which lists the agents whose end the
// driver could not confirm.
func (d *drive) awaitLogs(err error, stops <-chan jobstate.StopAsked) error {
	gone := map[*hosts.AgentHost]bool{} // true for agents that the driver has lost
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

// PhaseChanged updates the display when the driver enters a new phase of the job.
func (d *drive) PhaseChanged(phase protocol.Phase) {
	before := d.phase
	d.phase = phase
	d.line.Update(func(s *live.State) { s.Doing = doing[phase] })
	switch phase {
	case protocol.Idle: // in this phase, the tasks wait to be started again
		for _, m := range d.members {
			m.placed.Store(0)
			m.began.Store(false)
			m.count()
		}
		d.show(console.Waiting("waiting to start the tasks again", nil))
	case protocol.Ready: // the method begin has already displayed the first start of the tasks
		if before != "" && before != phase {
			d.show(console.Waiting("starting the tasks", d.namesOf(unstarted)))
		}
	case protocol.Running:
		d.show(console.Phase{Text: d.running})
	case protocol.Stopping:
		d.show(console.Waiting("ending the tasks", d.namesOf(runs)))
	case protocol.Over:
		d.show(console.Waiting("ending the agents", d.namesOf(unended)))
	default:
		d.hide()
	}
}

// doing maps a phase to its text in the status line. In a phase that it does
// not contain, there is no status line.
var doing = map[protocol.Phase]string{protocol.Running: "running", protocol.Stopping: "ending"}

// Notice prints a message of the driver.
func (d *drive) Notice(line string) {
	d.line.Update(func(s *live.State) { s.Warnings++ })
	d.launch.printer.Printf("%s", line)
}

// HangFound runs the --notify command because the job hangs. With --on-hang stop,
// HangFound does nothing, because the end of the job runs the command.
func (d *drive) HangFound(h protocol.Hang) {
	if d.launch.cfg.Hang.Action == protocol.HangStop {
		return
	}
	d.launch.notifier.Hang(notify.Event{Kind: notify.Hung, Job: d.launch.job, Name: d.launch.cfg.Name, Verdict: hang.Reason(h), Took: time.Since(d.launch.created)})
}

// TasksAssigned is called after a restart. It saves in the job's record on which hosts
// the tasks now run.
func (d *drive) TasksAssigned(generation int, layout []protocol.HostPlan) {
	d.line.Update(func(s *live.State) { s.Restarts = generation })
	d.layout = layout
	if err := d.record().Save(); err != nil {
		d.launch.printer.Error(err)
	}
}

// record returns this machine's record of the job, with the present hosts. Its
// field Chief is the host that runs worker:0.
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

// untilSignal returns a context that is canceled at the user's next signal.
// The context's cause then determines the exit status of plx.
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

// made counts the files that the job left on its hosts. line is a line for the
// user about the files that match no --output pattern, or "". named is the
// number of files that match. A signal from the user stops the count.
func (d *drive) made(ctx context.Context, stops <-chan jobstate.StopAsked) (line string, named int) {
	ctx, cancel := untilSignal(ctx, stops, func(reason string) error {
		return fmt.Errorf("what the job made is not counted: %s", reason)
	})
	defer cancel(nil)
	var from []*hosts.AgentHost
	var counts []protocol.FileCounts
	known := map[string]bool{} // job directories that were counted; a host that was lost and joined again is two members with one directory
	for _, m := range slices.Backward(d.members) {
		if m.lost.Load() || known[m.agent.Folder] { // skip lost hosts, because the verdict names them
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

// fetch copies the job's checkpoints, outputs and logs to this machine, after
// all logs were printed. A signal from the user cancels the copy.
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
	if fetch.IsNothing(err) {
		d.launch.printer.Printf("note: nothing but logs to fetch into %s: the job has no checkpoints, and no file of it matches an --output", d.launch.cfg.Fetch)
		return nil
	}
	return err
}

// minKeptTime is the shortest duration of a job after which plx copies metrics
// and log tails to this machine. For a shorter job, plx report reads them from
// the hosts.
const minKeptTime = 5 * time.Second

// keep copies the job's metrics and log tails from the hosts to this machine,
// for plx report. A signal from the user cancels the copy.
func (d *drive) keep(ctx context.Context, stops <-chan jobstate.StopAsked, record *jobs.Record) {
	if time.Since(record.Created) < minKeptTime {
		return
	}
	ctx, cancel := untilSignal(ctx, stops, func(reason string) error {
		return fmt.Errorf("the metrics were not copied to this machine: %s", reason)
	})
	defer cancel(nil)
	var agents []*hosts.AgentHost
	for _, m := range slices.Backward(d.members) { // go backward: a host that was lost and joined again has two members, and the later one has the running agent
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

// member is a host of a job that this process controls. It implements the
// driver's interfaces Dialer, Queuer, Reviver and Watcher.
type member struct {
	drive   *drive
	index   int // index of this member in drive.members
	agent   *hosts.AgentHost
	tasks   []protocol.TaskSpec // tasks of the host's first generation, from the launch or from plx scale
	joined  bool                // true if plx scale has started the agent, so that Dial only connects to it
	started bool                // true once Dial has started the agent; later calls of Dial only connect to it
	began   atomic.Bool         // true once the host's tasks of the current generation have started
	running atomic.Int32        // number of tasks that run on the host
	placed  atomic.Int32        // number of tasks on the host since the last restart, without those that have ended with status 0
	lost    atomic.Bool         // true while the driver has lost the agent and no new agent is connected
	// made is the number of files that the job left on the host. The agent
	// reports it when it ends; before that, made is nil.
	made atomic.Pointer[protocol.FileCounts]
	// early receives the log lines that a newly started agent sends without a
	// request. It is nil if this process did not start the current agent.
	early atomic.Pointer[logstream.EarlyLogs]
}

// add appends m to the members, and returns m as a host for the driver.
func (d *drive) add(m *member) driver.Host {
	d.members = append(d.members, m)
	return driver.Host{Name: m.agent.Name(), Agent: m, NoAgentMeansClean: true}
}

// record returns what the job's record stores about this host. now is the
// host's entry in the job's current layout, or the zero value if there is no
// layout.
func (m *member) record(now protocol.HostPlan) jobs.HostRecord {
	tasks := m.tasks
	if m.joined && len(now.Tasks) > 0 {
		tasks = now.Tasks
	}
	h := hostRecord(m.agent, tasks)
	h.Left = now.Left
	return h
}

// Dial starts the agent at the first call and connects to the running agent at
// later calls. If plx scale has started the agent, every call only connects.
// Only one goroutine at a time calls Dial.
func (m *member) Dial(ctx context.Context) (*protocol.Conn, error) {
	if m.joined || m.started {
		m.early.Store(nil) // an agent sends its first logs without a request only to the process that started it
		m.drive.reconnecting.Begin(m.agent.Name())
		conn, err := m.agent.Connect(ctx)
		if err == nil {
			m.drive.reconnecting.End(m.agent.Name())
		}
		return conn, err
	}
	m.started = true
	return m.start(ctx)
}

// Up records that the driver is connected to the agent, and starts to follow
// the agent's logs.
func (m *member) Up() {
	m.lost.Store(false)
	m.made.Store(nil)
	m.drive.reconnecting.End(m.agent.Name())
	m.drive.streams.Follow(m.agent, m.early.Load(), m.drive.out, m.drive.launch.cfg.Lease)
}

// Started records that the agent has started all tasks of this host.
func (m *member) Started(s protocol.Started) {
	tasks := len(s.PIDs)
	m.running.Store(int32(tasks))
	m.began.Store(true)
	m.placed.Store(int32(tasks))
	m.count()
}

// count sends the number of this host's running tasks to the status line.
func (m *member) count() {
	running := int(m.running.Load())
	if m.lost.Load() {
		running = 0
	}
	m.drive.line.Tasks(m.index, running, int(m.placed.Load()))
}

// Exited records that a task on this host has ended. A task that ended with
// status 0 is no longer included in m.placed.
func (m *member) Exited(x protocol.Exit) {
	m.running.Add(-1)
	if x.Code == 0 {
		m.placed.Add(-1)
	}
	m.count()
}

// Lost records that the driver has given up the connection to this host's
// agent.
func (m *member) Lost() {
	m.lost.Store(true)
	m.count()
	m.drive.reconnecting.Begin(m.agent.Name())
}

// Logged receives log lines that a newly started agent sends without a
// request.
func (m *member) Logged(part protocol.Logged) {
	if early := m.early.Load(); early != nil {
		early.Add(part)
	}
}

// Made stores the agent's count of the files that the job left on this host.
func (m *member) Made(made protocol.FileCounts) { m.made.Store(&made) }

// unreached is the Dialer of a host that joined the job but cannot be reached
// from this machine. Its Dial returns err.
type unreached struct{ err error }

func (u unreached) Dial(context.Context) (*protocol.Conn, error) { return nil, hosts.NotStarted(u.err) }

// Turn waits until fewer than cap(turns) agents are being started. The caller
// must call done after its agent has started.
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

// start starts the host's agent, sends it the job's specification, and returns
// the connection.
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

// Revive starts a new agent on the host after the previous agent was lost. It
// sends the job's files again, because the host may have lost them too.
func (m *member) Revive(ctx context.Context) (*protocol.Conn, error) {
	err := m.agent.Survey(ctx)
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
	recipe.Running = true
	recipe.PeerAddr, _ = m.agent.DataAddr() // address of the lost agent; ignore the error, because Ready rejects a host without an address
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

// join adds a host on which plx scale has started an agent. This process
// connects to the host over its own SSH connection.
func (d *drive) join(ctx context.Context, j protocol.Joining) driver.Host {
	a, err := d.joining(ctx, j)
	host := d.add(&member{drive: d, index: len(d.members), agent: a, tasks: j.Tasks, joined: true})
	if err != nil {
		return driver.Host{Name: j.Host, Agent: unreached{err}}
	}
	return host
}

// joining opens a connection to a host on which plx scale has started an
// agent. If that fails, it returns the error together with a host whose
// connection attempts all fail with this error.
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
