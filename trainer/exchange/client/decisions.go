package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/policy"
	"github.com/plx-run/plx/trainer/wire"
)

// decision is the first shard holder's decision whether the job uses a
// worker's gradients in a step. In mode backup, a step does not wait for the
// slowest workers.
type decision struct {
	verdict policy.Verdict
	step    uint64 // step for which the first shard holder accepts gradients at the moment
}

// Error makes decision an error: if the training ends while the method answer
// waits, answer returns the decision as its error.
func (r decision) Error() string { return "the training has ended" }

// commit asks the first shard holder whether it accepts this worker's
// gradients for a step.
func (h *holders) commit(ctx context.Context, step uint64) (decision, error) {
	l := h.links[0]
	l.check(l.session.Send(wire.Frame{Header: wire.Header{Kind: wire.Commit, Step: step}}))
	return await(ctx, h, h.verdicts)
}

// fetch requests values from all shard holders: those after the given number
// of steps.
func (h *holders) fetch(steps uint64) {
	for _, l := range h.links {
		l.check(l.session.Send(wire.Frame{Header: wire.Header{Kind: wire.Fetch, Step: steps}}))
	}
}

// answer waits until one shard holder has completed the step. If the first
// holder sends a decision before that, answer returns the decision as the
// error.
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

// wait waits until every shard holder has completed the step. It returns the
// first holder's outcome, with two changes: Updates is the minimum over all
// holders, and Saved is true if any holder reports that it saved a checkpoint.
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

// answers returns one channel per shard holder that has pieces. The channel
// receives the outcome when the holder has completed the step.
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

// decided handles a Verdict frame (the decision whether a worker's gradients
// are used) or a Without frame (a worker was lost). Only the first shard
// holder may send them.
func (h *holders) decided(f wire.Header, holder int) error {
	if f.Length != 0 || holder != 0 || !h.d.Sync.WorkersCompete() || f.Kind == wire.Verdict && f.Part >= uint32(policy.Verdicts) {
		return fmt.Errorf("unexpected %s frame", f.Kind)
	}
	if f.Kind == wire.Without {
		for _, l := range h.links[1:] { // forward the frame to the other holders, so that all holders exclude the lost worker from the same step on
			h.passing.Go(func() {
				l.check(l.session.Send(wire.Frame{Header: wire.Header{Kind: wire.Without, Part: f.Part, Step: f.Step}}))
			})
		}
		return nil
	}
	select {
	case h.verdicts <- decision{policy.Verdict(f.Part), f.Step}:
		return nil
	default:
		return errors.New("sent a decision that this worker did not request")
	}
}

// takeNorm adds the sums of squares that a shard holder has reported to the
// global norm of the gradients. After the last holder's report, it sends the
// norm and the factor for clipping to all holders.
func (h *holders) takeNorm(holder int, report []byte) {
	now := h.shards.Load()
	norm, complete, err := now.norm.Take(holder, report)
	if err != nil {
		task := h.d.Holders[holder]
		h.fail(&peers.PeerError{Task: task, Addr: h.config.Cluster.Addr(task), Err: err})
		return
	}
	if !complete {
		return
	}
	factor := h.d.ClipFactor(norm)
	body := message.EncodeScale(norm, factor)
	for l := range h.holding {
		l.volumes[h.d.LossIndex()].sent.Add(uint64(wire.HeaderSize + len(body)))
		if err := l.session.Send(wire.Frame{Header: wire.Header{Kind: wire.Scale}, Payload: body}); err != nil {
			h.passing.Go(func() { l.check(err) })
		}
	}
	if h.local != nil && !h.local.idle() {
		if err := h.local.serves.Load().shards.Scale(h.rank, norm, factor); err != nil {
			h.fail(err)
		}
	}
}
