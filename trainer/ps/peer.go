package ps

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/wire"
)

// stepSize is the payload of a step frame: rate and loss, both float64.
const stepSize = 16

// peer is one worker as a server sees it. One goroutine reads (serve), one
// writes (write). turn holds a token while the worker may begin a step: the
// writer puts it there once everything of the step before has left, so the
// values that a step is about to change are never still being sent.
type peer struct {
	server   *server
	task     cluster.Task
	addr     string
	conn     *wire.Conn
	declared *Declaration  // guarded by server.mu
	bye      bool          // guarded by server.mu
	events   chan int      // pieces that are updated; -1: the loss is known
	turn     chan struct{} // see above
	gone     chan struct{} // closed when nothing reads any more

	step uint64 // steps begun, guarded by server.mu; written by serve only
	got  []bool // by piece: its gradient came in this step
	need int    // gradients that are still to come in this step
	rate float64
}

// serve reads what the worker sends until it said goodbye and hung up (nil).
func (p *peer) serve() error {
	if err := p.start(); err != nil {
		return err
	}
	p.server.open()
	for {
		h, err := p.conn.Next()
		if err != nil {
			return p.quiet(err)
		}
		switch h.Kind {
		case wire.Step:
			err = p.begin(h)
		case wire.Push:
			err = p.push(h)
		case wire.Bye:
			return p.goodbye(h)
		case wire.Error:
			err = p.leaves(h)
		default:
			err = fmt.Errorf("unexpected %s frame", h.Kind)
		}
		if err != nil {
			return p.quiet(err)
		}
	}
}

// errEnded is what is left to say to a worker after the training.
var errEnded = errors.New("training has ended")

// quiet drops an error that is only the echo of a training that has ended.
func (p *peer) quiet(err error) error {
	select {
	case <-p.server.ended:
		return nil
	default:
		return err
	}
}

// start reads the declaration and, from the chief, the first values.
func (p *peer) start() error {
	h, err := p.conn.Next()
	if err != nil {
		return err
	}
	if h.Kind == wire.Error {
		return p.leaves(h)
	}
	if h.Kind != wire.Declare || h.Length > maxDeclaration {
		return fmt.Errorf("%s frame of %d bytes where a declaration was due", h.Kind, h.Length)
	}
	body := make([]byte, h.Length)
	if err := p.conn.Payload(body); err != nil {
		return err
	}
	var d Declaration
	if err := json.Unmarshal(body, &d); err != nil {
		return fmt.Errorf("declaration: %w", err)
	}
	if err := p.server.declare(p, d); err != nil {
		return err
	}
	if p.task.IsChief() {
		return p.fill()
	}
	return nil
}

// fill reads the chief's first values, one frame per piece in any order.
func (p *peer) fill() error {
	s := p.server
	filled := make([]bool, len(s.store.pieces))
	for range filled {
		h, err := p.conn.Next()
		if err != nil {
			return err
		}
		if h.Kind == wire.Error {
			return p.leaves(h)
		}
		i, err := s.store.find(h, wire.Initial)
		if err != nil {
			return err
		}
		if filled[i] {
			return fmt.Errorf("variable %d came twice", h.Variable)
		}
		filled[i] = true
		if err := p.conn.Payload(s.store.pieces[i].value()); err != nil {
			return err
		}
	}
	s.mu.Lock()
	s.filled = true
	s.mu.Unlock()
	return nil
}

// find returns the piece that a frame is for. The frame must be of the kind
// and length that the declaration calls for, so it bounds what is read.
func (s *Store) find(h wire.Header, want wire.Kind) (int, error) {
	if h.Kind != want {
		return 0, fmt.Errorf("%s frame where %s was due", h.Kind, want)
	}
	i, ok := s.where[place{int(h.Variable), int(h.Offset)}]
	if !ok {
		return 0, fmt.Errorf("%s frame for variable %d from element %d, which is not kept here", h.Kind, h.Variable, h.Offset)
	}
	if n := len(s.pieces[i].value()); h.Length != uint64(n) {
		return 0, fmt.Errorf("%s frame for variable %d of %d bytes, want %d", h.Kind, h.Variable, h.Length, n)
	}
	return i, nil
}

// begin takes the first frame of a step.
func (p *peer) begin(h wire.Header) error {
	var body [stepSize]byte
	if h.Length != stepSize {
		return fmt.Errorf("step frame of %d bytes, want %d", h.Length, stepSize)
	}
	if err := p.conn.Payload(body[:]); err != nil {
		return err
	}
	select {
	case <-p.turn:
	case <-p.server.ended:
		return errEnded
	}
	s := p.server
	if h.Step != p.step || p.need > 0 {
		return fmt.Errorf("begins step %d during step %d, with %d gradients to come", h.Step, p.step, p.need)
	}
	if err := s.advance(p); err != nil {
		return err
	}
	p.need = len(s.store.pieces)
	p.got = append(p.got[:0], make([]bool, p.need)...)
	p.rate = math.Float64frombits(binary.LittleEndian.Uint64(body[:8]))
	loss := math.Float64frombits(binary.LittleEndian.Uint64(body[8:]))
	known, err := s.store.begin(p.task.Index, h.Step, p.rate, loss)
	if known {
		s.announce(-1)
	}
	return err
}

// advance counts p's step. Nobody steps past a worker that has left.
func (s *server) advance(p *peer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.peers {
		if q != nil && q.bye && q.step <= p.step {
			return fmt.Errorf("goes on with step %d, but %s said goodbye after %d steps: every worker must take as many",
				p.step, q.task, q.step)
		}
	}
	p.step++
	return nil
}

// push takes a gradient of the step that was begun, each exactly once.
func (p *peer) push(h wire.Header) error {
	s := p.server
	if p.step == 0 || h.Step != p.step-1 {
		return fmt.Errorf("gradient of step %d, %d steps were begun", h.Step, p.step)
	}
	i, err := s.store.find(h, wire.Push)
	if err != nil {
		return err
	}
	if p.got[i] {
		return fmt.Errorf("gradient of variable %d came twice in step %d", h.Variable, h.Step)
	}
	p.got[i] = true
	p.need--
	piece := s.store.pieces[i]
	if err := p.conn.Payload(piece.gradient(p.task.Index)); err != nil {
		return err
	}
	if piece.arrive(p.task.Index, h.Step, p.rate) {
		s.announce(i)
	}
	return nil
}

// announce tells every writer. It never blocks: the channels hold a whole
// step's events, and a step ends only when all have been taken.
func (s *server) announce(event int) {
	for _, p := range s.peers {
		p.events <- event
	}
}

// leaves takes the reason why a worker gives up. What it says of another peer
// is believed, so that the others hear of the cause.
func (p *peer) leaves(h wire.Header) error {
	told, err := receiveReport(p.conn, h)
	if err != nil {
		return err
	}
	var other *PeerError
	if errors.As(told, &other) {
		return told
	}
	return fmt.Errorf("gave up: %w", told)
}

// goodbye ends a worker's part in good order, between two steps.
func (p *peer) goodbye(h wire.Header) error {
	s := p.server
	if h.Length != 0 || p.need > 0 {
		return fmt.Errorf("goodbye during step %d", h.Step)
	}
	s.mu.Lock()
	for _, q := range s.peers {
		if q != nil && q.step > p.step {
			s.mu.Unlock()
			return fmt.Errorf("said goodbye after %d steps, but %s goes on: every worker must take as many", p.step, q.task)
		}
	}
	p.bye = true
	s.mu.Unlock()
	err := p.conn.Send(wire.Frame{Header: wire.Header{Kind: wire.Bye}})
	p.conn.Drain()
	s.mu.Lock()
	s.left++
	last := s.left == s.Workers
	s.mu.Unlock()
	if last {
		s.end(nil)
	}
	return p.quiet(err)
}

// tell sends the reason why training cannot go on. The worker may be gone.
func (p *peer) tell(why error) {
	p.conn.Send(wire.Frame{Header: wire.Header{Kind: wire.Error}, Payload: encodeReport(why)})
}

// cut hangs up; serve and write notice.
func (p *peer) cut() { p.conn.Close() } // of no more use, whatever it says
