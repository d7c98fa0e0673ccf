package protocol

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// magic opens both directions of a connection. It is versioned: an agent is
// always spoken to by the plx that sent it, so any difference is an error.
const magic = "plx-agent-1\n"

// MaxMessage bounds one encoded message in bytes. The largest is a Spec with
// the user's environment.
const MaxMessage = 16 << 20

// errNotAgent says that something else than an agent answered.
var errNotAgent = errors.New("no plx agent answered")

// Conn carries messages over a stream. Send may be called by any goroutine,
// Receive by one at a time. Neither has a deadline of its own: whoever owns
// the stream closes it when the other side is silent for too long.
type Conn struct {
	stream io.ReadWriteCloser
	in     *bufio.Reader
	mu     sync.Mutex
}

// Open exchanges the magic over stream and owns it from then on. On an error
// the stream is closed.
func Open(stream io.ReadWriteCloser) (*Conn, error) {
	c := &Conn{stream: stream, in: bufio.NewReader(stream)}
	if err := c.greet(); err != nil {
		stream.Close() // the greeting's error says more
		return nil, err
	}
	return c, nil
}

func (c *Conn) greet() error {
	sent := make(chan error, 1)
	go func() {
		_, err := io.WriteString(c.stream, magic)
		sent <- err
	}()
	got := make([]byte, len(magic))
	if n, err := io.ReadFull(c.in, got); err != nil {
		return fmt.Errorf("%w: %w after %d bytes", errNotAgent, err, n)
	}
	if string(got) != magic {
		return fmt.Errorf("%w, but something that begins with %q", errNotAgent, got)
	}
	return <-sent
}

// Send writes one message.
func (c *Conn) Send(m Message) error {
	body, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	if len(body) > MaxMessage {
		return fmt.Errorf("message of %d bytes, at most %d are allowed", len(body), MaxMessage)
	}
	frame := append(binary.LittleEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body))), body...)
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err = c.stream.Write(frame)
	return err
}

// Receive reads one message. io.EOF means that the other side closed in good
// order, between two messages.
func (c *Conn) Receive() (Message, error) {
	var m Message
	var size [4]byte
	if _, err := io.ReadFull(c.in, size[:]); err != nil {
		return m, err
	}
	n := binary.LittleEndian.Uint32(size[:])
	if n > MaxMessage {
		return m, fmt.Errorf("message of %d bytes, at most %d are allowed", n, MaxMessage)
	}
	body, err := io.ReadAll(io.LimitReader(c.in, int64(n))) // grows with what really arrives: a length alone costs no memory
	if err == nil && len(body) < int(n) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return m, fmt.Errorf("message cut short: %w", err)
	}
	if err := json.Unmarshal(body, &m); err != nil {
		return m, fmt.Errorf("message: %w", err)
	}
	return m, nil
}

// Close closes the stream; a blocked Receive returns.
func (c *Conn) Close() error { return c.stream.Close() }
