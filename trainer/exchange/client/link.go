package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

const (
	goodbyeTime = 5 * time.Second // longest time to wait for a holder's reply to a goodbye
	tellTime    = time.Second     // longest time to wait until a holder (a task that stores variables) closes the connection after an error was sent to it
)

// link is a worker's connection to one holder (a task that stores variables).
// One goroutine receives frames, and another sends them.
type link struct {
	*holder
	holders  *holders
	sender   *sender
	requests *requests // sends requests for rows and handles their replies
	replies  *replies  // passes on the replies to requests that are made between two steps
	running  sync.WaitGroup

	answered chan aggregate.Outcome  // receives the outcome of each step; a first, zero outcome means that steps may begin
	over     chan struct{}           // closed after the goroutine that receives frames has ended
	coming   atomic.Pointer[holding] // pieces of variables that the holder (the task at the other end) will store after the current move of variables; nil if no variables are moving

	// Only the goroutine that receives frames uses the following fields.
	steps uint64   // number of completed steps whose updates are in the values that arrive next
	came  []uint64 // indexed by piece of a variable: the value that the field steps will have when the piece's next value arrives
	body  []byte
}

// openLink connects to a task that stores variables, or to the first worker of
// this host, which adds up the gradients of the host's workers. The link will
// send the sums of gradients in out. Its first step has the number step.
func openLink(ctx context.Context, h *holders, index int, task cluster.Task, purpose string, out *aggregate.Outbox, step uint64) (*link, error) {
	session, err := peers.Open(ctx, h.config.Peers, task, h.config.Cluster.Addr(task), purpose, h.d.Silence())
	if err != nil {
		return nil, err
	}
	if h.aggregator != nil && h.d.Aggregates(task) {
		out = h.aggregator.Outbox
	}
	to := &holder{session: session, index: index, d: h.d, out: out, trace: h.config.Trace, volumes: make([]volume, len(h.d.Variables)+1)}
	now := newHolding(0, step, h.d, index, out)
	to.holds.Store(now)
	l := &link{holder: to, holders: h, sender: newSender(to), replies: newReplies(to), steps: step,
		answered: make(chan aggregate.Outcome, 1), over: make(chan struct{})}
	l.requests = &requests{holder: to, jobs: l.sender.jobs, pulls: h.pulls}
	if index < 0 {
		step++ // a task that stores variables first sends the initial values; the first worker of the host sends none, so that its first value arrives one step later
	}
	l.came = slices.Repeat([]uint64{step}, len(now.pieces))
	l.running.Go(l.receive)
	return l, nil
}

// declare sends the declaration (the list of all variables) to the holder. The
// chief (worker 0) also sends the initial values, unless training resumes from
// a checkpoint.
func (l *link) declare(body []byte) error {
	h := l.holders
	frames := []wire.Frame{{Header: wire.Header{Kind: wire.Declare}, Payload: body}}
	for _, p := range l.holds.Load().pieces {
		if !h.config.initial() || p.Variable == h.d.LossIndex() {
			continue
		}
		if values := h.memory.initial(p); values != nil {
			header := wire.Header{Kind: wire.Initial, Variable: uint32(p.Variable), Offset: uint64(p.Offset)}
			frames = append(frames, wire.Frame{Header: header, Payload: values})
		}
	}
	return l.session.Send(frames...)
}

// check ends the training if err, the result of a Send, is not nil. If the
// task at the other end has reported a reason, the training ends with that
// reason.
func (l *link) check(err error) {
	if err != nil {
		l.fail(l.session.SendFailed(err))
	}
}

// fail ends the training with err. Unless err already blames another task, the
// error blames the task at the other end of this link.
func (l *link) fail(err error) {
	if errors.Is(err, peers.ErrGoodbye) {
		err = &peers.PeerError{Task: l.session.Task, Addr: l.session.Addr, Err: errors.New("said goodbye in the middle of the training")}
	}
	l.holders.fail(l.session.Blame(err))
}

// close closes the connection. If goodbye is true, close first says goodbye
// and waits for the reply.
func (l *link) close(goodbye bool) (err error) {
	if goodbye {
		err = l.session.Goodbye(goodbyeTime)
	}
	l.session.Close() // ignore the error: nothing more is sent or received
	l.running.Wait()
	if err == nil {
		return nil
	}
	var told *peers.PeerError // an error of another task, which the task at the other end has reported instead of replying
	if _, cause := l.session.Next(); errors.As(cause, &told) && told.Task != l.session.Task {
		return cause
	}
	return err
}

// receive handles the frames from the holder (the task that stores the shard)
// until the connection ends.
func (l *link) receive() {
	defer close(l.over)
	for ; ; l.steps++ {
		end, err := l.receiveStep()
		if err == nil {
			select {
			case l.answered <- end:
				continue
			default:
				err = errors.New("sent the outcome of a step that this worker has not finished")
			}
		}
		l.fail(err)
		l.session.Refuse(l.holders.reason(), tellTime) // tell the task at the other end the reason, so that it ends too
		return
	}
}

// receiveStep receives all values of one step and then the frame that ends the
// step. That is a Ready frame before the first step, and a Done frame after
// each step.
func (l *link) receiveStep() (aggregate.Outcome, error) {
	h := l.holders
	left := l.holds.Load().valued
	first := h.d.FirstStep(h.rank)
	if l.index < 0 && l.steps == first {
		left = 0 // this link leads to the first worker of the host, which sends no initial values: only tasks that store variables do
	}
	for {
		f, err := l.session.Next()
		if err == nil {
			err = l.timely(f)
		}
		if err != nil {
			return aggregate.Outcome{}, err
		}
		switch f.Kind {
		case wire.Value:
			left--
			err = l.value(f, l.steps > first)
		case wire.Moved:
			left, err = l.change(f, left)
		case wire.Room, wire.Cut, wire.Alone:
			err = l.replies.take(f)
		case wire.Norm:
			err = l.squares(f)
		case wire.Rows:
			err = l.requests.pulled(f)
		case wire.EarlyReply, wire.FinalReply:
			err = l.requests.given(f)
		case wire.Verdict, wire.Without:
			err = h.decided(f, l.index)
		default:
			return l.end(f, l.steps == first, left)
		}
		if err != nil {
			return aggregate.Outcome{}, err
		}
	}
}

// timely returns an error if the sender of a frame uses another version of the
// placement (which task stores which variables) than this worker.
func (l *link) timely(f wire.Header) error {
	if now := l.holds.Load().epoch; f.Epoch != now && f.Kind != wire.Moved {
		return fmt.Errorf("%s frame of epoch %d, this is epoch %d", f.Kind, f.Epoch, now)
	}
	return nil
}

// value reads the new value of a piece into the worker's memory. It fails if a
// value arrives twice in a step. counts is false for initial values, which are
// not counted as traffic of a step.
func (l *link) value(f wire.Header, counts bool) error {
	now, h := l.holds.Load(), l.holders
	i, ok := now.where[layout.Place{Variable: int(f.Variable), Offset: int(f.Offset)}]
	if !ok {
		return fmt.Errorf("value of variable %d from element %d, which that task does not hold", f.Variable, f.Offset)
	}
	variable, into := int(f.Variable), h.memory.of(now.pieces[i])
	if into == nil || f.Step != l.steps || f.Length != uint64(len(into)) || l.came[i] != l.steps {
		return fmt.Errorf("value of variable %d: %d bytes after %d steps, want %d bytes after %d, once",
			f.Variable, f.Length, f.Step, len(into), l.steps)
	}
	if h.aggregator != nil && h.aggregator.Early(variable, l.steps) {
		return fmt.Errorf("value of variable %d after step %d, before it was begun", f.Variable, l.steps-1)
	}
	l.came[i] = l.steps + 1
	began := time.Now()
	if err := l.session.Payload(into); err != nil {
		return err
	}
	if l.trace.Enabled() {
		l.trace.Span("receive", h.d.Variable(variable).Name, began, time.Now(),
			"bucket", l.out.Bucket(variable), "bytes", len(into), "from", l.session.Task.String())
	}
	if counts {
		h.memory.came(now.pieces[i])
		l.volumes[variable].received.Add(wire.HeaderSize + f.Length)
		if h.aggregator != nil {
			h.aggregator.Value(variable)
		}
	}
	return nil
}

// room returns a buffer of n bytes. The next call of room overwrites it.
func (l *link) room(n int) []byte {
	l.body = slices.Grow(l.body[:0], n)[:n]
	return l.body
}

// squares reads sums of squares of gradients from the holder, the task at the
// other end of the link. The global norm is computed from these sums.
func (l *link) squares(f wire.Header) error {
	h := l.holders
	if most := aggregate.MaxReport(h.shards.Load().d, l.index); l.index < 0 || f.Length > most {
		return fmt.Errorf("norm frame of %d bytes, want at most %d", f.Length, most)
	}
	report := l.room(int(f.Length))
	if err := l.session.Payload(report); err != nil {
		return err
	}
	l.volumes[h.d.LossIndex()].received.Add(wire.HeaderSize + f.Length)
	h.takeNorm(l.index, report)
	return nil
}

// end reads the outcome from frame f, which should end a step. It fails if f
// is another kind of frame. left is the number of the step's values that are
// still missing; end fails if it is not 0. If first is true, f must be a Ready
// frame, which contains no outcome.
func (l *link) end(f wire.Header, first bool, left int) (aggregate.Outcome, error) {
	kind, size := wire.Done, message.OutcomeSize
	if first {
		kind, size = wire.Ready, 0
	}
	if f.Kind != kind || f.Step != l.steps || left > 0 {
		return aggregate.Outcome{}, fmt.Errorf("unexpected %s frame of step %d after %d steps", f.Kind, f.Step, l.steps)
	}
	if f.Length != uint64(size) {
		return aggregate.Outcome{}, fmt.Errorf("%s frame of %d bytes, want %d", f.Kind, f.Length, size)
	}
	if first {
		return aggregate.Outcome{}, nil
	}
	body := l.room(size)
	if err := l.session.Payload(body); err != nil {
		return aggregate.Outcome{}, err
	}
	l.volumes[l.holders.d.LossIndex()].received.Add(wire.HeaderSize + f.Length)
	return message.DecodeOutcome(body)
}

// change handles the report of the task at the other end that variables have
// moved. left is the number of values that the worker still expected from it
// before the move. change returns the number to expect after the move.
func (l *link) change(f wire.Header, left int) (int, error) {
	now, next := l.holds.Load(), l.coming.Swap(nil)
	if next == nil || f.Length != 0 || f.Epoch != next.epoch || f.Step != next.step || left != now.valued {
		return 0, fmt.Errorf("reports that variables have moved, at step %d in epoch %d, which this worker did not request", f.Step, f.Epoch)
	}
	l.steps = next.step + 1
	l.came = slices.Repeat([]uint64{l.steps}, len(next.pieces))
	l.holds.Store(next)
	l.replies.moved <- struct{}{}
	return next.valued, nil
}
