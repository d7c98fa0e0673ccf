package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/exchange/localsum"
	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

// holders represents all shard holders: those on other tasks, over links
// (connections), and those in this process.
type holders struct {
	config *Config
	d      *layout.Declaration
	rank   int
	memory *memory

	links      []*link              // connections, indexed by holder; nil if this worker itself is the holder
	up         *link                // connection to the first worker of the host, which adds the gradients of the host; nil if this worker sends directly to the servers
	locals     []*local             // all servers in this process
	serving    []*local             // the servers in this process that take part in steps
	local      *local               // the server of this worker's shards; nil if this worker holds no shards
	aggregator *localsum.Aggregator // adds gradients for the workers of the host; nil if this worker does not do that

	// passing counts goroutines that react to a frame from one holder by
	// sending a frame to the other holders. Only the receivers and the local
	// servers start them. So once these have ended, no further goroutine
	// starts.
	passing sync.WaitGroup

	shards   atomic.Pointer[shardMap]
	pulls    *pulls
	verdicts chan decision // the first holder's decisions whether this worker's gradients are used (mode backup)

	*ending
}

func newHolders(config *Config, memory *memory) *holders {
	d := &config.Declaration
	h := &holders{config: config, d: d, rank: config.Peers.Self.Index, memory: memory, links: make([]*link, len(d.Holders)),
		pulls: &pulls{open: map[uint32]*pull{}}, verdicts: make(chan decision, 2), ending: newEnding()}
	h.shards.Store(newShardMap(0, d))
	return h
}

// serve creates the servers that this process needs. r is nil if this worker
// does not add gradients for its host. A worker without shards accepts
// connections too, but only to refuse workers that connect to it by mistake.
func (h *holders) serve(r *localsum.Aggregator) error {
	self := h.config.Peers.Self
	holds := h.d.HolderIndex(self) >= 0
	switch {
	case h.config.Listener != nil:
	case holds && len(h.d.Workers) > 1:
		return fmt.Errorf("%s holds shards and has no listener for the other workers", self)
	case r != nil:
		return fmt.Errorf("%s adds the gradients of its host and has no listener for the other workers", self)
	}
	if r != nil {
		l, err := newLocal(h, r)
		if err != nil {
			return err
		}
		h.aggregator, h.locals, h.serving = r, append(h.locals, l), append(h.serving, l)
	}
	if h.config.Home != nil && (!holds || r != nil || len(h.d.Workers) > 1) {
		return fmt.Errorf("%s does not train alone, so its values cannot be kept in Config.Home", self)
	}
	if h.config.Listener == nil && !holds {
		return nil
	}
	l, err := newLocal(h, nil)
	if err != nil {
		return err
	}
	h.locals = append(h.locals, l)
	if holds {
		h.local, h.serving = l, append(h.serving, l)
	}
	if h.config.Home != nil {
		return l.serves.Load().shards.KeepOnDevice(h.config.Home)
	}
	return nil
}

// aggregates reports whether this worker adds the gradients of a variable for
// all workers of its host.
func (h *holders) aggregates(variable int) bool {
	return h.aggregator != nil && h.aggregator.Takes(variable)
}

// working returns nil while training continues. After the training has ended,
// it closes the connections and returns the reason.
func (h *holders) working() error {
	if h.reason() == nil {
		return nil
	}
	return h.hangUp()
}

// hangUp closes all links and returns the reason why the training has ended.
// It sends this reason to the shard holders first. Otherwise they would report
// a lost connection. hangUp takes at most tellTime.
func (h *holders) hangUp() error {
	reason := h.reason()
	h.each(func(l *link) { l.session.CloseWithError(reason, tellTime) })
	return reason
}

// each calls do for all links in parallel, and returns after all calls have
// returned.
func (h *holders) each(do func(*link)) {
	var doing sync.WaitGroup
	for _, l := range h.connected() {
		doing.Go(func() { do(l) })
	}
	doing.Wait()
}

// connected returns all links.
func (h *holders) connected() (links []*link) {
	for _, l := range append(h.links[:len(h.links):len(h.links)], h.up) {
		if l != nil {
			links = append(links, l)
		}
	}
	return links
}

// close says goodbye to all holders, unless the training has failed. See
// Client.Close.
func (h *holders) close() error {
	failure := context.Cause(h.ctx)
	if h.parting.Swap(true) {
		return nil
	}
	var mu sync.Mutex
	var errs []error
	note := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		errs = append(errs, err)
	}
	h.each(func(l *link) { note(l.close(failure == nil)) })
	h.stop(transition.ErrEnded) // wakes all goroutines that wait for a holder
	var closing sync.WaitGroup
	for _, l := range h.locals {
		closing.Go(func() { note(l.close(failure)) })
	}
	closing.Wait()
	h.passing.Wait()
	return errors.Join(errs...)
}

// await receives one value from the channel answer, on which a shard holder's
// reply arrives. If the training or ctx ends first, await closes the
// connections and returns the reason.
func await[T any](ctx context.Context, h *holders, answer <-chan T) (T, error) {
	var none T
	select {
	case x := <-answer:
		return x, nil
	case <-h.ctx.Done():
	case <-ctx.Done():
		h.fail(context.Cause(ctx)) // end the training, because a reply that arrives later could overwrite the caller's memory
	}
	return none, h.hangUp()
}

// connect opens all links (connections to shard holders) in parallel. The
// links will send the gradient sums that out collects. step is the number of
// the first step.
func (h *holders) connect(ctx context.Context, out *aggregate.Outbox, step uint64) error {
	for _, l := range h.locals {
		l.start()
	}
	limit := h.d.Start()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not reached within %v", limit))
	defer cancel()
	defer context.AfterFunc(h.ctx, cancel)()
	group, ctx := errgroup.WithContext(ctx)
	open := func(index int, task cluster.Task, purpose string, into **link) {
		group.Go(func() (err error) {
			*into, err = openLink(ctx, h, index, task, purpose, out, step)
			return err
		})
	}
	for i, task := range h.d.Holders {
		if task != h.config.Peers.Self {
			open(i, task, message.ToHolder, &h.links[i])
		}
	}
	if first := h.d.HostOf(h.rank).Lo; first != h.rank {
		open(-1, cluster.Task{Role: cluster.Worker, Index: first}, message.ToFirst, &h.up)
	}
	for i := range h.config.Cluster.PS {
		if ps := (cluster.Task{Role: cluster.PS, Index: i}); h.config.Peers.Self.IsChief() && h.d.HolderIndex(ps) < 0 {
			group.Go(func() error { return h.dismiss(ctx, ps) })
		}
	}
	err := group.Wait()
	if reason := h.reason(); reason != nil {
		return reason
	}
	return err
}

// dismiss tells a parameter server to end, because it has no pieces in the
// declaration.
func (h *holders) dismiss(ctx context.Context, ps cluster.Task) error {
	s, err := peers.Open(ctx, h.config.Peers, ps, h.config.Cluster.Addr(ps), message.ToHolder, h.d.Silence())
	if err != nil {
		return err
	}
	defer s.Close()
	defer s.CloseWith(ctx)()
	if err := s.SendJSON(wire.Declare, h.d, message.MaxDeclaration); err != nil {
		return s.Blame(err)
	}
	answer, err := s.Next()
	switch {
	case errors.Is(err, peers.ErrGoodbye):
		return nil
	case err == nil:
		err = fmt.Errorf("unexpected %s frame", answer.Kind)
	}
	return s.Blame(err)
}

// begin sends the declaration to all connected tasks. It returns after all of
// them are ready for the first step.
func (h *holders) begin(ctx context.Context) error {
	body, err := json.Marshal(h.d)
	if err != nil {
		return fmt.Errorf("declaration: %w", err)
	}
	for _, l := range h.connected() {
		l.running.Go(func() { l.check(l.declare(body)) })
	}
	for _, l := range h.connected() {
		if _, err := h.answer(ctx, l.answered); err != nil {
			return err
		}
	}
	for _, l := range h.serving {
		if _, err := h.answer(ctx, l.answered); err != nil {
			return err
		}
	}
	for _, l := range h.connected() {
		l.running.Go(func() { l.check(l.sender.run(h.ctx, l.over)) })
	}
	return nil
}

// lead sets the connections to which the two gates pass gradient sums. A gate
// holds a sum back until it may be sent.
//
// Sums from own (this worker's gate) go to the first worker of the host if
// that worker adds the gradients of the variable for the host. Otherwise they
// go directly to the shard holders. Sums from host (the gate for the sums of
// the whole host) go to the holders.
func (h *holders) lead(own, host *gate) {
	var direct, aggregated []*sender
	for i, l := range h.links {
		switch {
		case l == nil:
		case !h.d.Aggregates(h.d.Holders[i]) || h.aggregator == nil && h.up == nil:
			direct = append(direct, l.sender)
		case h.aggregator != nil:
			aggregated = append(aggregated, l.sender)
		}
	}
	if h.up != nil {
		direct = append(direct, h.up.sender)
	}
	own.lead(direct)
	host.lead(aggregated)
}

// tell sends a frame to all shard holders in other tasks that have pieces of
// variables.
func (h *holders) tell(frame wire.Frame) error {
	for l := range h.holding {
		if err := l.session.Send(frame); err != nil {
			l.check(err)
			return h.working()
		}
	}
	return nil
}

// holding yields the links to those shard holders that have pieces under the
// current placement.
func (h *holders) holding(yield func(*link) bool) {
	holds := h.shards.Load().holds
	for i, l := range h.links {
		if l != nil && holds[i] && !yield(l) {
			return
		}
	}
}

// Traffic counts the bytes on one connection, including frame headers and
// heartbeats.
type Traffic struct {
	Peer           cluster.Task
	Served         bool // true if the peer opened the connection, because this worker is a shard holder or the first worker of its host
	Sent, Received uint64
}

func (h *holders) traffic() (all []Traffic) {
	for _, l := range h.connected() {
		sent, received := l.session.Traffic()
		all = append(all, Traffic{l.session.Task, false, sent, received})
	}
	for _, l := range h.locals {
		for _, w := range l.server.Workers() {
			if w.Addr != "" {
				all = append(all, Traffic{w.Task, true, w.Sent, w.Received})
			}
		}
	}
	return all
}
