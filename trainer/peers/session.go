package peers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/wire"
)

// ownWords is how long a session whose Send failed waits for the peer's report:
// the peer may have said why it hung up.
const ownWords = time.Second

// ErrGoodbye is the error of Next when the peer has said goodbye.
var ErrGoodbye = errors.New("said goodbye")

// Session is a connection to another task on which each end tells the other
// why it stops: by a report, when something failed, or by a goodbye.
//
// One goroutine, the reader, calls Next and Payload, and Drain at the end. Any
// goroutine may call the other methods. Tell and Goodbye wait for the reader.
type Session struct {
	Task cluster.Task
	Addr string // address of the other end, for messages

	conn   *wire.Conn
	parted atomic.Bool   // this task has sent its goodbye
	told   bool          // the peer has reported an error; only the reader uses it
	unread uint64        // payload bytes of the present frame that are not read yet; only the reader uses it
	left   chan struct{} // closed when the peer has said goodbye
	ended  chan struct{} // closed once Next has failed
	cause  error         // why Next has failed; valid once ended is closed
	over   chan struct{} // closed when Drain returns, after which nothing is read
}

// NewSession makes a session of a connection, which it owns from now on. A
// peer that sends nothing for silence, not even a heartbeat, counts as lost.
func NewSession(p Peer, generation int, silence time.Duration) *Session {
	return &Session{
		Task: p.Task, Addr: p.Addr, conn: wire.NewConn(p.Conn, generation, silence),
		left: make(chan struct{}), ended: make(chan struct{}), over: make(chan struct{}),
	}
}

// Open dials a task for a purpose, as [Dial] does, and makes a session of the
// connection.
func Open(ctx context.Context, c Config, to cluster.Task, addr, purpose string, silence time.Duration) (*Session, error) {
	conn, err := Dial(ctx, c, to, addr, purpose)
	if err != nil {
		return nil, err
	}
	return NewSession(Peer{Task: to, Addr: addr, Conn: conn}, c.Generation, silence), nil
}

// SetSilence changes how long the peer may send nothing, from now on.
func (s *Session) SetSilence(d time.Duration) { s.conn.SetSilence(d) }

// Send writes frames, see [wire.Conn.Send].
func (s *Session) Send(frames ...wire.Frame) error { return s.conn.Send(frames...) }

// SetEpoch sets the epoch of all frames that are sent from now on.
func (s *Session) SetEpoch(epoch uint32) { s.conn.SetEpoch(epoch) }

// Traffic returns how many bytes were sent and received, see [wire.Conn.Traffic].
func (s *Session) Traffic() (sent, received uint64) { return s.conn.Traffic() }

// Next returns the header of the next frame. When the peer has reported why it
// stops, the error wraps a [*PeerError] of the task to blame; when it has said
// goodbye, the error is ErrGoodbye, once with the header of the goodbye. After
// an error the reader calls Drain.
func (s *Session) Next() (wire.Header, error) {
	select {
	case <-s.ended:
		return wire.Header{}, s.cause
	default:
	}
	h, err := s.conn.Next()
	switch {
	case err != nil:
	case h.Kind == wire.Error:
		err = s.report(h)
	case h.Kind == wire.Bye && h.Length == 0:
		err = ErrGoodbye
		close(s.left)
	default:
		s.unread = h.Length
		return h, nil
	}
	s.cause = err
	close(s.ended)
	return h, err
}

// report returns the error that an error frame brings.
func (s *Session) report(h wire.Header) error {
	reason, err := ReadReport(s.conn, h)
	if err != nil {
		return err
	}
	s.told = true
	return fmt.Errorf("%s (%s) reports: %w", s.Task, s.Addr, s.Blame(reason))
}

// Payload reads the payload of the frame that Next announced.
func (s *Session) Payload(b []byte) error {
	s.unread -= min(s.unread, uint64(len(b)))
	return s.conn.Payload(b)
}

// Blame makes err a [*PeerError] of this session's task, unless err blames a
// task already.
func (s *Session) Blame(err error) error {
	var known *PeerError
	if errors.As(err, &known) {
		return err
	}
	return &PeerError{Task: s.Task, Addr: s.Addr, Err: Lost(err)}
}

// SendFailed returns whom to blame for an error of Send. It gives the peer's
// own report a moment to arrive.
func (s *Session) SendFailed(err error) error {
	select {
	case <-s.ended:
		return s.Blame(s.cause)
	case <-time.After(ownWords):
		return s.Blame(err)
	}
}

// Tell reports to the peer why this task stops, waits until the peer has hung
// up, but not longer than most, and closes the connection.
func (s *Session) Tell(why error, most time.Duration) {
	defer s.closeAfter(most)()
	s.conn.Send(wire.Frame{Header: wire.Header{Kind: wire.Error}, Payload: EncodeReport(why)}) // the peer may be gone
	<-s.over
	s.conn.Close() // of no more use
}

// Refuse is Tell for the reader, which expects nothing more: it calls Drain.
func (s *Session) Refuse(why error, most time.Duration) {
	var telling sync.WaitGroup
	telling.Go(func() { s.Tell(why, most) })
	s.Drain()
	telling.Wait()
}

// Bye sends a goodbye, or answers one. It sends at most one.
func (s *Session) Bye() error {
	if s.parted.Swap(true) {
		return nil
	}
	return s.conn.Send(wire.Frame{Header: wire.Header{Kind: wire.Bye}})
}

// Goodbye says goodbye, waits for the peer's goodbye, but not longer than most,
// and closes the connection. Whatever this task sent before has arrived when it
// returns nil.
func (s *Session) Goodbye(most time.Duration) error {
	defer s.closeAfter(most)()
	err := s.Bye()
	if err == nil {
		select {
		case <-s.left:
		case <-s.over:
			err = errors.New("no answer to the goodbye")
		}
	}
	s.conn.Close() // of no more use
	<-s.over
	select {
	case <-s.left:
		return nil
	default:
		return s.Blame(err)
	}
}

// closeAfter closes the connection after some time: that ends Send and Next.
func (s *Session) closeAfter(most time.Duration) (stop func() bool) {
	return time.AfterFunc(most, func() { s.conn.Close() }).Stop
}

// Drain is the reader's last call. It drops what the peer still sends until the
// connection ends, so that the kernel does not reset the connection and with it
// discard this task's report. It returns earlier if the peer has reported an
// error: then neither end has to hear anything more. A second call does nothing.
func (s *Session) Drain() {
	select {
	case <-s.over:
		return
	default:
	}
	defer close(s.over)
	for err := error(nil); err == nil && !s.told; {
		if err = s.skip(); err == nil {
			var h wire.Header
			h, err = s.conn.Next()
			s.told, s.unread = h.Kind == wire.Error, h.Length
		}
	}
	if !s.told {
		s.conn.Drain() // after a frame that makes no sense
	}
}

// skip drops the rest of a payload.
func (s *Session) skip() error {
	b := make([]byte, min(s.unread, 32<<10))
	for s.unread > 0 {
		if err := s.Payload(b[:min(s.unread, uint64(len(b)))]); err != nil {
			return err
		}
	}
	return nil
}

// CloseWith closes the session when ctx ends, until stop is called.
func (s *Session) CloseWith(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { s.conn.Close() })
}

// Close ends the connection at once. What the kernel has taken may still
// arrive at the peer.
func (s *Session) Close() error { return s.conn.Close() }

// SendJSON sends v in one frame of a kind. It refuses more than most bytes.
func (s *Session) SendJSON(kind wire.Kind, v any, most int) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	if len(b) > most {
		return fmt.Errorf("%s of %d bytes, at most %d fit", kind, len(b), most)
	}
	return s.Send(wire.Frame{Header: wire.Header{Kind: kind}, Payload: b})
}

// NextJSON reads the next frame, which must be of a kind and have at most most
// bytes, into v.
func (s *Session) NextJSON(kind wire.Kind, v any, most int) error {
	h, err := s.Next()
	if err != nil {
		return err
	}
	if h.Kind != kind || h.Length > uint64(most) {
		return fmt.Errorf("unexpected %s frame of %d bytes, want a %s of at most %d", h.Kind, h.Length, kind, most)
	}
	b := make([]byte, h.Length)
	if err := s.Payload(b); err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	return nil
}
