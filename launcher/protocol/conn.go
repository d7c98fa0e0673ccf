package protocol

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// A magic opens both directions of a connection. It names the messages that follow.
const (
	magic      = "plx-agent-1\n" // of a job, to its agent that runs
	magicCalls = "plx-agent-3\n" // calls, and then the messages of a job from its Spec on
)

// MaxMessage bounds one encoded message in bytes. The largest is a Spec with
// the user's environment.
const MaxMessage = 16 << 20

// KnowsNoCalls is in what an agent prints that does not know calls.
const KnowsNoCalls = `something that begins with "plx-agent-3`

// errNotAgent says that something else than an agent answered.
var errNotAgent = errors.New("no plx agent answered")

// VersionError says that an agent of another version of plx answered.
type VersionError struct{ Got string }

func (e *VersionError) Error() string {
	return fmt.Sprintf("its agent is of another version of plx (%s): use the plx that launched the job", e.Got)
}

// Conn carries messages over a stream. Send may be called by any goroutine,
// Receive by one at a time. Neither has a deadline of its own: whoever owns
// the stream closes it when the other side is silent for too long. Receive reads no
// byte beyond its message, so that another process can go on with the stream.
type Conn struct {
	stream io.ReadWriteCloser
	mu     sync.Mutex // is held while a message is written
}

// Open exchanges a magic over stream and owns it from then on: that of the agent of a job. On
// an error the stream is closed.
func Open(stream io.ReadWriteCloser) (*Conn, error) { return open(stream, magic) }

// OpenCalls is Open of an agent that has no job yet.
func OpenCalls(stream io.ReadWriteCloser) (*Conn, error) { return open(stream, magicCalls) }

// Continue goes on with a stream on which another process has opened a Conn, and received all
// messages until now.
func Continue(stream io.ReadWriteCloser) *Conn { return &Conn{stream: stream} }

func open(stream io.ReadWriteCloser, magic string) (*Conn, error) {
	c := &Conn{stream: stream}
	if err := c.greet(magic); err != nil {
		stream.Close() // the greeting's error says more
		return nil, err
	}
	return c, nil
}

func (c *Conn) greet(magic string) error {
	sent := make(chan error, 1)
	go func() {
		_, err := io.WriteString(c.stream, magic)
		sent <- err
	}()
	got := make([]byte, len(magic))
	if n, err := io.ReadFull(c.stream, got); err != nil {
		return fmt.Errorf("%w: %w after %d bytes", errNotAgent, err, n)
	}
	if bytes.HasPrefix(got, []byte("plx-agent-")) && string(got) != magic {
		return &VersionError{Got: string(got[:len(got)-1])}
	}
	if string(got) != magic {
		return fmt.Errorf("%w, but something that begins with %q", errNotAgent, got)
	}
	return <-sent
}

// Duplex makes one stream of the standard input and output of a process, which end with it:
// Close does nothing.
func Duplex(in io.Reader, out io.Writer) io.ReadWriteCloser { return duplex{in, out} }

type duplex struct {
	io.Reader
	io.Writer
}

func (duplex) Close() error { return nil }

// Send writes one message.
func (c *Conn) Send(m Message) error {
	body, kind, err := encode(m)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	if len(body) > MaxMessage {
		return fmt.Errorf("message of %d bytes, at most %d are allowed", len(body), MaxMessage)
	}
	frame := append(binary.LittleEndian.AppendUint32(make([]byte, 0, 4+len(body)), kind|uint32(len(body))), body...)
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err = c.stream.Write(frame)
	return err
}

// A message is its length, and JSON. The bytes that calls move are not encoded: the length of a
// Piece or an Order has one of these bits, and before the bytes are the number of the call, and of
// a Piece's stream.
const (
	rawPiece = 1 << 31
	rawOrder = 1 << 30
	rawHead  = 9 // bytes before those of the call
)

func encode(m Message) (body []byte, kind uint32, err error) {
	raw := func(id uint64, stream byte, data []byte) []byte {
		return append(append(binary.LittleEndian.AppendUint64(make([]byte, 0, rawHead+len(data)), id), stream), data...)
	}
	switch {
	case m.Piece != nil:
		return raw(m.Piece.ID, byte(m.Piece.Stream), m.Piece.Data), rawPiece, nil
	case m.Order != nil:
		return raw(m.Order.ID, 0, m.Order.Data), rawOrder, nil
	}
	body, err = json.Marshal(m)
	return body, 0, err
}

func decode(body []byte, kind uint32) (m Message, err error) {
	if kind == 0 {
		err = json.Unmarshal(body, &m)
		return m, err
	}
	if len(body) < rawHead || kind == rawPiece|rawOrder {
		return m, errors.New("it is of no kind")
	}
	id, data := binary.LittleEndian.Uint64(body), body[rawHead:]
	if kind == rawPiece {
		m.Piece = &Piece{ID: id, Stream: int(body[8]), Data: data}
	} else {
		m.Order = &Order{ID: id, Data: data}
	}
	return m, nil
}

// Receive reads one message. io.EOF means that the other side closed in good
// order, between two messages.
func (c *Conn) Receive() (Message, error) {
	var m Message
	var size [4]byte
	if _, err := io.ReadFull(c.stream, size[:]); err != nil {
		return m, err
	}
	n := binary.LittleEndian.Uint32(size[:])
	kind := n & (rawPiece | rawOrder)
	n &^= kind
	if n > MaxMessage {
		return m, fmt.Errorf("message of %d bytes, at most %d are allowed", n, MaxMessage)
	}
	body, err := io.ReadAll(io.LimitReader(c.stream, int64(n))) // grows with what really arrives: a length alone costs no memory
	if err == nil && len(body) < int(n) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return m, fmt.Errorf("message cut short: %w", err)
	}
	if m, err = decode(body, kind); err != nil {
		return m, fmt.Errorf("message: %w", err)
	}
	return m, nil
}

// Close closes the stream; a blocked Receive returns.
func (c *Conn) Close() error { return c.stream.Close() }
