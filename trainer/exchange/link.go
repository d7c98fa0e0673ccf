package exchange

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

const goodbyeTime = 5 * time.Second // how long a holder may take to answer a goodbye

// link is a worker's connection to one holder. One goroutine receives, one
// sends.
type link struct {
	client *Client
	out    *aggregate.Outbox // what is sent comes from there
	index  int               // in Holders, -1: the first worker of the host
	task   cluster.Task
	addr   string
	conn   *wire.Conn
	jobs   chan job

	answered chan aggregate.Outcome // a step is complete; first the zero Outcome: workers may step
	over     chan struct{}          // closed when nothing is received any more
	goodbye  bool                   // the holder has said it; valid once over is closed
	cause    error                  // why the holder did not; likewise
	running  sync.WaitGroup

	holds     atomic.Pointer[holding]   // what the holder has
	coming    atomic.Pointer[holding]   // and will have when it says that variables have moved
	moved     chan struct{}             // it has said so
	cuts      chan []uint64             // its answer to a question for a cut
	alone     chan struct{}             // closed: it has said that all others have left
	rooms     chan transition.RoomError // its answer to a question for room
	roomAsked atomic.Bool               // which was asked

	demand  atomic.Pointer[demand] // what a Want has asked for and is to come
	volumes []volume               // by variable, and that of the loss

	steps uint64   // for receive only: made, as are those below
	came  []uint64 // by piece: steps behind the value that came last, plus one
	body  []byte
}

func newLink(c *Client, index int, task cluster.Task, addr string, conn *wire.Conn) *link {
	l := &link{
		client: c, out: c.out, index: index, task: task, addr: addr, conn: conn,
		volumes:  make([]volume, len(c.d.Variables)+1),
		answered: make(chan aggregate.Outcome, 1),
		over:     make(chan struct{}),
		moved:    make(chan struct{}, 1),
		cuts:     make(chan []uint64, 1),
		alone:    make(chan struct{}),
		rooms:    make(chan transition.RoomError, 1),
	}
	if c.relay != nil && c.d.Aggregates(task) {
		l.out = c.relay.out
	}
	l.jobs = make(chan job, len(l.out.Buckets)*len(l.out.Parts)+5) // a step, its two ends, the end of the step before, and wanted rows
	l.holds.Store(l.newHolding(0, c.step, c.d))
	l.steps, l.came = c.step, make([]uint64, len(l.holds.Load().pieces))
	for i := range l.came {
		l.came[i] = l.steps
		if index < 0 {
			l.came[i]++ // the first come from the holders
		}
	}
	return l
}

// sendFailed gives the holder's own words a moment to arrive, where err is
// one: it may have said why it hung up.
func (l *link) sendFailed(err error) {
	if err == nil {
		return
	}
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-l.client.failed:
	case <-l.over:
	case <-timer.C:
		l.client.fail(&peers.PeerError{Task: l.task, Addr: l.addr, Err: peers.Lost(err)})
	}
}

// declare sends what is about to be trained; the chief adds its values where
// the training begins anew.
func (l *link) declare(body []byte) error {
	frames := []wire.Frame{{Header: wire.Header{Kind: wire.Declare}, Payload: body}}
	for _, p := range l.holds.Load().pieces {
		if !l.client.config.Peers.Self.IsChief() || l.client.d.Checkpoint != "" || p.Variable == l.client.d.LossIndex() {
			continue
		}
		memory := l.client.pieceMemory(p)
		if memory == nil {
			continue
		}
		frames = append(frames, wire.Frame{
			Header:  wire.Header{Kind: wire.Initial, Variable: uint32(p.Variable), Offset: uint64(p.Offset)},
			Payload: memory,
		})
	}
	return l.conn.Send(frames...)
}

// receive takes what the holder sends until the connection ends.
func (l *link) receive() {
	defer close(l.over)
	for ; ; l.steps++ {
		end, err := l.receiveStep()
		if err == nil {
			err = l.answer(end)
		}
		switch {
		case err == nil:
		case errors.Is(err, errGoodbye):
			l.goodbye = true
			l.client.fail(&peers.PeerError{Task: l.task, Addr: l.addr, Err: errors.New("said goodbye in the middle of the training")})
			return
		default:
			var known *peers.PeerError
			if !errors.As(err, &known) {
				err = &peers.PeerError{Task: l.task, Addr: l.addr, Err: peers.Lost(err)}
			}
			l.cause = err
			l.client.fail(err)
			l.conn.Close() // lets the holder go on to its end; of no more use
			return
		}
	}
}

func (l *link) answer(end aggregate.Outcome) error {
	select {
	case l.answered <- end:
		return nil
	default:
		return errors.New("answered a step that was not finished")
	}
}

var errGoodbye = errors.New("goodbye")

// receiveStep takes every value after l.steps steps, and the frame that ends
// them: ready before the first step, done after each.
func (l *link) receiveStep() (aggregate.Outcome, error) {
	left := l.holds.Load().valued
	if l.index < 0 && l.steps == l.client.first {
		left = 0 // first values come from the holders
	}
	for {
		h, err := l.conn.Next()
		if err == nil {
			err = l.timely(h)
		}
		if err != nil {
			return aggregate.Outcome{}, err
		}
		switch h.Kind {
		case wire.Value:
			left--
			err = l.value(h)
		case wire.Moved:
			left, err = l.change(h, left)
		case wire.Room:
			err = l.room(h)
		case wire.Cut:
			err = l.cut(h)
		case wire.Alone:
			err = l.isAlone(h)
		case wire.Norm:
			err = l.squares(h)
		case wire.Rows:
			err = l.rows(h)
		case wire.Early, wire.Final:
			err = l.given(h)
		case wire.Verdict:
			err = l.verdict(h)
		case wire.Without:
			err = l.without(h)
		case wire.Error:
			err = l.readReport(h)
		case wire.Bye:
			err = errGoodbye
		default:
			want := wire.Done
			if l.steps == l.client.first {
				want = wire.Ready
			}
			if h.Kind != want || h.Step != l.steps || left > 0 {
				return aggregate.Outcome{}, fmt.Errorf("unexpected %s frame of step %d after %d steps", h.Kind, h.Step, l.steps)
			}
			return l.end(h)
		}
		if err != nil {
			return aggregate.Outcome{}, err
		}
	}
}

// value reads a value to where it belongs, once per step.
func (l *link) value(h wire.Header) error {
	now, steps := l.holds.Load(), l.steps
	i, ok := now.where[layout.Place{Variable: int(h.Variable), Offset: int(h.Offset)}]
	if !ok {
		return fmt.Errorf("value of variable %d from element %d, which is not kept there", h.Variable, h.Offset)
	}
	into := l.valueMemory(now.pieces[i])
	if into == nil || h.Step != steps || h.Length != uint64(len(into)) || l.came[i] != steps {
		return fmt.Errorf("value of variable %d: %d bytes after %d steps, want %d bytes after %d, once",
			h.Variable, h.Length, h.Step, len(into), steps)
	}
	if relay := l.client.relay; relay != nil && relay.early(int(h.Variable), steps) {
		return fmt.Errorf("value of variable %d after step %d, before it was begun", h.Variable, steps-1)
	}
	l.came[i] = steps + 1
	began := time.Now()
	if err := l.conn.Payload(into); err != nil {
		return err
	}
	if d := l.client.config.Device; d != nil && int(h.Variable) != l.client.d.LossIndex() {
		d.Write(now.pieces[i], into)
	}
	if trace := l.client.config.Trace; trace.Enabled() {
		name := l.client.d.Variable(int(h.Variable)).Name
		trace.Span("receive", name, began, time.Now(), "bucket", l.out.Bucket(int(h.Variable)), "bytes", len(into), "from", l.task.String())
	}
	if steps > l.client.first {
		l.volumes[h.Variable].received.Add(wire.HeaderSize + h.Length)
	}
	if l.client.relay != nil && steps > l.client.first {
		l.client.relay.value(int(h.Variable))
	}
	return nil
}

// valueMemory is where a piece's new value is read to: the worker's memory, or,
// if that is on a device, the link's.
func (l *link) valueMemory(p layout.Piece) []byte {
	v := l.client.d.Variable(p.Variable)
	if l.client.config.Device == nil || v.Sparse != nil || p.Variable == l.client.d.LossIndex() {
		return l.client.pieceMemory(p)
	}
	l.body = sized(l.body, p.Count*v.Dtype.Size())
	return l.body
}

// squares reads what the holder has to say of the norm.
func (l *link) squares(h wire.Header) error {
	if most := aggregate.MaxReport(l.client.shards.Load().d, l.index); l.index < 0 || h.Length > most {
		return fmt.Errorf("norm frame of %d bytes, want at most %d", h.Length, most)
	}
	l.body = sized(l.body, int(h.Length))
	if err := l.conn.Payload(l.body); err != nil {
		return err
	}
	l.volumes[l.client.d.LossIndex()].received.Add(wire.HeaderSize + h.Length)
	l.client.takeNorm(l.index, l.body)
	return nil
}

// end reads what the holder knows of the step.
func (l *link) end(h wire.Header) (aggregate.Outcome, error) {
	var b [doneSize]byte
	want := len(b)
	if h.Kind == wire.Ready {
		want = 0
	}
	if h.Length != uint64(want) {
		return aggregate.Outcome{}, fmt.Errorf("%s frame of %d bytes, want %d", h.Kind, h.Length, want)
	}
	if err := l.conn.Payload(b[:want]); err != nil {
		return aggregate.Outcome{}, err
	}
	if h.Kind == wire.Done {
		l.volumes[l.client.d.LossIndex()].received.Add(wire.HeaderSize + h.Length)
	}
	return decodeOutcome(b[:])
}

// readReport returns what the holder says went wrong.
func (l *link) readReport(h wire.Header) error {
	told, err := peers.ReadReport(l.conn, h)
	if err != nil {
		return err
	}
	var peer *peers.PeerError
	if errors.As(told, &peer) {
		return fmt.Errorf("%s (%s) reports: %w", l.task, l.addr, peer)
	}
	return fmt.Errorf("%s (%s) reports: %w", l.task, l.addr, &peers.PeerError{Task: l.task, Addr: l.addr, Err: told})
}
