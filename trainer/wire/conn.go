package wire

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// ErrPeerTimeout is the error if the peer has sent nothing, not even a heartbeat,
// for the time that the connection allows. The peer's process is frozen, or
// the network between them is interrupted.
var ErrPeerTimeout = errors.New("silent")

// beatsPerSilence is the number of heartbeats that are sent in the time after which a
// silent connection fails.
const beatsPerSilence = 6

// Conn sends and receives frames on a connection. Any goroutine may call Send
// and Close. Only one goroutine at a time may call Next and Payload. That
// goroutine must keep calling them, because they also read the peer's
// heartbeats.
type Conn struct {
	conn       net.Conn
	generation uint32
	reader     *bufio.Reader
	head       [HeaderSize]byte

	write   sync.Mutex // held while frames are written; guards fields headers and iovec
	headers []byte
	iovec   net.Buffers

	received    atomic.Uint64    // number of bytes received, from which watch sees that the peer is alive
	sent        atomic.Uint64    // number of bytes sent, for Traffic
	peerTimeout atomic.Int64     // nanoseconds after which a peer that sends nothing is considered dead
	epoch       atomic.Uint32    // written as Header.Epoch of every sent frame; 0 means that frames keep their own value
	changed     [2]chan struct{} // SetPeerTimeout puts a token into each channel, so that beat (index 0) and watch (index 1) use the new time at once
	closing     sync.Once
	closed      chan struct{}
	silent      atomic.Bool // true once method watch has closed the connection because the peer sent nothing
	running     sync.WaitGroup
}

// NewConn returns a Conn that owns conn and starts to send heartbeats. If the
// peer sends nothing for the time silence, every later call fails with
// ErrPeerTimeout. NewConn does not set the kernel's socket buffer sizes: the kernel
// adapts them, and goes beyond what a program may request.
func NewConn(conn net.Conn, generation int, silence time.Duration) *Conn {
	c := &Conn{conn: conn, generation: uint32(generation), closed: make(chan struct{})}
	c.reader = bufio.NewReaderSize(countingReader{c}, 64<<10)
	c.peerTimeout.Store(int64(silence))
	for i := range c.changed {
		c.changed[i] = make(chan struct{}, 1)
	}
	c.running.Go(c.beat)
	c.running.Go(c.watch)
	return c
}

// SetPeerTimeout changes the time after which a peer that sends nothing is
// considered dead.
func (c *Conn) SetPeerTimeout(d time.Duration) {
	c.peerTimeout.Store(int64(d))
	for _, changed := range c.changed {
		select {
		case changed <- struct{}{}:
		default: // the channel already holds a token
		}
	}
}

// SetEpoch sets Header.Epoch of all frames sent from now on.
func (c *Conn) SetEpoch(epoch uint32) { c.epoch.Store(epoch) }

// fault injects faults in tests: if it returns an error, the code at the named
// place simulates a failure. Tests, and builds with the tag failpoint, replace
// fault.
var fault = func(place string) error { return nil }

// Send writes frames in their order. It does not copy payloads, so they must
// not change until it returns.
func (c *Conn) Send(frames ...Frame) error {
	c.write.Lock()
	defer c.write.Unlock()
	if err := fault("wire.send"); err != nil {
		return c.breakConn(frames, err)
	}
	return c.send(frames)
}

// send does the work of Send. The caller holds c.write.
func (c *Conn) send(frames []Frame) error {
	if need := len(frames) * HeaderSize; cap(c.headers) < need {
		c.headers = make([]byte, need)
	}
	c.iovec = c.iovec[:0]
	epoch := c.epoch.Load()
	for i := range frames {
		h := frames[i].Header
		h.Generation, h.Length = c.generation, uint64(len(frames[i].Payload))
		h.Epoch = cmp.Or(epoch, h.Epoch)
		at := c.headers[i*HeaderSize : (i+1)*HeaderSize : (i+1)*HeaderSize]
		h.put(at)
		if h.Length > 0 && fault("wire.corrupt") != nil {
			flipBit(at)
		}
		c.iovec = append(c.iovec, at)
		if len(frames[i].Payload) > 0 {
			c.iovec = append(c.iovec, frames[i].Payload)
		}
	}
	n, err := c.writeBuffers()
	c.sent.Add(uint64(n))
	return c.explain(err)
}

// writeBuffers writes all buffers in c.iovec and empties it. The caller holds
// c.write.
func (c *Conn) writeBuffers() (n int64, err error) {
	whole := c.iovec
	if channel, ok := c.conn.(interface {
		WriteBuffers(buffers ...[]byte) (int64, error)
	}); ok {
		n, err = channel.WriteBuffers(whole...)
	} else {
		n, err = c.iovec.WriteTo(c.conn) // WriteTo removes what it has sent from c.iovec
	}
	clear(whole)
	c.iovec = whole[:0]
	return n, err
}

// Next returns the header of the next frame that is not a heartbeat. The
// caller must read the payload, Length bytes, by Payload before it calls Next
// again.
func (c *Conn) Next() (Header, error) {
	for {
		if _, err := io.ReadFull(c.reader, c.head[:]); err != nil {
			return Header{}, c.explain(err)
		}
		h, err := parse(c.head[:])
		if err != nil {
			return Header{}, err
		}
		if h.Generation != c.generation {
			return Header{}, fmt.Errorf("frame of generation %d, this is generation %d", h.Generation, c.generation)
		}
		if h.Kind != Heartbeat {
			return h, nil
		}
		if h.Length != 0 {
			return Header{}, fmt.Errorf("heartbeat with %d bytes of payload", h.Length)
		}
	}
}

// Payload fills b with bytes of the current frame's payload.
func (c *Conn) Payload(b []byte) error {
	_, err := io.ReadFull(c.reader, b)
	return c.explain(err)
}

// Traffic returns the numbers of bytes sent and received so far, including
// headers and heartbeats.
func (c *Conn) Traffic() (sent, received uint64) { return c.sent.Load(), c.received.Load() }

// Drain reads and discards all data, even if it is not in valid frames, until
// the peer closes the connection or Close is called.
func (c *Conn) Drain() {
	io.Copy(io.Discard, c.reader) // Copy returns when the connection has ended, so its error says nothing
}

// Close closes the connection and waits for its goroutines. Data that Send has
// passed to the kernel may still arrive at the peer.
func (c *Conn) Close() error {
	err := c.closeConn()
	c.running.Wait()
	return err
}

// closeConn closes the connection without waiting for its goroutines, because
// they call closeConn themselves.
func (c *Conn) closeConn() (err error) {
	c.closing.Do(func() {
		close(c.closed)
		err = c.conn.Close()
	})
	return err
}

// explain returns ErrPeerTimeout instead of err if method watch has closed the
// connection because the peer sent nothing.
func (c *Conn) explain(err error) error {
	if err != nil && c.silent.Load() {
		return fmt.Errorf("%w for %v", ErrPeerTimeout, time.Duration(c.peerTimeout.Load()))
	}
	return err
}

// beat sends heartbeats until the connection is closed. It skips a heartbeat
// while Send writes.
func (c *Conn) beat() {
	for c.pause(c.changed[0]) {
		if !c.write.TryLock() {
			continue // the data that Send writes shows the peer that this side is alive
		}
		err := c.send([]Frame{{Header: Header{Kind: Heartbeat}}})
		c.write.Unlock()
		if err != nil {
			return // the connection is broken, so Next and Send will return an error too
		}
	}
}

// watch closes the connection after several equal intervals in which no byte
// arrived. It counts intervals instead of measuring time. So if this process
// itself was frozen, it can read the data that has arrived meanwhile before it
// closes the connection.
func (c *Conn) watch() {
	last, idle := c.received.Load(), 0
	for c.pause(c.changed[1]) {
		if now := c.received.Load(); now != last {
			last, idle = now, 0
			continue
		}
		if idle++; idle >= beatsPerSilence {
			c.silent.Store(true)
			c.closeConn() // the error does not matter: the connection is dead
			return
		}
	}
}

// pause waits for the time between two heartbeats. It returns false if the
// connection was closed.
func (c *Conn) pause(changed <-chan struct{}) bool {
	for {
		select {
		case <-time.After(max(time.Duration(c.peerTimeout.Load())/beatsPerSilence, time.Millisecond)):
			return true
		case <-changed:
		case <-c.closed:
			return false
		}
	}
}

// countingReader reads from the raw connection and counts the bytes.
type countingReader struct{ c *Conn }

func (r countingReader) Read(b []byte) (int, error) {
	n, err := r.c.conn.Read(b)
	r.c.received.Add(uint64(n))
	return n, err
}

// breakConn simulates a broken connection in tests: it sends half of the first
// frame and then resets the connection. The caller holds c.write.
func (c *Conn) breakConn(frames []Frame, cause error) error {
	if len(frames) > 0 {
		var head [HeaderSize]byte
		h := frames[0].Header
		h.Generation, h.Length = c.generation, uint64(len(frames[0].Payload))
		h.put(head[:])
		whole := append(head[:], frames[0].Payload...)
		n, _ := c.conn.Write(whole[:len(whole)/2]) // the error does not matter: the connection is reset anyway
		c.sent.Add(uint64(n))
	}
	under := c.conn
	if channel, ok := under.(interface{ NetConn() net.Conn }); ok {
		under = channel.NetConn()
	}
	if tcp, ok := under.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // the error does not matter: the connection is reset anyway
	}
	_ = c.closeConn() // the error does not matter: the connection is reset anyway
	return cause
}

// flipBit simulates damaged data in tests: it inverts one bit of a header. Which
// bit depends on the header's step.
func flipBit(header []byte) {
	const stride = 89 // coprime to the number of bits in a header, so that successive steps reach every bit
	bit := binary.LittleEndian.Uint64(header[16:]) * stride % (8 * HeaderSize)
	header[bit/8] ^= 1 << (bit % 8)
}
