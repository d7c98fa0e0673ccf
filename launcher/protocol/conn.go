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

// Both sides begin a connection by sending one of these strings. The string
// identifies the protocol of all later messages on the connection.
const (
	magic      = "plx-agent-1\n" // for messages of a job, between its agent and a client
	magicCalls = "plx-agent-3\n" // for remote procedure calls to an agent without a job; a Spec may then give it a job, and messages of this job follow
)

// MaxMessage is the largest size of one encoded message in bytes. The largest
// message is a Spec, which contains the user's environment variables.
const MaxMessage = 16 << 20

// KnowsNoCalls is part of the error text that an older agent, which does not
// support calls, prints when it receives magicCalls.
const KnowsNoCalls = `something that begins with "plx-agent-3`

// errNotAgent is the error if the peer's first bytes are not a magic string of
// plx.
var errNotAgent = errors.New("no plx agent answered")

// VersionError is the error if the peer is a plx agent with another protocol
// version. Got is the version string that the peer sent.
type VersionError struct{ Got string }

func (e *VersionError) Error() string {
	return fmt.Sprintf("its agent is of another version of plx (%s): use the plx that launched the job", e.Got)
}

// Conn sends and receives messages over a byte stream. Several goroutines may
// call Send at the same time, but only one may call Receive. Neither method
// has a timeout: the owner of the stream must close the stream if the other
// side stops responding.
//
// Receive never reads beyond the end of a message. So after a message, another
// process can continue to read the stream.
type Conn struct {
	stream io.ReadWriteCloser
	mu     sync.Mutex // held while a message is being written
}

// Open starts a connection to an agent that runs a job: it exchanges magic
// strings over stream. The Conn owns stream; if Open fails, it closes stream.
func Open(stream io.ReadWriteCloser) (*Conn, error) { return open(stream, magic) }

// OpenCalls is like Open for an agent that has no job yet and accepts calls.
func OpenCalls(stream io.ReadWriteCloser) (*Conn, error) { return open(stream, magicCalls) }

// Continue returns a Conn for a stream on which another process has already
// called Open. That process must have read complete messages only.
func Continue(stream io.ReadWriteCloser) *Conn { return &Conn{stream: stream} }

func open(stream io.ReadWriteCloser, magic string) (*Conn, error) {
	c := &Conn{stream: stream}
	if err := c.exchangeMagic(magic); err != nil {
		stream.Close() // the error of Close is ignored: that of exchangeMagic is more informative
		return nil, err
	}
	return c, nil
}

func (c *Conn) exchangeMagic(magic string) error {
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

// Duplex combines the standard input and output of a process into one stream.
// Its Close does nothing, because the files are closed when the process exits.
func Duplex(in io.Reader, out io.Writer) io.ReadWriteCloser { return duplex{in, out} }

type duplex struct {
	io.Reader
	io.Writer
}

func (duplex) Close() error { return nil }

// Send writes one message to the stream.
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

// A message is encoded as a 4-byte length and JSON. Messages of type Piece or
// Order carry raw data instead, because JSON would be slow to encode. Their
// length field has one of the bits below set. After the length come an 8-byte
// call ID, a 1-byte stream number and the data.
const (
	rawPiece = 1 << 31
	rawOrder = 1 << 30
	rawHead  = 9 // size in bytes of the call ID and stream number before the data
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
		return m, errors.New("unknown frame type or frame too short")
	}
	id, data := binary.LittleEndian.Uint64(body), body[rawHead:]
	if kind == rawPiece {
		m.Piece = &Piece{ID: id, Stream: int(body[8]), Data: data}
	} else {
		m.Order = &Order{ID: id, Data: data}
	}
	return m, nil
}

// Receive reads one message. It returns io.EOF if the peer has closed the
// connection between two messages.
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
	body, err := io.ReadAll(io.LimitReader(c.stream, int64(n))) // ReadAll allocates memory only as data arrives, so a forged length cannot exhaust the memory
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

// Close closes the stream, which makes a blocked Receive return an error.
func (c *Conn) Close() error { return c.stream.Close() }
