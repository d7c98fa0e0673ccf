//go:build linux

// Package supervisor runs the tasks of one job on one host: it starts them,
// forwards their reports, stores their output and ends them.
//
//	err := supervisor.Run(folder, locks)   // in "plx agent supervisor", started by the watchdog
//
// One goroutine, the loop, runs every function that changes state. The state
// consists of the following types. Only a type's own methods assign its
// fields, and they run on the loop:
//
//	loop        runs functions one after the other
//	record      the state of the job on this host, as in state.json and as visitors see it
//	sessions    connections of the driver and of visitors (plx attach, plx stop, plx scale)
//	tasks, task the tasks of the current generation, and one of them
//	reported    training metrics that a task reports
//	checkpoint  the driver's checkpoint request to worker 0, and the reply
//	generation  prepares and starts the tasks of each generation
//	shutdown    ends the job on this host: the lease, the kill, the verdict
//	watch       measures tasks, and reports what they wait for
//	driving     the driver of a detached job, if it runs in this process
//	starter     extra messages for the launcher that has started the agent
//
// The driver controls the whole job from one process: the launcher, or for a
// detached job the agent on the host of worker 0. The driver decides; the
// supervisor only reports facts and follows orders. There are two exceptions:
// the supervisor ends its tasks when the driver does not renew the lease, and
// at once when the watchdog dies.
package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/agent/gpulock"
	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/agent/lease"
	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/agent/program"
	"github.com/plx-run/plx/launcher/agent/sampler"
	"github.com/plx-run/plx/launcher/agent/sockets"
	"github.com/plx-run/plx/launcher/agent/watchdog"
	"github.com/plx-run/plx/launcher/metrics"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// supervisor combines the types that hold the state, see the package
// documentation.
type supervisor struct {
	*parts
	local      net.Listener // Unix socket for plx commands on this host and, if the driver (which controls the job) runs in this process, for the driver
	data       net.Listener // TCP socket for agents of other hosts; nil if it could not be opened, and generation.noData then has the error
	checkpoint *checkpoint
	tasks      *tasks
	generation *generation
	shutdown   *shutdown
	driving    *driving
	watch      *watch
	starter    *starter
	refusals   refusals
}

// parts are the values that all types of the supervisor's state share.
type parts struct {
	host     *host
	loop     *loop
	record   *record
	sessions *sessions
}

// beat is the interval at which the event loop shows the watchdog (the parent
// process) that it is alive.
const beat = time.Second

// run is the event loop of the supervisor. It returns after the verdict was
// recorded. terms delivers the signals that this process receives from the
// host.
func (s *supervisor) run(in *watchdog.Inherited, terms <-chan os.Signal) {
	defer close(s.loop.quit)
	tick := time.NewTicker(s.tickInterval())
	defer tick.Stop()
	lost := in.Lost
	var beaten time.Time
	for !s.loop.over {
		select {
		case f := <-s.loop.calls:
			f()
		case <-lost:
			lost = nil
			if !s.shutdown.clearing { // the watchdog (the parent process) has died, so end the job: if this process were killed too, no process would kill the tasks
				const killed = "the agent's watchdog was killed"
				s.shutdown.endHere(killed, 0, killed)
			}
		case sig := <-terms:
			if sig == unix.SIGUSR1 || cluster.InStep() { // these signals announce preemption: the host will be taken away from the job
				s.preempted()
			} else { // any other signal, for example because the host shuts down
				s.shutdown.endHere(fmt.Sprintf("the agent was told to end: %v", sig), min(s.host.spec.Grace, 5*time.Second), "the host told the agent to end")
			}
		case <-tick.C:
			s.shutdown.checkLease()
			if time.Since(beaten) >= beat {
				beaten = time.Now()
				in.Beat()
				s.tasks.killFrozen()
			}
		}
		s.tasks.advance()
		s.shutdown.advance()
		s.publish()
	}
}

// tickInterval returns how often the supervisor checks the tasks' deadlines
// and the lease, the time for which tasks may run without the driver.
func (s *supervisor) tickInterval() time.Duration {
	if s.host.spec.Lease <= 0 {
		return beat / 4
	}
	return min(max(s.host.spec.Lease/50, 5*time.Millisecond), 250*time.Millisecond)
}

// publish sends a changed state to visitors (plx commands that watch the job)
// and writes it to state.json. If only step numbers have changed, it waits for
// a minimum interval.
func (s *supervisor) publish() {
	now := time.Now()
	if !s.record.due(now) {
		return
	}
	state := s.snapshot()
	if r := s.record; r.changed || now.Sub(r.saved) >= saveEvery { // if only step numbers have changed, write less often
		r.saver.save(state)
		r.saved = now
	}
	s.record.changed, s.record.stepped, s.record.shown = false, false, now
	state.Layout = nil // leave out the layout (which tasks run on which hosts), which may be large; a client that needs it reads state.json
	s.sessions.show(protocol.Message{State: &state})
}

func (s *supervisor) snapshot() protocol.State { return s.record.snapshot(s.tasks.now()) }

// codePreempted is the exit status of a preempted job: 128+SIGTERM.
const codePreempted = 143

// preempted asks the driver (the process that controls the job) to save a
// checkpoint and end the job, because this host will be taken away. If the
// host has no tasks, the job continues. If no driver is connected, the lease
// expires (the time for which tasks may run without a driver), and the job
// ends on this host.
func (s *supervisor) preempted() {
	spec := s.host.spec
	reason := "preempted on host " + spec.Host
	switch {
	case s.sessions.driver == nil:
		s.host.log.Printf("%s, and %s is not connected", reason, s.host.driver())
	case s.generation.spare():
		s.sessions.notice("this host will be taken away (preempted); the job has no tasks on it and continues")
	default:
		s.host.log.Print(reason)
		s.sessions.sendToDriver(protocol.Message{StopAsk: &protocol.Stop{Reason: reason, Code: codePreempted, Grace: spec.Grace, SaveTime: spec.SaveTime}})
	}
}

// Run runs the supervisor (the agent's process that runs tasks) of the job in
// folder f. Its parent process must be the watchdog, which ends the tasks if
// the supervisor dies. locks is the number of GPU locks that the process has
// inherited. Run returns after all processes of the job on this host have
// ended, except watchdog and supervisor.
func Run(f jobfolder.Folder, locks int) error {
	in, err := watchdog.Inherit(locks)
	var s *supervisor
	if err == nil {
		s, err = newSupervisor(f, in.Spec, in.Locks)
	}
	if err == nil {
		err = gpulock.ServeHolder(in.Locks, s.host.spec.Job)
	}
	if err != nil {
		return errors.Join(err, in.Answer(err))
	}
	terms := watchdog.Signals()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	s.open(ctx)
	if err := in.Answer(nil); err != nil {
		s.host.log.Printf("the watchdog is gone: %v", err) // only log the error: the event loop notices the end of the watchdog and ends the job
	}
	s.serveLauncher(in.Launcher)
	s.loop.background(s.watch.run)
	s.loop.background(s.watch.saveMetrics)
	s.run(in, terms)
	return s.leave()
}

// newSupervisor creates a supervisor and writes its first state. It accepts no
// connections yet.
func newSupervisor(f jobfolder.Folder, spec protocol.Spec, locks []*os.File) (*supervisor, error) {
	h, err := newHost(f, spec, locks)
	if err != nil {
		return nil, err
	}
	local, socket, err := sockets.ListenLocal()
	if err != nil {
		return nil, err
	}
	data, noData := h.place.ListenData()
	state, err := firstState(h, socket, data)
	if err != nil {
		return nil, err
	}
	p := &parts{host: h, record: &record{State: state, saver: newSaver(f)},
		loop:     &loop{calls: make(chan func()), quit: make(chan struct{})},
		sessions: &sessions{log: h.log, visitors: map[*session]bool{}}}
	s := &supervisor{parts: p, local: local, data: data, checkpoint: &checkpoint{parts: p}}
	s.tasks = &tasks{parts: p, checkpoint: s.checkpoint, killed: "killed: it did not end in time"}
	s.generation = &generation{parts: p, tasks: s.tasks, noData: noData, used: map[string]bool{}}
	s.shutdown = &shutdown{parts: p, tasks: s.tasks, generation: s.generation, lease: lease.New(spec.Lease, spec.Grace, uptime)}
	s.driving = &driving{parts: p, shutdown: s.shutdown}
	s.watch = &watch{parts: p, tasks: s.tasks, sampler: sampler.New(spec.Hang, h.usage),
		program: sentProgram(spec.Command), turn: make(chan struct{}, 1)}
	s.starter = &starter{parts: p}
	return s, nil
}

// firstState writes the first state of this supervisor to state.json and
// returns it. It keeps the field Least from an earlier state.json: the lowest
// generation (start of all tasks) that no earlier agent in the same folder has
// run.
func firstState(h *host, socket string, data net.Listener) (protocol.State, error) {
	own, err := process.Read(os.Getpid())
	if err != nil {
		return protocol.State{}, err
	}
	parent, err := process.Read(own.Parent)
	if err != nil {
		return protocol.State{}, err
	}
	before, err := h.folder.ReadState()
	if err != nil {
		return protocol.State{}, err
	}
	state := jobfolder.FirstState(h.spec)
	state.Socket, state.Least = socket, before.Least
	state.Watchdog, state.WatchdogStart = parent.PID, parent.Start
	state.Supervisor, state.SupervisorStart = own.PID, own.Start
	if data != nil {
		state.Addr = data.Addr().String()
	}
	return state, h.folder.WriteState(state)
}

// open begins to accept connections.
func (s *supervisor) open(ctx context.Context) {
	s.loop.background(func() {
		s.accept(s.local, func(c net.Conn) (net.Conn, error) { return c, sockets.SameUser(c.(*net.UnixConn)) })
	})
	if s.data != nil {
		gate := s.host.identity.Gate()
		s.loop.background(func() {
			s.accept(gate.Listener(s.data), func(c net.Conn) (net.Conn, error) {
				protected, _, err := gate.Accept(ctx, c)
				return protected, err
			})
		})
	}
}

// leave writes the last state and sends all queued messages. If this process
// also runs the driver (which controls the job), leave waits until the driver
// has ended the job on the other hosts. Only then it closes the connections of
// visitors, the plx commands that watch the job.
func (s *supervisor) leave() error {
	err := errors.Join(s.record.saver.close(5*time.Second), s.local.Close())
	if s.data != nil {
		err = errors.Join(err, s.data.Close())
	}
	s.starter.finish()
	s.sessions.finishDriver()
	if s.driving.done != nil {
		within(max(s.host.spec.Grace, s.host.spec.Lease)+process.KillTime+15*time.Second, s.driving.done)
	}
	s.sessions.finish()
	s.loop.wait(closeTimeout)
	return err
}

// host contains the facts about this host and its job. They stay the same
// after newHost.
type host struct {
	spec     protocol.Spec
	folder   jobfolder.Folder
	locks    []*os.File // locks of the host's GPUs
	login    []string   // environment (NAME=VALUE) of the login shell that started the agent
	cores    []int      // CPU cores that this process may use; the tasks on this host divide them
	children *process.Children
	usage    *sampler.Host       // samples the CPU, memory and GPU use of the host
	patterns []metrics.Pattern   // the user's patterns for metrics in the tasks' output
	place    sockets.ListenRange // IP address and port range of the sockets on this host
	identity sockets.Identity    // credentials for connections between the agents of the job
	log      *log.Logger
}

// newHost collects the facts about the host. It makes this process the
// subreaper of all tasks.
func newHost(f jobfolder.Folder, spec protocol.Spec, locks []*os.File) (*host, error) {
	cores, err := process.AllowedCores()
	if err != nil {
		return nil, err
	}
	if n := program.SlurmCores(); n > 0 && n < len(cores) {
		cores, spec.Bind = cores[:n], false // Slurm limits only the number of cores; it is unknown which cores these are, so tasks are not bound to cores
	}
	patterns, err := metrics.ParsePatterns(spec.Metrics)
	if err != nil {
		return nil, err
	}
	children, err := process.NewChildren()
	if err != nil {
		return nil, err
	}
	usage := sampler.NewHost(children.Shell)
	history, err := f.ReadHostUse()
	if err != nil {
		log.Print(err) // the next save replaces the damaged file
	}
	usage.Keep(history, len(spec.Claims) > 0)
	return &host{spec: spec, usage: usage, folder: f, locks: locks, login: program.LoginOf(os.Environ()), cores: cores, children: children, patterns: patterns,
		place:    sockets.ListenRange{Addr: spec.DataAddr, Low: spec.PortLow, High: spec.PortHigh},
		identity: sockets.Identity{Secret: spec.Secret, HostIndex: spec.HostIndex, TLS: spec.TLS},
		log:      log.New(os.Stderr, "supervisor: ", log.LstdFlags|log.Lmicroseconds)}, nil
}

// driver returns the words for the driver (the process that controls the job)
// in messages to the user.
func (h *host) driver() string {
	if h.spec.Detached {
		return "the host that drives the job"
	}
	return "the launcher"
}

// failed returns the verdict of a job that ends because of this host, not
// because of a task.
func (h *host) failed(reason string) protocol.Verdict { return jobfolder.Failed(h.spec.Host, reason) }
