//go:build linux

package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/agent/sockets"
	"github.com/plx-run/plx/launcher/driver"
	"github.com/plx-run/plx/launcher/event"
	"github.com/plx-run/plx/launcher/protocol"
)

// driving runs the driver (the code that controls all hosts of a job) inside
// the supervisor. This happens only for a detached job, on the host of worker
// 0.
type driving struct {
	*parts
	shutdown *shutdown
	events   *event.Log
	begun    time.Time     // when this agent became the driver, the process that controls the job
	done     chan struct{} // closed when driver.Run has returned; nil if no driver runs in this process
}

// start runs the driver in a new goroutine. The driver connects to this agent
// and to all other agents, and controls the job until it has ended.
func (d *driving) start(m protocol.Drive) {
	if d.done != nil || d.record.ending() {
		return
	}
	d.done = make(chan struct{})
	d.record.drives(protocol.Idle)
	hosts := make([]driver.Host, len(m.Peers))
	for i, peer := range m.Peers {
		hosts[i] = d.reach(peer)
	}
	spec := d.host.spec
	d.events, d.begun = event.New(event.File(d.host.folder.Events())), time.Now()
	d.events.Begin(spec.Job, spec.Name, string(cmp.Or(spec.Command.Base, spec.Command.Name)), m.Plan.Hosts)
	opts := driver.Options{
		Lease:    d.host.spec.Lease,
		Observer: d,
		Events:   d.events,
		Join: func(index int, j protocol.Joining) driver.Host {
			return d.reach(protocol.Peer{Index: index, Host: j.Host, Addr: j.Addr})
		},
	}
	go func() {
		defer close(d.done)
		v, err := driver.Run(context.Background(), m.Plan, hosts, opts)
		d.loop.do(func() { d.returned(v, err) })
	}()
}

// returned ends the job on this host after the driver (the code that controls
// the job) has returned. If the job had a verdict (a result), the driver
// itself has already requested the end, and returned changes nothing.
func (d *driving) returned(v protocol.Verdict, err error) {
	if err != nil {
		d.host.log.Printf("drive the job: %v", err)
	}
	if v.Reason == "" {
		v = d.host.failed(fmt.Sprintf("drive the job: %v", err))
	}
	d.events.Ended(v.Code, v.Reason, time.Since(d.begun), err)
	d.shutdown.end(v, d.host.spec.Grace, "the job's driver failed")
}

// PhaseChanged records the job's new phase. It implements driver.Observer.
func (d *driving) PhaseChanged(p protocol.Phase) { d.loop.do(func() { d.record.drives(p) }) }

// Notice writes a message of the driver (the code that controls the job) to
// the agent's log.
func (d *driving) Notice(line string) { d.host.log.Print(line) }

// HangFound does nothing: the log already has the driver's lines about the
// hang, and the job's verdict (its result) has the reason.
func (d *driving) HangFound(protocol.Hang) {}

// TasksAssigned records on which hosts the tasks of a new generation (run of
// all tasks) run.
func (d *driving) TasksAssigned(generation int, hosts []protocol.HostPlan) {
	laid := &protocol.Layout{Generation: generation, Hosts: hosts}
	d.loop.do(func() { d.record.Layout, d.record.changed = laid, true })
}

// reach returns a driver.Host that connects to the agent at peer.
func (d *driving) reach(peer protocol.Peer) driver.Host {
	return driver.Host{Name: peer.Host, Agent: peerDialer{d, peer}}
}

// peerDialer connects to the agent of a host: over the local Unix socket if
// the host is this one, else over TCP.
type peerDialer struct {
	*driving
	peer protocol.Peer
}

// Dial connects to the agent. The error is a driver.ErrNoAgent if the host refuses
// the connection.
func (p peerDialer) Dial(ctx context.Context) (*protocol.Conn, error) {
	var conn net.Conn
	var err error
	if p.peer.Index == p.host.identity.HostIndex {
		conn, err = sockets.DialLocal(ctx, p.record.Socket)
	} else {
		conn, err = p.host.identity.Dial(ctx, p.peer)
	}
	if errors.Is(err, unix.ECONNREFUSED) { // the host is up, but no agent listens on the port
		err = fmt.Errorf("%w: %w", driver.ErrNoAgent, err)
	}
	if err != nil {
		return nil, err
	}
	return sockets.Open(ctx, conn)
}
