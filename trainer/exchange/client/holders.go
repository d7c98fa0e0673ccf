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
	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/exchange/relay"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

// holders are the shard holders as one worker reaches them: over links, or in
// this process.
type holders struct {
	config *Config
	d      *layout.Declaration
	rank   int
	memory *memory

	links  []*link      // by holder; nil: this worker is the holder
	up     *link        // to the first worker of the host; nil: this worker sends itself
	locals []*local     // servers in this process
	local  *local       // the one that holds this worker's shards; nil: it holds none
	host   *host        // what relay sends
	relay  *relay.Relay // of the first worker of a host; nil: it adds for no other worker

	shards   atomic.Pointer[shardMap]
	pulls    pulls
	verdicts chan ruling

	ctx   context.Context // ends when the training has failed or the connections are closed; the cause says why
	stop  context.CancelCauseFunc
	ended atomic.Bool // the connections end in good order
}

// newHolders makes the servers in this process, if the declaration needs any.
// A worker that holds nothing still listens, to tell whoever takes it for a
// holder that they disagree.
func newHolders(config *Config, memory *memory, progress *progress) (*holders, error) {
	d, self := &config.Declaration, config.Peers.Self
	h := &holders{config: config, d: d, rank: self.Index, memory: memory, links: make([]*link, len(d.Holders)), verdicts: make(chan ruling, 2)}
	h.ctx, h.stop = context.WithCancelCause(context.Background())
	h.shards.Store(newShardMap(0, d))
	holds := d.HolderIndex(self) >= 0
	h.host = &host{holders: h, gate: &gate{closed: true}, progress: progress}
	h.relay = relay.New(d, self.Index, h.host)
	switch {
	case config.Device != nil && (holds || len(d.Hosts) > 0):
		return nil, errors.New("values on a device need servers as holders, and no local aggregation")
	case config.Listener != nil:
	case holds && len(d.Workers) > 1:
		return nil, fmt.Errorf("%s holds shards and has no listener for the other workers", self)
	case h.relay != nil:
		return nil, fmt.Errorf("%s adds the gradients of its host and has no listener for the other workers", self)
	}
	if h.relay != nil {
		if err := h.serve(h.relay); err != nil {
			return nil, err
		}
	}
	if config.Listener != nil || holds {
		if err := h.serve(nil); err != nil {
			return nil, err
		}
	}
	if holds {
		h.local = h.locals[len(h.locals)-1]
	}
	return h, nil
}

func (h *holders) serve(r *relay.Relay) error {
	l, err := newLocal(h, r)
	if err == nil {
		h.locals = append(h.locals, l)
	}
	return err
}

// relays reports whether this worker adds a variable's gradients for its host.
func (h *holders) relays(variable int) bool { return h.relay != nil && h.relay.Takes(variable) }

// fail ends the training of this worker, once, with err.
func (h *holders) fail(err error) {
	if !h.ended.Load() {
		h.stop(err)
	}
}

// reason returns why the training has ended; nil: it has not.
func (h *holders) reason() error {
	if h.ended.Load() && h.ctx.Err() == nil {
		return transition.ErrEnded
	}
	return context.Cause(h.ctx)
}

// working hangs up if the training has ended, and returns why it has.
func (h *holders) working() error {
	if h.reason() == nil {
		return nil
	}
	return h.hangUp()
}

// hangUp tells the holders why this worker stops, so that they pass the cause
// on and not its consequence, and closes the links. It returns the reason, in
// bounded time.
func (h *holders) hangUp() error {
	reason := h.reason()
	h.each(func(l *link) { l.session.Tell(reason, tellTime) })
	return reason
}

// each calls do for all links at once, and waits.
func (h *holders) each(do func(*link)) {
	var doing sync.WaitGroup
	for _, l := range h.connected() {
		doing.Go(func() { do(l) })
	}
	doing.Wait()
}

// connected returns the links that there are.
func (h *holders) connected() (links []*link) {
	for _, l := range append(h.links[:len(h.links):len(h.links)], h.up) {
		if l != nil {
			links = append(links, l)
		}
	}
	return links
}

// close says goodbye if the training has not failed, see Client.Close.
func (h *holders) close() error {
	healthy := h.ctx.Err() == nil
	if h.ended.Swap(true) {
		return nil
	}
	var mu sync.Mutex
	var errs []error
	note := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		errs = append(errs, err)
	}
	h.each(func(l *link) { note(l.close(healthy)) })
	h.stop(transition.ErrEnded) // whoever still waits for something waits in vain
	var closing sync.WaitGroup
	for _, l := range h.locals {
		closing.Go(func() { note(l.close(healthy)) })
	}
	closing.Wait()
	return errors.Join(errs...)
}

// await takes one answer of a holder.
func await[T any](ctx context.Context, h *holders, answer <-chan T) (T, error) {
	var none T
	select {
	case x := <-answer:
		return x, nil
	case <-h.ctx.Done():
	case <-ctx.Done():
		h.fail(context.Cause(ctx)) // what was requested may still be written
	}
	return none, h.hangUp()
}

// connect opens the links. Sums of a step come from out, and step is the first one.
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

// dismiss tells a server that it holds nothing.
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

// begin declares what is trained, and returns when all tasks that this worker
// deals with are ready to step.
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
	for _, l := range h.serving() {
		if _, err := h.answer(ctx, l.answered); err != nil {
			return err
		}
	}
	for _, l := range h.connected() {
		l.running.Go(l.send)
	}
	return nil
}

// lead tells own, the gate of this worker, and that of the host where they lead: what is added per host goes through
// the first worker of the host, or from there on to the holders; everything
// else goes to the holders directly.
func (h *holders) lead(own *gate) {
	var direct, aggregated []*link
	for i, l := range h.links {
		switch {
		case l == nil:
		case !h.d.Aggregates(h.d.Holders[i]) || h.relay == nil && h.up == nil:
			direct = append(direct, l)
		case h.relay != nil:
			aggregated = append(aggregated, l)
		}
	}
	if h.up != nil {
		direct = append(direct, h.up)
	}
	own.lead(direct)
	h.host.gate.lead(aggregated)
}

// serving returns the servers in this process that have shards.
func (h *holders) serving() (serving []*local) {
	for _, l := range h.locals {
		if l.serves.Load() != nil {
			serving = append(serving, l)
		}
	}
	return serving
}

// tell sends a frame to all other holders that have pieces.
func (h *holders) tell(frame wire.Frame) error {
	for _, l := range h.holding() {
		if err := l.session.Send(frame); err != nil {
			l.check(err)
			return h.working()
		}
	}
	return nil
}

// holding returns the links to the holders that have pieces for the time being.
func (h *holders) holding() (links []*link) {
	holds := h.shards.Load().holds
	for i, l := range h.links {
		if l != nil && holds[i] {
			links = append(links, l)
		}
	}
	return links
}

// answer takes one answer to a step. A ruling that comes instead is the error.
func (h *holders) answer(ctx context.Context, answered <-chan aggregate.Outcome) (aggregate.Outcome, error) {
	select {
	case o := <-answered:
		return o, nil
	case r := <-h.verdicts:
		return aggregate.Outcome{}, r
	case <-h.ctx.Done():
	case <-ctx.Done():
		h.fail(context.Cause(ctx))
	}
	return aggregate.Outcome{}, h.hangUp()
}

// wait returns what the first holder knows of the step after each one has
// answered, with the fewest updates that any of them had, and whether any was
// told to save.
func (h *holders) wait(ctx context.Context) (end aggregate.Outcome, err error) {
	for i, answered := range h.answers() {
		o, err := h.answer(ctx, answered)
		if err != nil {
			return end, err
		}
		if i == 0 {
			end = o
		}
		end.Updates, end.Saved = min(end.Updates, o.Updates), end.Saved || o.Saved
	}
	return end, nil
}

// answers returns the answers that a step waits for.
func (h *holders) answers() (all []<-chan aggregate.Outcome) {
	holds := h.shards.Load().holds
	for i, l := range h.links {
		switch {
		case h.up != nil && h.d.Aggregates(h.d.Holders[i]):
		case !holds[i]:
		case l != nil:
			all = append(all, l.answered)
		default:
			all = append(all, h.local.answered)
		}
	}
	if h.up != nil {
		all = append(all, h.up.answered)
	}
	return all
}
