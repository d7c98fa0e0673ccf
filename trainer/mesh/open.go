package mesh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

// open joins this worker to all others. It needs m.calling.
func (m *Mesh) open(ctx context.Context) error {
	if m.opened {
		return nil
	}
	if err := m.check(); err != nil {
		return err
	}
	if m.world() == 1 {
		m.opened = true
		return nil
	}
	late := fmt.Errorf("not there within %v", m.config.Start)
	ctx, cancel := context.WithTimeoutCause(ctx, m.config.Start, late)
	defer cancel()
	m.config.Door.Handle(purpose, m.serve)
	patient, giveUp := context.WithCancel(ctx)
	defer giveUp()
	var dialling sync.WaitGroup
	dialled := make([]dialled, m.config.Rank)
	for rank := range dialled {
		dialling.Go(func() { dialled[rank] = m.dial(ctx, patient, rank) })
	}
	missing := m.await(ctx)
	why := context.Cause(ctx)
	giveUp()
	timer := time.AfterFunc(hangUp, cancel) // a proof that is cut off would look like this worker's death
	dialling.Wait()
	timer.Stop()
	m.opened = len(missing) == 0
	if m.opened {
		return nil
	}
	first := missing[0]
	err := fmt.Errorf("no connection for collectives: %w: no sign of %v", why, missing)
	if first.Index < len(dialled) && dialled[first.Index].err != nil {
		err = fmt.Errorf("no connection for collectives: %w", dialled[first.Index].err)
	}
	err = m.fail(&peers.PeerError{Task: first, Addr: m.config.Addrs[first.Index], Err: err})
	for rank, d := range dialled {
		if d.conn != nil {
			m.join(rank, m.config.Addrs[rank], d.conn) // it is told, whenever it looks
		}
	}
	return err
}

// await waits until all links are there, ctx ends or the mesh breaks, and
// returns who is missing.
func (m *Mesh) await(ctx context.Context) []cluster.Task {
	for {
		missing := m.missing()
		if len(missing) == 0 {
			return nil
		}
		select {
		case <-m.arrived:
		case <-m.failed:
			return missing
		case <-ctx.Done():
			return missing
		}
	}
}

func (m *Mesh) check() error {
	c := m.config
	self := cluster.Task{Role: cluster.Worker, Index: c.Rank}
	switch {
	case c.Rank < 0 || c.Rank >= len(c.Addrs):
		return fmt.Errorf("rank %d in a world of %d", c.Rank, len(c.Addrs))
	case len(c.Addrs) > 1 && c.Door == nil:
		return fmt.Errorf("no door in a world of %d", len(c.Addrs))
	case len(c.Addrs) > 1 && (c.Peers.Self != self || c.Peers.Workers != len(c.Addrs)):
		return fmt.Errorf("%s of %d workers has rank %d in a world of %d", c.Peers.Self, c.Peers.Workers, c.Rank, len(c.Addrs))
	}
	return wire.CheckHost()
}

func (m *Mesh) missing() (tasks []cluster.Task) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for rank, l := range m.links {
		if l == nil && rank != m.config.Rank {
			tasks = append(tasks, task(rank))
		}
	}
	return tasks
}

// dialled is what became of dialling: joined, or an error, with a connection
// if the other worker has not come to its first collective.
type dialled struct {
	conn net.Conn
	err  error
}

// dial reaches a worker of a lower rank. That one says a byte once it has come
// to its first collective: frames and their heartbeats begin only then. The
// byte is waited for until patient ends, all else until ctx does.
func (m *Mesh) dial(ctx, patient context.Context, rank int) dialled {
	addr := m.config.Addrs[rank]
	for {
		conn, err := peers.Dial(ctx, m.config.Peers, task(rank), addr, purpose)
		var peer *peers.PeerError
		if errors.As(err, &peer) {
			if ctx.Err() == nil {
				m.fail(err) // a proof that failed
			}
			return dialled{err: peer.Err}
		}
		if err = greeted(patient, conn); err == nil {
			m.join(rank, addr, conn)
			return dialled{}
		}
		if patient.Err() != nil {
			return dialled{conn, fmt.Errorf("%w: it has not come to its first collective", err)}
		}
		conn.Close() // the task has hung up: it may be on its way out
		select {
		case <-time.After(again):
		case <-patient.Done():
			return dialled{err: fmt.Errorf("%w: %w", context.Cause(patient), peers.Lost(err))}
		}
	}
}

// greeted waits for the acceptor's byte.
func greeted(ctx context.Context, conn net.Conn) error {
	stop := context.AfterFunc(ctx, func() { conn.SetReadDeadline(time.Unix(1, 0)) })
	_, err := conn.Read(make([]byte, 1))
	if !stop() {
		return context.Cause(ctx)
	}
	return err
}

// serve takes a connection of a worker of a higher rank.
func (m *Mesh) serve(p peers.Peer) {
	conn := p.Conn
	conn.SetWriteDeadline(time.Now().Add(hangUp)) // a dead conn fails below
	if _, err := conn.Write([]byte{1}); err != nil || p.Task.Role != cluster.Worker ||
		p.Task.Index <= m.config.Rank || p.Task.Index >= m.world() {
		conn.Close()
		return
	}
	conn.SetWriteDeadline(time.Time{})
	m.join(p.Task.Index, p.Addr, conn)
}

// join makes conn the link to a rank. Where the mesh is broken already the
// peer is told so.
func (m *Mesh) join(rank int, addr string, conn net.Conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.links[rank] != nil || m.closed {
		conn.Close() // a second one, or a late one
		return
	}
	l := newLink(m, rank, addr, conn)
	m.links[rank] = l
	m.running.Go(l.read)
	if err := m.err; err != nil {
		m.running.Go(func() { l.tell(err) })
	}
	select {
	case m.arrived <- struct{}{}:
	default: // it will look anyway
	}
}
