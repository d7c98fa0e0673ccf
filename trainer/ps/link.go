package ps

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/wire"
)

const goodbyeTime = 5 * time.Second // how long a server may take to answer a goodbye

// link is a worker's connection to one server. One goroutine, receive, reads.
type link struct {
	client *Client
	task   cluster.Task
	addr   string
	conn   *wire.Conn
	pieces []Piece // those of the server

	answered chan struct{} // a token per step: everything came
	loss     float64       // of the step that was answered
	over     chan struct{} // closed when nothing is received any more
	goodbye  bool          // the server has said it; valid once over is closed
	running  sync.WaitGroup

	frames  []wire.Frame // of a step, kept from step to step
	payload [stepSize]byte
	where   map[place]int // index in pieces
	came    []uint64      // by piece: updates behind the value that came last, plus one
}

// dial reaches one server, trying again until ctx ends: the server's process
// may not run yet.
func (c *Client) dial(ctx context.Context, index int) (*link, error) {
	task := cluster.Task{Role: cluster.PS, Index: index}
	addr := c.config.Servers[index]
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		conn, err := c.attempt(ctx, task, addr)
		if err == nil {
			return c.newLink(task, addr, conn), nil
		}
		if errors.Is(err, cluster.ErrProof) || !pause(ctx, wait) {
			if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cluster.ErrProof) {
				err = fmt.Errorf("%w: %w", cause, err)
			}
			return nil, &PeerError{Task: task, Addr: addr, Err: err}
		}
	}
}

func (c *Client) attempt(ctx context.Context, task cluster.Task, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if err := cluster.Dial(ctx, conn, c.config.Key, c.config.Self.String(), task.String()); err != nil {
		conn.Close() // the proof's error says it all
		return nil, err
	}
	return conn, nil
}

func (c *Client) newLink(task cluster.Task, addr string, conn net.Conn) *link {
	silence := time.Duration(c.config.Declaration.SilenceMillis) * time.Millisecond
	l := &link{
		client: c, task: task, addr: addr,
		conn:     wire.NewConn(conn, c.config.Generation, silence),
		answered: make(chan struct{}, 1),
		over:     make(chan struct{}),
		where:    map[place]int{},
	}
	for _, p := range c.config.Declaration.Pieces {
		if p.Server == task.Index {
			l.where[place{p.Variable, p.Offset}] = len(l.pieces)
			l.pieces = append(l.pieces, p)
		}
	}
	l.came = make([]uint64, len(l.pieces))
	return l
}

// memory returns p's part of a variable's bytes.
func (c *Client) memory(of [][]byte, p Piece) []byte {
	size := c.config.Declaration.Variables[p.Variable].Dtype.Size()
	return of[p.Variable][p.Offset*size : (p.Offset+p.Count)*size]
}

// declare sends what is about to be trained; the chief adds its values.
func (l *link) declare(body []byte) error {
	frames := []wire.Frame{{Header: wire.Header{Kind: wire.Declare}, Payload: body}}
	if l.client.config.Self.IsChief() {
		for _, p := range l.pieces {
			frames = append(frames, l.frame(wire.Initial, p, 0, l.client.config.Values))
		}
	}
	return l.conn.Send(frames...)
}

func (l *link) frame(kind wire.Kind, p Piece, step uint64, of [][]byte) wire.Frame {
	return wire.Frame{
		Header:  wire.Header{Kind: kind, Variable: uint32(p.Variable), Offset: uint64(p.Offset), Step: step},
		Payload: l.client.memory(of, p),
	}
}

// push sends one step.
func (l *link) push(step uint64, rate, loss float64) error {
	binary.LittleEndian.PutUint64(l.payload[:8], math.Float64bits(rate))
	binary.LittleEndian.PutUint64(l.payload[8:], math.Float64bits(loss))
	l.frames = append(l.frames[:0], wire.Frame{Header: wire.Header{Kind: wire.Step, Step: step}, Payload: l.payload[:]})
	for _, p := range l.pieces {
		l.frames = append(l.frames, l.frame(wire.Push, p, step, l.client.config.Gradients))
	}
	return l.conn.Send(l.frames...)
}

// sendFailed gives the server's own words a moment to arrive: it may have
// said why it hung up.
func (l *link) sendFailed(err error) {
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-l.client.failed:
	case <-timer.C:
		l.client.fail(&PeerError{Task: l.task, Addr: l.addr, Err: lost(err)})
	}
}

// receive takes what the server sends until the connection ends.
func (l *link) receive() {
	defer close(l.over)
	for updates := uint64(0); ; updates++ {
		switch err := l.receiveStep(updates); {
		case err == nil:
			l.answered <- struct{}{}
		case errors.Is(err, errGoodbye):
			l.goodbye = true
			return
		default:
			var known *PeerError
			if !errors.As(err, &known) {
				err = &PeerError{Task: l.task, Addr: l.addr, Err: lost(err)}
			}
			l.client.fail(err)
			l.conn.Close() // lets the server go on to its end; of no more use
			return
		}
	}
}

var errGoodbye = errors.New("goodbye")

// receiveStep takes every value after so many updates, and the frame that
// ends them: ready before the first step, done after each.
func (l *link) receiveStep(updates uint64) error {
	for left := len(l.pieces); ; {
		h, err := l.conn.Next()
		if err != nil {
			return err
		}
		switch end := wire.Done; {
		case h.Kind == wire.Value:
			if err := l.value(h, updates); err != nil {
				return err
			}
			left--
		case h.Kind == wire.Error:
			return l.readReport(h)
		case h.Kind == wire.Bye && h.Length == 0:
			return errGoodbye
		default:
			if updates == 0 {
				end = wire.Ready
			}
			if h.Kind != end || h.Step != updates || left > 0 {
				return fmt.Errorf("unexpected %s frame of step %d after %d updates", h.Kind, h.Step, updates)
			}
			return l.end(h)
		}
	}
}

// value reads a value to where it belongs, once per update.
func (l *link) value(h wire.Header, updates uint64) error {
	i, ok := l.where[place{int(h.Variable), int(h.Offset)}]
	if !ok {
		return fmt.Errorf("value of variable %d from element %d, which is not kept there", h.Variable, h.Offset)
	}
	into := l.client.memory(l.client.config.Values, l.pieces[i])
	if h.Step != updates || h.Length != uint64(len(into)) || l.came[i] != updates {
		return fmt.Errorf("value of variable %d: %d bytes after %d updates, want %d bytes after %d, once",
			h.Variable, h.Length, h.Step, len(into), updates)
	}
	l.came[i] = updates + 1
	return l.conn.Payload(into)
}

// end reads the batch's loss, where there is one.
func (l *link) end(h wire.Header) error {
	if h.Kind == wire.Ready && h.Length == 0 {
		return nil
	}
	var b [8]byte
	if h.Length != uint64(len(b)) {
		return fmt.Errorf("%s frame of %d bytes", h.Kind, h.Length)
	}
	if err := l.conn.Payload(b[:]); err != nil {
		return err
	}
	l.loss = math.Float64frombits(binary.LittleEndian.Uint64(b[:]))
	return nil
}

// readReport returns what the server says went wrong.
func (l *link) readReport(h wire.Header) error {
	told, err := receiveReport(l.conn, h)
	if err != nil {
		return err
	}
	var peer *PeerError
	if errors.As(told, &peer) {
		return fmt.Errorf("%s (%s) reports: %w", l.task, l.addr, peer)
	}
	return fmt.Errorf("%s (%s) reports: %w", l.task, l.addr, &PeerError{Task: l.task, Addr: l.addr, Err: told})
}

// leave tells the server why the worker is out and closes the link.
func (l *link) leave(why error) {
	hangUp := time.AfterFunc(time.Second, func() { l.conn.Close() }) // ends Send and receive
	defer hangUp.Stop()
	err := l.conn.Send(wire.Frame{Header: wire.Header{Kind: wire.Error}, Payload: encodeReport(why)})
	if err == nil {
		<-l.over // the server answers in kind
	}
	l.conn.Close() // of no more use, whatever it says
}

// close says goodbye where asked to, and hangs up.
func (l *link) close(goodbye bool) (err error) {
	if goodbye {
		err = l.farewell()
	}
	l.conn.Close() // nothing is left to be lost
	l.running.Wait()
	return err
}

// farewell says goodbye and waits for the answer.
func (l *link) farewell() error {
	hangUp := time.AfterFunc(goodbyeTime, func() { l.conn.Close() }) // ends Send and receive
	defer hangUp.Stop()
	err := l.conn.Send(wire.Frame{Header: wire.Header{Kind: wire.Bye}})
	<-l.over
	if err == nil && !l.goodbye {
		err = errors.New("no answer to goodbye")
	}
	if err != nil {
		return &PeerError{Task: l.task, Addr: l.addr, Err: lost(err)}
	}
	return nil
}
