package launcher

import (
	"context"
	"sync/atomic"

	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/driver"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/jobs"
	"github.com/plx-run/plx/launcher/protocol"
)

// member is a host of a job that this process drives.
type member struct {
	drive  *drive
	index  int // into drive.members
	agent  *hosts.AgentHost
	tasks  []protocol.TaskSpec // as placed, or as the host was to join with
	joined bool                // plx scale has started its agent
	lost   atomic.Bool         // it has no agent
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

// host is the member as the driver knows it. ctx is for following the logs.
func (m *member) host(ctx context.Context) driver.Host {
	return driver.Host{Name: m.agent.Name(), Agent: &dialer{member: m, ctx: context.WithoutCancel(ctx), connects: m.joined}, Swept: true}
}

// dialer is how the driver reaches a member. The logs are followed while the agent is
// up.
type dialer struct {
	member   *member
	ctx      context.Context
	connects bool // the agent was started: Dial connects to it
}

// Dial starts the agent at the first call, unless plx scale has, and connects to it
// later. The driver calls it from one goroutine at a time.
func (d *dialer) Dial(ctx context.Context) (*protocol.Conn, error) {
	if d.connects {
		return d.member.agent.Connect(ctx)
	}
	d.connects = true
	return d.member.start(ctx)
}

// Revive starts a new agent after the last one was lost.
func (d *dialer) Revive(ctx context.Context) (*protocol.Conn, error) { return d.member.revive(ctx) }

// Up has the logs of the agent followed.
func (d *dialer) Up() {
	m := d.member
	m.lost.Store(false)
	m.drive.streams.Follow(d.ctx, m.agent, m.drive.out, m.drive.launch.cfg.Lease)
}

// Lost notes that the member has no agent.
func (d *dialer) Lost() { d.member.lost.Store(true) }

// unreached is a host that joined and cannot be reached from here.
type unreached struct{ err error }

func (u unreached) Dial(context.Context) (*protocol.Conn, error) { return nil, hosts.NotStarted(u.err) }

// start starts the agent. Up to hosts.FanOut agents are started at once.
func (m *member) start(ctx context.Context) (*protocol.Conn, error) {
	select {
	case m.drive.starting <- struct{}{}:
		defer func() { <-m.drive.starting }()
	case <-ctx.Done():
		return nil, hosts.NotStarted(context.Cause(ctx))
	}
	spec, err := m.drive.launch.spec(m.index, m.agent, m.tasks)
	if err != nil {
		return nil, hosts.NotStarted(err)
	}
	return m.agent.Start(ctx, spec)
}

// revive starts a new agent after the last one was lost. The host may have lost its
// files too.
func (m *member) revive(ctx context.Context) (*protocol.Conn, error) {
	if m.agent.Facts.OS == "" { // of a host that joined nothing is known here
		if err := m.agent.Inspect(ctx); err != nil {
			return nil, err
		}
	}
	if err := m.agent.Send(ctx, m.drive.launch.artifacts.Blobs(m.agent.Facts.Platform)); err != nil {
		return nil, err
	}
	if err := m.agent.Reap(ctx); err != nil {
		return nil, err
	}
	return m.start(ctx)
}

// join adds a host on which plx scale has started an agent. This process reaches it with
// its own SSH, by the host's line.
func (d *drive) join(ctx context.Context, j protocol.Joining) driver.Host {
	a, err := d.joining(ctx, j)
	m := &member{drive: d, index: len(d.members), agent: a, tasks: j.Tasks, joined: true}
	d.members = append(d.members, m)
	if err != nil {
		return driver.Host{Name: j.Host, Agent: unreached{err}}
	}
	return m.host(ctx)
}

// joining opens the host that an agent announced. With an error it returns a host that
// cannot be reached.
func (d *drive) joining(ctx context.Context, j protocol.Joining) (a *hosts.AgentHost, err error) {
	line, err := hosts.ReadPlan(j.HostPlan)
	if err == nil {
		var set *hosts.Set
		set, err = hosts.Open(ctx, hosts.Reach{Hosts: []hostfile.Host{line}, AcceptNewHostKeys: d.launch.cfg.AcceptNewHostKeys}, d.launch.printer)
		d.launch.set.Add(set)
		if err == nil {
			return &hosts.AgentHost{Host: set.Hosts[0], Job: d.launch.job, Folder: j.Folder, Binary: j.Binary}, nil
		}
	}
	unreached := func(context.Context) (hosts.Transport, error) { return nil, err }
	return &hosts.AgentHost{Host: hosts.NewHost(hostfile.Host{Name: j.Host}, unreached), Job: d.launch.job}, err
}
