package owner

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

const goodbyeTime = 5 * time.Second // how long an owner may take to answer a goodbye

// link is a worker's connection to one owner. One goroutine receives, one
// sends.
type link struct {
	client *Client
	index  int // in Owners, -1: the first worker of the host
	task   cluster.Task
	addr   string
	conn   *wire.Conn
	pieces []Piece // those of the owner
	jobs   chan job

	answered chan outcome  // a step is complete; first the zero outcome: workers may step
	over     chan struct{} // closed when nothing is received any more
	goodbye  bool          // the owner has said it; valid once over is closed
	cause    error         // why the owner did not; likewise
	running  sync.WaitGroup

	where map[place]int // index in pieces
	has   []bool        // by bucket: a piece is of it
	came  []uint64      // by piece: steps behind the value that came last, plus one
	body  []byte
}

func newLink(c *Client, index int, task cluster.Task, addr string, conn *wire.Conn) *link {
	l := &link{
		client: c, index: index, task: task, addr: addr, conn: conn,
		pieces:   c.d.piecesOf(index),
		jobs:     make(chan job, len(c.out.buckets)*len(c.out.parts)+2),
		answered: make(chan outcome, 1),
		over:     make(chan struct{}),
		where:    map[place]int{},
		has:      make([]bool, len(c.out.buckets)),
	}
	for i, p := range l.pieces {
		l.has[c.out.of[p.Variable]] = true
		l.where[place{p.Variable, p.Offset}] = i
	}
	l.came = make([]uint64, len(l.pieces))
	for i := range l.came {
		if index < 0 {
			l.came[i] = 1 // the first come from the owners
		}
	}
	return l
}

// sendFailed gives the owner's own words a moment to arrive, where err is
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

// declare sends what is about to be trained; the chief adds its values.
func (l *link) declare(body []byte) error {
	frames := []wire.Frame{{Header: wire.Header{Kind: wire.Declare}, Payload: body}}
	for _, p := range l.pieces {
		if !l.client.config.Peers.Self.IsChief() || p.Variable == l.client.d.tally() {
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

// receive takes what the owner sends until the connection ends.
func (l *link) receive() {
	defer close(l.over)
	for steps := uint64(0); ; steps++ {
		end, err := l.receiveStep(steps)
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
			l.conn.Close() // lets the owner go on to its end; of no more use
			return
		}
	}
}

func (l *link) answer(end outcome) error {
	select {
	case l.answered <- end:
		return nil
	default:
		return errors.New("answered a step that was not finished")
	}
}

var errGoodbye = errors.New("goodbye")

// receiveStep takes every value after so many steps, and the frame that ends
// them: ready before the first step, done after each.
func (l *link) receiveStep(steps uint64) (outcome, error) {
	left := l.valued()
	if l.index < 0 && steps == 0 {
		left = 0 // first values come from the owners
	}
	for {
		h, err := l.conn.Next()
		if err != nil {
			return outcome{}, err
		}
		switch h.Kind {
		case wire.Value:
			left--
			err = l.value(h, steps)
		case wire.Norm:
			err = l.squares(h)
		case wire.Rows:
			err = l.rows(h)
		case wire.Verdict:
			err = l.verdict(h)
		case wire.Error:
			err = l.readReport(h)
		case wire.Bye:
			err = errGoodbye
		default:
			want := wire.Done
			if steps == 0 {
				want = wire.Ready
			}
			if h.Kind != want || h.Step != steps || left > 0 {
				return outcome{}, fmt.Errorf("unexpected %s frame of step %d after %d steps", h.Kind, h.Step, steps)
			}
			return l.end(h)
		}
		if err != nil {
			return outcome{}, err
		}
	}
}

// valued is how many pieces have values that are sent.
func (l *link) valued() (n int) {
	for _, p := range l.pieces {
		if l.client.d.variable(p.Variable).Sparse == nil {
			n++
		}
	}
	return n
}

// value reads a value to where it belongs, once per step.
func (l *link) value(h wire.Header, steps uint64) error {
	i, ok := l.where[place{int(h.Variable), int(h.Offset)}]
	if !ok {
		return fmt.Errorf("value of variable %d from element %d, which is not kept there", h.Variable, h.Offset)
	}
	into := l.client.pieceMemory(l.pieces[i])
	if into == nil || h.Step != steps || h.Length != uint64(len(into)) || l.came[i] != steps {
		return fmt.Errorf("value of variable %d: %d bytes after %d steps, want %d bytes after %d, once",
			h.Variable, h.Length, h.Step, len(into), steps)
	}
	l.came[i] = steps + 1
	began := time.Now()
	if err := l.conn.Payload(into); err != nil {
		return err
	}
	if trace := l.client.config.Trace; trace.Enabled() {
		name := l.client.d.variable(int(h.Variable)).Name
		trace.Span("receive", name, began, time.Now(), "bucket", l.client.out.of[h.Variable], "bytes", len(into), "from", l.task.String())
	}
	if l.client.relay != nil && steps > 0 {
		l.client.relay.value(int(h.Variable))
	}
	return nil
}

// squares reads what the owner has to say of the norm.
func (l *link) squares(h wire.Header) error {
	if most := l.client.d.maxReport(l.index); l.index < 0 || h.Length > most {
		return fmt.Errorf("norm frame of %d bytes, want at most %d", h.Length, most)
	}
	l.body = sized(l.body, int(h.Length))
	if err := l.conn.Payload(l.body); err != nil {
		return err
	}
	l.client.takeNorm(l.index, l.body)
	return nil
}

// end reads what the owner knows of the step.
func (l *link) end(h wire.Header) (outcome, error) {
	var b [doneSize]byte
	want := len(b)
	if h.Kind == wire.Ready {
		want = 0
	}
	if h.Length != uint64(want) {
		return outcome{}, fmt.Errorf("%s frame of %d bytes, want %d", h.Kind, h.Length, want)
	}
	if err := l.conn.Payload(b[:want]); err != nil {
		return outcome{}, err
	}
	return decodeOutcome(b[:]), nil
}

// readReport returns what the owner says went wrong.
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
