//go:build linux

package supervisor

import (
	"context"
	"errors"
	"net"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/agent/lease"
	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/agent/sockets"
	"github.com/plx-run/plx/launcher/agent/watchdog"
	"github.com/plx-run/plx/launcher/protocol"
)

// Run is the supervisor of the job in a folder. Its parent is the watchdog. It
// returns after nothing of the job is left on the host but watchdog and supervisor.
func Run(f jobfolder.Folder) error {
	s, err := newSupervisor(f)
	if err != nil {
		return errors.Join(err, watchdog.Answer(watchdog.Readiness{Error: err.Error()}))
	}
	terms := make(chan os.Signal, 4)
	signal.Notify(terms, unix.SIGTERM, unix.SIGUSR1)
	ignored := make(chan os.Signal, 1)
	signal.Notify(ignored, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGPIPE) // signal.Ignore would be inherited by tasks
	in := watchdog.Inherit()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	s.open(ctx)
	if err := watchdog.Answer(watchdog.Readiness{Socket: s.record.first.Socket}); err != nil {
		s.host.log.Printf("who started the agent is gone: %v", err) // the lease decides
	}
	s.run(in, terms)
	return s.leave()
}

// newSupervisor makes a supervisor that serves nobody yet, and writes its first
// state.
func newSupervisor(f jobfolder.Folder) (*supervisor, error) {
	spec, err := watchdog.ReceiveSpec()
	if err != nil {
		return nil, err
	}
	h, err := newHost(f, spec)
	if err != nil {
		return nil, err
	}
	ls, err := listen(h.place())
	if err != nil {
		return nil, err
	}
	state, err := ls.firstState(h)
	if err != nil {
		return nil, err
	}
	s := &supervisor{host: h, loop: newLoop(), record: newRecord(state, newSaver(f)), sessions: newSessions(h.log), listeners: ls}
	s.checkpoint = &checkpoint{loop: s.loop, sessions: s.sessions, record: s.record}
	s.tasks = &tasks{host: h, loop: s.loop, sessions: s.sessions, record: s.record, checkpoint: s.checkpoint,
		killed: "killed: it did not end in time"}
	s.generation = &generation{host: h, loop: s.loop, sessions: s.sessions, record: s.record, tasks: s.tasks, noData: ls.noData}
	s.shutdown = &shutdown{host: h, loop: s.loop, sessions: s.sessions, record: s.record, tasks: s.tasks, generation: s.generation,
		lease: lease.New(spec.Lease, spec.Grace, lease.Uptime)}
	s.driving = &driving{host: h, loop: s.loop, record: s.record, shutdown: s.shutdown}
	return s, nil
}

// listeners are the agent's own sockets.
type listeners struct {
	local  *net.UnixListener // for commands of the user on this host
	socket string            // its name
	data   net.Listener      // for other hosts; nil: see noData
	noData error             // why there is no data listener
}

func listen(place sockets.Place) (*listeners, error) {
	local, socket, err := sockets.ListenLocal()
	if err != nil {
		return nil, err
	}
	data, noData := place.ListenData()
	return &listeners{local: local, socket: socket, data: data, noData: noData}, nil
}

func (ls *listeners) close() error {
	err := ls.local.Close()
	if ls.data != nil {
		err = errors.Join(err, ls.data.Close())
	}
	return err
}

// firstState writes the state of a new supervisor and returns it. It keeps which
// generations an earlier agent has run in the folder.
func (ls *listeners) firstState(h *host) (protocol.State, error) {
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
	state.Socket, state.Least = ls.socket, before.Least
	state.Watchdog, state.WatchdogStart = parent.PID, parent.Start
	state.Supervisor, state.SupervisorStart = own.PID, own.Start
	if ls.data != nil {
		state.Addr = ls.data.Addr().String()
	}
	return state, h.folder.WriteState(state)
}

// open begins to take connections.
func (s *supervisor) open(ctx context.Context) {
	s.loop.background(func() {
		s.accept(ctx, s.listeners.local, func(c net.Conn) error { return sockets.SameUser(c.(*net.UnixConn)) })
	})
	if s.listeners.data == nil {
		return
	}
	gate := s.host.identity().Gate()
	s.loop.background(func() {
		s.accept(ctx, s.listeners.data, func(c net.Conn) error { return gate.Prove(ctx, c) })
	})
}

// leave writes the last state and sends what is queued on connections. A driver in
// this process hears of the end and then ends the job on the other hosts; visitors
// wait for that too.
func (s *supervisor) leave() error {
	err := errors.Join(s.record.saver.close(5*time.Second), s.listeners.close())
	s.sessions.finishDriver()
	s.driving.wait(max(s.host.spec.Grace, s.host.spec.Lease) + process.KillTime + 15*time.Second)
	s.sessions.finish()
	s.loop.wait(parting)
	return err
}
