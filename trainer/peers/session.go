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

// reportTimeout is the time that a session waits for the peer's error report after
// Send failed. The report may say why the peer closed the connection.
const reportTimeout = time.Second

// ErrGoodbye is the error of Next after the peer has sent a goodbye.
var ErrGoodbye = errors.New("said goodbye")

// Session is a connection to another task. Before one end stops, it sends the
// other end the reason: an error report if something failed, otherwise a
// goodbye.
//
// One goroutine, the reader, calls Next and Payload, and Drain at the end. Any
// goroutine may call the other methods. CloseWithError and Goodbye wait until the reader
// has called Drain.
type Session struct {
	Task cluster.Task
	Addr string // network address of the other end, for error messages

	conn        *wire.Conn
	saidGoodbye atomic.Bool   // true once this task has sent its goodbye
	reported    bool          // true once the peer has sent an error report; only the reader uses this field
	unread      uint64        // number of payload bytes of the current frame that are not read yet; only the reader uses this field
	peerLeft    chan struct{} // closed when the peer's goodbye has arrived
	ended       chan struct{} // closed after Next has returned an error
	cause       error         // the error that Next has returned; may be read once ended is closed
	over        chan struct{} // closed when Drain returns; the reader reads nothing after that
}

// NewSession returns a session that uses and owns the connection of p. A peer
// that sends nothing for the time silence, not even a heartbeat, is considered
// lost.
func NewSession(p Peer, generation int, silence time.Duration) *Session {
	return &Session{
		Task: p.Task, Addr: p.Addr, conn: wire.NewConn(p.Conn, generation, silence),
		peerLeft: make(chan struct{}), ended: make(chan struct{}), over: make(chan struct{}),
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

// SetPeerTimeout changes the time after which a peer that sends nothing is
// considered lost.
func (s *Session) SetPeerTimeout(d time.Duration) { s.conn.SetPeerTimeout(d) }

// Send writes frames, see [wire.Conn.Send].
func (s *Session) Send(frames ...wire.Frame) error { return s.conn.Send(frames...) }

// SetEpoch sets Header.Epoch of all frames sent from now on.
func (s *Session) SetEpoch(epoch uint32) { s.conn.SetEpoch(epoch) }

// Traffic returns the numbers of bytes sent and received so far, see
// [wire.Conn.Traffic].
func (s *Session) Traffic() (sent, received uint64) { return s.conn.Traffic() }

// Next returns the header of the next frame. If the peer has reported why it
// stops, the error wraps a [*PeerError] of the task at fault. If the peer has
// sent a goodbye, the error is ErrGoodbye; the first such call also returns
// the header of the goodbye frame. After an error the reader must call Drain.
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
		close(s.peerLeft)
	default:
		s.unread = h.Length
		return h, nil
	}
	s.cause = err
	close(s.ended)
	return h, err
}

// report reads an error frame and returns the error that the peer reports.
func (s *Session) report(h wire.Header) error {
	reason, err := ReadReport(s.conn, h)
	if err != nil {
		return err
	}
	s.reported = true
	return fmt.Errorf("%s (%s) reports: %w", s.Task, s.Addr, s.Blame(reason))
}

// Payload fills b with bytes of the current frame's payload.
func (s *Session) Payload(b []byte) error {
	s.unread -= min(s.unread, uint64(len(b)))
	return s.conn.Payload(b)
}

// Blame returns err as a [*PeerError] of this session's peer. If err already
// is a PeerError, Blame returns it unchanged.
func (s *Session) Blame(err error) error {
	var known *PeerError
	if errors.As(err, &known) {
		return err
	}
	return &PeerError{Task: s.Task, Addr: s.Addr, Err: Lost(err)}
}

// SendFailed returns the error to report after Send failed with err. It waits
// up to reportTimeout for the peer's own error report, which says more than
// err.
func (s *Session) SendFailed(err error) error {
	select {
	case <-s.ended:
		return s.Blame(s.cause)
	case <-time.After(reportTimeout):
		return s.Blame(err)
	}
}

// CloseWithError reports to the peer why this task stops. It waits until the peer has
// closed the connection, but no longer than the duration most. Then it closes
// the connection.
func (s *Session) CloseWithError(why error, most time.Duration) {
	defer s.closeAfter(most)()
	s.conn.Send(wire.Frame{Header: wire.Header{Kind: wire.Error}, Payload: EncodeReport(why)}) // an error does not matter: the peer may have ended already
	<-s.over
	s.conn.Close() // an error does not matter: the session is over
}

// Refuse calls CloseWithError and Drain concurrently. The reader calls Refuse
// when it expects no further frame.
func (s *Session) Refuse(why error, most time.Duration) {
	var telling sync.WaitGroup
	telling.Go(func() { s.CloseWithError(why, most) })
	s.Drain()
	telling.Wait()
}

// Bye sends a goodbye, as the first of both ends or as a reply to the peer's
// goodbye. It sends at most one goodbye per session.
func (s *Session) Bye() error {
	if s.saidGoodbye.Swap(true) {
		return nil
	}
	return s.conn.Send(wire.Frame{Header: wire.Header{Kind: wire.Bye}})
}

// Goodbye sends a goodbye, waits for the peer's goodbye, but no longer than
// the duration most, and closes the connection. If it returns nil, all earlier
// frames of this task have arrived.
func (s *Session) Goodbye(most time.Duration) error {
	defer s.closeAfter(most)()
	err := s.Bye()
	if err == nil {
		select {
		case <-s.peerLeft:
		case <-s.over:
			err = errors.New("no answer to the goodbye")
		}
	}
	s.conn.Close() // an error does not matter: the session is over
	<-s.over
	select {
	case <-s.peerLeft:
		return nil
	default:
		return s.Blame(err)
	}
}

// closeAfter closes the connection after the duration most, which makes Send
// and Next return. A call of stop before that keeps the connection open.
func (s *Session) closeAfter(most time.Duration) (stop func() bool) {
	return time.AfterFunc(most, func() { s.conn.Close() }).Stop
}

// Drain must be the reader's last call. It reads and discards everything that
// the peer sends until the connection ends. If this task closed the connection
// with unread data, the kernel could reset it, and the peer would not get this
// task's error report. If the peer has reported an error, Drain returns at
// once, because neither end needs further data. A second call does nothing.
func (s *Session) Drain() {
	select {
	case <-s.over:
		return
	default:
	}
	defer close(s.over)
	for err := error(nil); err == nil && !s.reported; {
		if err = s.skip(); err == nil {
			var h wire.Header
			h, err = s.conn.Next()
			s.reported, s.unread = h.Kind == wire.Error, h.Length
		}
	}
	if !s.reported {
		s.conn.Drain() // after an invalid frame, the limits of frames are unknown, so discard bytes
	}
}

// skip discards the rest of the current frame's payload.
func (s *Session) skip() error {
	b := make([]byte, min(s.unread, 32<<10))
	for s.unread > 0 {
		if err := s.Payload(b[:min(s.unread, uint64(len(b)))]); err != nil {
			return err
		}
	}
	return nil
}

// CloseWith closes the session when ctx ends, unless stop is called before.
func (s *Session) CloseWith(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { s.conn.Close() })
}

// Close closes the connection at once. Data that Send has passed to the kernel
// may still arrive at the peer.
func (s *Session) Close() error { return s.conn.Close() }

// SendJSON sends v as JSON in one frame of the type kind. It returns an error
// if the JSON has more bytes than the parameter most allows.
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

// NextJSON decodes the JSON in the next frame into v. It returns an error if
// the frame is not of the type kind, or has more bytes than the parameter most
// allows.
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
