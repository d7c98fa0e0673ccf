//go:build linux

// Package supervisor owns the tasks of one host and job: it starts them, passes on
// what they report, keeps their output and ends them.
//
//	err := supervisor.Run(folder)   // in "plx agent supervisor", started by the watchdog
//
// One goroutine, the loop, runs every function that changes state. Each subject is
// a type whose fields only its own methods assign, on the loop:
//
//	loop        runs functions one after the other
//	record      the state of this host's part: state.json, and what visitors see
//	sessions    connections of the driver and of visitors
//	tasks, task the tasks of the present generation, one of them
//	reported    what a task reports of its training
//	checkpoint  what the chief was asked to save, and its answer
//	generation  prepares the tasks of a generation and starts them
//	shutdown    ends the host's part: the lease, the kill, the verdict
//	watch       measures what tasks do, and reports what they wait for
//	driving     the driver of a detached job, if it runs in this process
//	starter     what only the launcher gets that has started the agent
//
// The driver is the launcher, or in a detached job the agent of the chief's host.
// The supervisor decides nothing about the job. It reports facts, and the driver
// decides; but without a driver the supervisor ends its tasks when the lease runs
// out, and it does so at once without its watchdog.
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

// supervisor puts the parts together. See the package's documentation for what
// each of them does.
type supervisor struct {
	*parts
	local      net.Listener // local socket, for plx on this host and a driver in this process
	data       net.Listener // TCP, for agents of other hosts; nil: generation.noData says why
	checkpoint *checkpoint
	tasks      *tasks
	generation *generation
	shutdown   *shutdown
	driving    *driving
	watch      *watch
	starter    *starter
	refusals   refusals
}

// parts are what all subjects need.
type parts struct {
	host     *host
	loop     *loop
	record   *record
	sessions *sessions
}

// beat is how often the watchdog hears that the loop is alive.
const beat = time.Second

// run is the loop. It returns after the verdict was recorded. terms delivers
// signals of the host.
func (s *supervisor) run(in *watchdog.Inherited, terms <-chan os.Signal) {
	defer close(s.loop.quit)
	tick := time.NewTicker(s.pace())
	defer tick.Stop()
	lost := in.Lost
	var beaten time.Time
	for !s.loop.over {
		select {
		case f := <-s.loop.calls:
			f()
		case <-lost:
			lost = nil
			if !s.shutdown.clearing { // if this process were killed now, nobody would kill the tasks
				const killed = "the agent's watchdog was killed"
				s.shutdown.endHere(killed, 0, killed)
			}
		case sig := <-terms:
			if sig == unix.SIGUSR1 || cluster.InStep() { // the host is to be taken away
				s.preempted()
			} else { // as when the host shuts down
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

// pace is how often the lease and the deadlines are checked.
func (s *supervisor) pace() time.Duration {
	if s.host.spec.Lease <= 0 {
		return beat / 4
	}
	return min(max(s.host.spec.Lease/50, 5*time.Millisecond), 250*time.Millisecond)
}

// publish writes the state to state.json and sends it to visitors, if it has
// changed.
func (s *supervisor) publish() {
	now := time.Now()
	if !s.record.due(now) {
		return
	}
	state := s.snapshot()
	if r := s.record; r.changed || now.Sub(r.saved) >= saveEvery { // steps alone are not written at once
		r.saver.save(state)
		r.saved = now
	}
	s.record.changed, s.record.stepped, s.record.shown = false, false, now
	state.Laid = nil // it can be long, and who needs it reads the file
	s.sessions.show(protocol.Message{State: &state})
}

func (s *supervisor) snapshot() protocol.State { return s.record.snapshot(s.tasks.now()) }

// codePreempted is the exit status of a job whose host is taken away: that of
// SIGTERM.
const codePreempted = 143

// preempted asks the driver to save and end the job, because this host is to be
// taken away. A job that has no tasks here goes on. Without a driver the lease ends
// this host's part.
func (s *supervisor) preempted() {
	spec := s.host.spec
	reason := "preempted on host " + spec.Host
	switch {
	case s.sessions.driver == nil:
		s.host.log.Printf("%s, and %s is not connected", reason, s.host.driver())
	case s.generation.spare():
		s.sessions.notice("this host is to be taken away; the job has no tasks on it and goes on")
	default:
		s.host.log.Print(reason)
		s.sessions.tell(protocol.Message{StopAsk: &protocol.Stop{Reason: reason, Code: codePreempted, Grace: spec.Grace, SaveTime: spec.SaveTime}})
	}
}

// Run is the supervisor of the job in a folder. Its parent is the watchdog. It
// returns after nothing of the job is left on the host but watchdog and supervisor.
// locks is the number of GPU locks that the process has inherited.
func Run(f jobfolder.Folder, locks int) error {
	in, err := watchdog.Inherit(locks)
	var s *supervisor
	if err == nil {
		s, err = newSupervisor(f, in.Spec, in.Locks)
	}
	if err == nil {
		err = gpulock.Answer(in.Locks, s.host.spec.Job)
	}
	if err != nil {
		return errors.Join(err, in.Answer(err))
	}
	terms := watchdog.Signals()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	s.open(ctx)
	if err := in.Answer(nil); err != nil {
		s.host.log.Printf("the watchdog is gone: %v", err) // it is noticed below
	}
	s.meet(in.Launcher)
	s.loop.background(s.watch.run)
	s.loop.background(s.watch.saveMetrics)
	s.run(in, terms)
	return s.leave()
}

// newSupervisor makes a supervisor that serves nobody yet, and writes its first
// state.
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
		sessions: &sessions{log: h.log, visitors: map[*link]bool{}}}
	s := &supervisor{parts: p, local: local, data: data, checkpoint: &checkpoint{parts: p}}
	s.tasks = &tasks{parts: p, checkpoint: s.checkpoint, killed: "killed: it did not end in time"}
	s.generation = &generation{parts: p, tasks: s.tasks, noData: noData, used: map[string]bool{}}
	s.shutdown = &shutdown{parts: p, tasks: s.tasks, generation: s.generation, lease: lease.New(spec.Lease, spec.Grace, uptime)}
	s.driving = &driving{parts: p, shutdown: s.shutdown}
	s.watch = &watch{parts: p, tasks: s.tasks, sampler: sampler.New(spec.Hang, h.usage),
		program: sent(spec.Command), turn: make(chan struct{}, 1)}
	s.starter = &starter{parts: p}
	return s, nil
}

// firstState writes the state of a new supervisor and returns it. It keeps which
// generations an earlier agent has run in the folder.
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

// open begins to take connections.
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

// leave writes the last state and sends what is queued on connections. A driver in
// this process hears of the end and then ends the job on the other hosts; visitors
// wait for that too.
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
	s.loop.wait(parting)
	return err
}

// host is what the supervisor knows of its host and job. It does not change.
type host struct {
	spec     protocol.Spec
	folder   jobfolder.Folder
	locks    []*os.File // of the host's GPUs
	login    []string   // environment of the user's login that started the agent, as NAME=VALUE
	cores    []int      // cores that this process may use, and the tasks share
	children *process.Children
	usage    *sampler.Host     // how much of the host is used
	patterns []metrics.Pattern // the user's, for values in the output of the tasks
	place    sockets.Place     // address and ports for the host's sockets
	identity sockets.Identity  // what this agent proves to agents of other hosts
	log      *log.Logger
}

// newHost makes this process the reaper of all tasks.
func newHost(f jobfolder.Folder, spec protocol.Spec, locks []*os.File) (*host, error) {
	cores, err := process.AllowedCores()
	if err != nil {
		return nil, err
	}
	if n := program.StepCores(); n > 0 && n < len(cores) {
		cores, spec.Bind = cores[:n], false // Slurm counts the job's cores, and does not keep it to certain ones
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
		log.Print(err) // the next save replaces it
	}
	usage.Keep(history, len(spec.Claims) > 0)
	return &host{spec: spec, usage: usage, folder: f, locks: locks, login: program.LoginOf(os.Environ()), cores: cores, children: children, patterns: patterns,
		place:    sockets.Place{Addr: spec.DataAddr, Low: spec.PortLow, High: spec.PortHigh},
		identity: sockets.Identity{Secret: spec.Secret, HostIndex: spec.HostIndex, TLS: spec.TLS},
		log:      log.New(os.Stderr, "supervisor: ", log.LstdFlags|log.Lmicroseconds)}, nil
}

// driver names who drives the job, for messages.
func (h *host) driver() string {
	if h.spec.Detached {
		return "the host that drives the job"
	}
	return "the launcher"
}

// failed is the verdict of a job that ends for a reason of this host.
func (h *host) failed(reason string) protocol.Verdict { return jobfolder.Failed(h.spec.Host, reason) }
