package exchange

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

// peer is one worker as a holder sees it. One goroutine reads (serve), one
// writes (write). turn holds a token while the worker may begin a step: the
// writer puts it there once everything of the step before has left, so the
// values that a step is about to change are never still being sent.
type peer struct {
	server *server
	task   cluster.Task
	addr   string
	conn   *wire.Conn
	events chan aggregate.Event // nil: the worker sends nothing itself
	turn   chan struct{}        // see above
	gone   chan struct{}        // closed when nothing reads any more
	out    chan struct{}        // closed by fall
	known  chan struct{}        // closed by introduced

	epoch     uint32        // of who owns what; for serve only, as are those below
	step      uint64        // steps begun; after the loss for settle, as are parts, got and need
	saved     uint64        // the step before which the chief saved last, plus one
	ahead     bool          // it has to ask for values before it takes its first step
	holds     bool          // nothing behind the cut counts until the chief goes on
	copied    chan struct{} // closed: what was to be saved is
	concluded bool          // it takes no further step
	begun     []byte        // payload of the step's first frame
	parts     []int         // virtual workers present, by part
	got       []bool        // by slot and part: its gradient came in this step
	need      int           // gradients that are still to come in this step
	pulled    pulled
	wants     wants

	falling sync.Once
	cause   error // of the fall

	// Guarded by the server's mu.
	lost   bool    // the others go on without it, and nothing is read from it any more
	counts *uint64 // the step from which on it counts in none, nil: the first holder has not said it
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
		if h.Kind == wire.Bye {
			return p.goodbye(h)
		}
		if err := p.take(h); err != nil {
			return p.quiet(err)
		}
	}
}

func (p *peer) take(h wire.Header) error {
	if h.Kind == wire.Error {
		return p.leaves(h)
	}
	if h.Kind == wire.Without {
		return p.without(h)
	}
	p.server.mu.Lock()
	opened := p.server.opened
	p.server.mu.Unlock()
	if !opened {
		return fmt.Errorf("%s frame before all workers were ready", h.Kind)
	}
	if err := p.timely(h); err != nil {
		return err
	}
	switch {
	case h.Kind == wire.Remap:
		return p.remap(h)
	case h.Kind == wire.Room:
		return p.room(h)
	case h.Kind == wire.Pull:
		return p.pull(h)
	case p.events == nil:
	case h.Kind == wire.Step:
		return p.begin(h)
	case h.Kind == wire.Push:
		return p.push(h)
	case h.Kind == wire.Want:
		return p.want(h)
	case h.Kind == wire.Scale:
		return p.scale(h)
	case h.Kind == wire.Save:
		return p.save(h)
	case h.Kind == wire.Cut && h.Length == 0:
		return p.askCut(h)
	case h.Kind == wire.Alone && h.Length == 0:
		return p.conclude()
	case h.Kind == wire.Commit && h.Length == 0:
		return p.commit(h)
	case h.Kind == wire.Fetch && h.Length == 0:
		return p.fetch(h)
	}
	return fmt.Errorf("unexpected %s frame", h.Kind)
}

// quiet drops an error that is only the echo of a training that has ended.
func (p *peer) quiet(err error) error {
	select {
	case <-p.server.ended:
		return nil
	default:
		return err
	}
}

// begin takes the first frame of a step.
func (p *peer) begin(h wire.Header) error {
	e := p.server.shards
	c := e.Contributor(p.task.Index)
	if want := stepSize(c); h.Length != uint64(want) {
		return fmt.Errorf("step frame of %d bytes, want %d", h.Length, want)
	}
	p.begun = sized(p.begun, int(h.Length))
	if err := p.conn.Payload(p.begun); err != nil {
		return err
	}
	jumps := e.Declaration().Sync.Competes() && h.Step > p.step // it was late
	if h.Step != p.step && !jumps || p.need > 0 || p.ahead {
		return fmt.Errorf("begins step %d during step %d, with %d gradients to come", h.Step, p.step, p.need)
	}
	select {
	case <-p.turn:
	case <-p.server.ended:
		return errEnded
	case <-p.out:
		return p.cause
	}
	if err := p.server.advance(p.task.Index, h.Step); err != nil {
		return err
	}
	p.goOn()
	p.wants.begin()
	b := decodeBeginning(p.begun, p.parts)
	if err := p.server.begin(p.task.Index, h.Step, b); err != nil {
		return err
	}
	p.step, p.parts = h.Step+1, b.Present
	if p.got == nil {
		p.got = make([]bool, len(e.All())*len(c.Parts))
	}
	clear(p.got)
	for _, n := range b.Present {
		for i := range e.All() {
			if n > 0 && e.Expects(c, i) {
				p.need++
			}
		}
	}
	return nil
}

// push takes a gradient of the step that was begun, each exactly once.
func (p *peer) push(h wire.Header) error {
	if p.got == nil || h.Step+1 != p.step {
		return fmt.Errorf("gradient of step %d, %d steps were begun", h.Step, p.step)
	}
	e := p.server.shards
	i, err := find(e, h, wire.Push)
	if err != nil {
		return err
	}
	c := e.Contributor(p.task.Index)
	input, ok := c.Input(h.Part)
	if !ok || p.parts[input-c.First] == 0 || !e.Expects(c, i) {
		return fmt.Errorf("gradient of variable %d for part %d of the tree, which it does not bring", h.Variable, h.Part)
	}
	got := &p.got[i*len(c.Parts)+input-c.First]
	if *got {
		return fmt.Errorf("gradient of variable %d came twice in step %d", h.Variable, h.Step)
	}
	present, err := e.All()[i].Receive(c.Group, input, h.Length, p.conn.Payload)
	if err != nil {
		return err
	}
	*got = true
	p.need--
	e.Arrive(c.Group, i, input, present)
	return nil
}

// scale takes the norm of a group from the worker that leads it.
func (p *peer) scale(h wire.Header) error {
	var body [16]byte
	if h.Length != uint64(len(body)) {
		return fmt.Errorf("scale frame of %d bytes", h.Length)
	}
	if err := p.conn.Payload(body[:]); err != nil {
		return err
	}
	return p.server.shards.Scale(p.task.Index,
		math.Float64frombits(binary.LittleEndian.Uint64(body[:8])), math.Float64frombits(binary.LittleEndian.Uint64(body[8:])))
}

// commit answers whether the worker's gradients count.
func (p *peer) commit(h wire.Header) error {
	selection := p.server.shards.Selection()
	if selection == nil {
		return errors.New("asks whether its gradients count, which is not decided here")
	}
	v, current, err := selection.Commit(p.task.Index, h.Step)
	if err != nil {
		return err
	}
	return p.conn.Send(wire.Frame{Header: wire.Header{Kind: wire.Verdict, Part: uint32(v), Step: current}})
}

// fetch takes a worker's wish for the values after so many steps, perhaps later.
func (p *peer) fetch(h wire.Header) error {
	if p.need > 0 {
		return fmt.Errorf("asks for values during step %d, with %d gradients to come", p.step, p.need)
	}
	select {
	case <-p.turn:
	case <-p.server.ended:
		return errEnded
	case <-p.out:
		return p.cause
	}
	p.ahead = false
	return p.server.shards.Fetch(p.task.Index, h.Step)
}

// leaves takes the reason why a worker gives up. What it says of another peer
// is believed, so that the others hear of the cause.
func (p *peer) leaves(h wire.Header) error {
	told, err := peers.ReadReport(p.conn, h)
	if err != nil {
		return err
	}
	var other *peers.PeerError
	if errors.As(told, &other) {
		return told
	}
	return fmt.Errorf("gave up: %w", told)
}

// goodbye ends a worker's part in good order, between two steps.
func (p *peer) goodbye(h wire.Header) error {
	s := p.server
	if err := p.timely(h); err != nil && s.shards != nil {
		return err
	}
	s.mu.Lock()
	opened := s.opened
	s.mu.Unlock()
	switch {
	case !opened:
		return errors.New("goodbye before all workers were ready")
	case h.Length != 0 || p.unfinished():
		return fmt.Errorf("goodbye during step %d", h.Step)
	}
	p.goOn()
	if err := s.leave(p.task.Index); err != nil {
		return err
	}
	err := p.conn.Send(wire.Frame{Header: wire.Header{Kind: wire.Bye}})
	p.conn.Drain()
	s.left()
	return p.quiet(err)
}

// unfinished reports whether gradients of a step are still to come that will be
// made. In backup mode it may be one that is not.
func (p *peer) unfinished() bool { return p.need > 0 && !p.server.shards.Declaration().Sync.Competes() }

// hear takes an event for the writer. It does not block: there is room for all
// that a worker which takes part can be told, and none is needed for a lost one.
func (p *peer) hear(e aggregate.Event) {
	select {
	case p.events <- e:
	case <-p.out:
	}
}

// tell sends the reason why training cannot go on. The worker may be gone.
func (p *peer) tell(why error) {
	p.conn.Send(wire.Frame{Header: wire.Header{Kind: wire.Error}, Payload: peers.EncodeReport(why)}) // the worker may be gone
}

// cut hangs up; serve and write notice.
func (p *peer) cut() { p.conn.Close() } // of no more use, whatever it says

func sized(b []byte, n int) []byte {
	if cap(b) < n {
		return make([]byte, n)
	}
	return b[:n]
}
