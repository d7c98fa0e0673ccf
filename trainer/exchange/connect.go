package exchange

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

// serve makes the worker a holder, or one that adds for its host, where the
// declaration says so. Where it holds nothing it still opens the door, to tell
// whoever takes it for a holder that they disagree.
func (c *Client) serve() error {
	index := c.d.HolderIndex(c.config.Peers.Self)
	if c.config.Device != nil && (index >= 0 || len(c.d.Hosts) > 0) {
		return errors.New("values on a device need servers as holders, and no local aggregation")
	}
	if c.config.Door == nil && index >= 0 && len(c.d.Workers) > 1 {
		return fmt.Errorf("%s owns variables and has no door for the other workers", c.config.Peers.Self)
	}
	relay, err := newRelay(c)
	if err != nil {
		return err
	}
	if relay != nil {
		c.relay, c.locals = relay, append(c.locals, relay.local)
	}
	if c.config.Door == nil && index < 0 {
		return nil
	}
	s := newServer(c.config.Peers)
	s.cluster, s.checkpoints = c.config.Cluster, c.config.Checkpoints
	l := newLocal(c, s, purpose)
	c.locals = append(c.locals, l)
	s.local = l
	s.declared[c.rank] = c.d
	if index >= 0 {
		m := newMembers(len(c.d.Workers), s.end, c.pieceMemory)
		shards, err := aggregate.New(c.d, c.config.Peers.Self, m)
		if err != nil {
			return err
		}
		m.tell[c.rank] = l.tell
		s.take(shards, m)
		s.filled, c.local = c.config.Peers.Self.IsChief() && c.d.Checkpoint == "", l
		l.index = index
		l.serves.Store(&served{shards, c.d.PiecesOf(index)})
		l.volumes = make([]volume, len(c.d.Variables)+1)
	}
	return nil
}

// pieceMemory is the part of the worker's memory that holds a dense piece.
func (c *Client) pieceMemory(p layout.Piece) []byte {
	v := c.d.Variable(p.Variable)
	if v.Sparse != nil {
		return nil
	}
	if c.config.Device != nil && p.Variable != c.d.LossIndex() {
		return c.config.Device.Read(p)
	}
	size := v.Dtype.Size()
	return c.values[p.Variable][p.Offset*size : (p.Offset+p.Count)*size]
}

// start begins to serve the other workers.
func (l *local) start() {
	s, door := l.server, l.client.config.Door
	s.mu.Lock()
	s.startClock(l.client.d)
	var err error
	if l == l.client.local && l.client.d.Checkpoint != "" {
		err = s.startRestore()
	}
	s.mu.Unlock()
	if err != nil {
		s.end(err)
	}
	l.running.Go(func() {
		<-s.ended
		s.farewell()
		ctx, cancel := context.WithTimeout(context.Background(), farewell)
		defer cancel()
		if l.serves.Load() != nil && door != nil {
			s.linger(ctx)
		}
	})
	if door != nil {
		door.Handle(l.purpose, s.meet)
		if l == l.client.local && l.client.d.Movable {
			door.Handle(transition.Purpose, s.receiveRows)
		}
	}
	if l.serves.Load() != nil {
		s.open() // this worker may be the only one
	}
}

// connect opens the links, declares and waits until all is ready.
func (c *Client) connect(ctx context.Context) error {
	for _, l := range c.locals {
		l.start()
	}
	body, err := json.Marshal(c.d)
	if err != nil {
		return fmt.Errorf("declaration: %w", err)
	}
	limit := c.d.Start()
	ctx, cancel := context.WithTimeoutCause(ctx, limit+farewell, fmt.Errorf("not ready within %v", limit))
	defer cancel()
	if err := c.reach(ctx, limit); err != nil {
		return err
	}
	c.lead()
	for _, l := range c.connected() {
		l.running.Go(func() { l.sendFailed(l.declare(body)) })
	}
	if err := c.ready(ctx); err != nil {
		return err
	}
	for _, l := range c.connected() {
		l.running.Go(l.send)
	}
	return nil
}

// connected returns the links that there are.
func (c *Client) connected() (links []*link) {
	for _, l := range append(c.links[:len(c.links):len(c.links)], c.up) {
		if l != nil {
			links = append(links, l)
		}
	}
	return links
}

// ready waits until all tasks that this worker deals with are ready to step.
func (c *Client) ready(ctx context.Context) error {
	for _, l := range c.connected() {
		if _, err := c.await(ctx, l.answered); err != nil {
			return err
		}
	}
	for _, l := range c.locals {
		if l.serves.Load() != nil {
			if _, err := c.await(ctx, l.answered); err != nil {
				return err
			}
		}
	}
	return nil
}

// reach opens the links, all at once. A holder that is reached may already
// say why there will be no training, which ends the waiting for the others.
func (c *Client) reach(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not reached within %v", limit))
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	for i, task := range c.d.Holders {
		if task != c.config.Peers.Self {
			group.Go(func() (err error) {
				c.links[i], err = c.link(ctx, i, task, purpose)
				return err
			})
		}
	}
	if first := c.d.HostOf(c.rank).Lo; first != c.rank {
		group.Go(func() (err error) {
			c.up, err = c.link(ctx, -1, worker(first), localPurpose)
			return err
		})
	}
	for i := range c.config.Cluster.PS {
		if ps := (cluster.Task{Role: cluster.PS, Index: i}); c.config.Peers.Self.IsChief() && c.d.HolderIndex(ps) < 0 {
			group.Go(func() error { return c.dismiss(ctx, ps) })
		}
	}
	connected := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-c.failed:
			cancel()
		case <-connected:
		}
	})
	err := group.Wait()
	close(connected)
	watching.Wait()
	if reason := c.reason(); reason != nil {
		return reason
	}
	return err
}

// link opens the link to a holder, or to the first worker of the host.
func (c *Client) link(ctx context.Context, index int, task cluster.Task, purpose string) (*link, error) {
	addr := c.config.Cluster.Addr(task)
	conn, err := peers.Dial(ctx, c.config.Peers, task, addr, purpose)
	if err != nil {
		return nil, err
	}
	l := newLink(c, index, task, addr, wire.NewConn(conn, c.config.Peers.Generation, c.d.Silence()))
	l.running.Go(l.receive)
	return l, nil
}

// dismiss tells a server that it holds nothing.
func (c *Client) dismiss(ctx context.Context, ps cluster.Task) error {
	addr := c.config.Cluster.Addr(ps)
	fail := func(err error) error { return &peers.PeerError{Task: ps, Addr: addr, Err: peers.Lost(err)} }
	raw, err := peers.Dial(ctx, c.config.Peers, ps, addr, purpose)
	if err != nil {
		return err
	}
	conn := wire.NewConn(raw, c.config.Peers.Generation, c.d.Silence())
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })() // ends Send and Next
	body, err := json.Marshal(c.d)
	if err != nil {
		return fmt.Errorf("declaration: %w", err)
	}
	if err := conn.Send(wire.Frame{Header: wire.Header{Kind: wire.Declare}, Payload: body}); err != nil {
		return fail(err)
	}
	h, err := conn.Next()
	if err == nil && h.Kind == wire.Error {
		told, failed := peers.ReadReport(conn, h)
		if err = failed; err == nil {
			var known *peers.PeerError // the reason is another task
			if errors.As(told, &known) {
				return fmt.Errorf("%s (%s) reports: %w", ps, addr, told)
			}
			err = fmt.Errorf("did not take that it owns nothing: %w", told)
		}
	} else if err == nil && h.Kind != wire.Bye {
		err = fmt.Errorf("unexpected %s frame", h.Kind)
	}
	if err != nil {
		return fail(err)
	}
	return nil
}
