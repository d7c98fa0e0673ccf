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

// ErrSilent is the error after a peer has sent nothing, not even a heartbeat,
// for as long as the connection tolerates: its process is frozen, or the network
// is cut.
var ErrSilent = errors.New("silent")

// beats is how many heartbeats fit in the silence that a connection
// tolerates.
const beats = 6

// Conn sends and receives frames. Any goroutine may call Send and Close. One
// goroutine at a time calls Next and Payload. It must keep calling them: they
// also read the peer's heartbeats.
type Conn struct {
	conn       net.Conn
	generation uint32
	reader     *bufio.Reader
	head       [HeaderSize]byte

	write   sync.Mutex // held while frames are written; guards headers and iovec
	headers []byte
	iovec   net.Buffers

	taken   atomic.Uint64    // number of bytes read
	given   atomic.Uint64    // number of bytes written
	silence atomic.Int64     // nanoseconds that the peer may send nothing
	epoch   atomic.Uint32    // epoch of all frames that are sent; zero leaves the epoch in their headers
	changed [2]chan struct{} // hold a token for beat and for watch after silence has changed
	closing sync.Once
	closed  chan struct{}
	silent  atomic.Bool // watch has closed the connection because the peer sent nothing
	running sync.WaitGroup
}

// NewConn begins to exchange heartbeats over conn, which it owns from now on.
// After a peer has sent nothing for silence, every call fails with ErrSilent.
// NewConn does not set the kernel's buffer sizes: the kernel grows them itself,
// past what a program may ask for.
func NewConn(conn net.Conn, generation int, silence time.Duration) *Conn {
	c := &Conn{conn: conn, generation: uint32(generation), closed: make(chan struct{})}
	c.reader = bufio.NewReaderSize(counted{c}, 64<<10)
	c.silence.Store(int64(silence))
	for i := range c.changed {
		c.changed[i] = make(chan struct{}, 1)
	}
	c.running.Go(c.beat)
	c.running.Go(c.watch)
	return c
}

// SetSilence changes how long the peer may send nothing, from now on.
func (c *Conn) SetSilence(d time.Duration) {
	c.silence.Store(int64(d))
	for _, changed := range c.changed {
		select {
		case changed <- struct{}{}:
		default: // a token is there already
		}
	}
}

// SetEpoch sets the epoch of all frames that are sent from now on.
func (c *Conn) SetEpoch(epoch uint32) { c.epoch.Store(epoch) }

// fault is called at named places. A build with the tag failpoint, and tests, set it.
var fault = func(place string) error { return nil }

// Send writes frames one after the other and does not copy their payloads. The
// payloads must not change until it returns.
func (c *Conn) Send(frames ...Frame) error {
	c.write.Lock()
	defer c.write.Unlock()
	if err := fault("wire.send"); err != nil {
		return c.tear(frames, err)
	}
	return c.send(frames)
}

// send is Send for callers that hold c.write.
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
			flip(at)
		}
		c.iovec = append(c.iovec, at)
		if len(frames[i].Payload) > 0 {
			c.iovec = append(c.iovec, frames[i].Payload)
		}
	}
	n, err := c.writeBuffers()
	c.given.Add(uint64(n))
	return c.explain(err)
}

// writeBuffers writes c.iovec and empties it. The caller holds c.write.
func (c *Conn) writeBuffers() (n int64, err error) {
	whole := c.iovec
	if channel, ok := c.conn.(interface {
		WriteBuffers(buffers ...[]byte) (int64, error)
	}); ok {
		n, err = channel.WriteBuffers(whole...)
	} else {
		n, err = c.iovec.WriteTo(c.conn) // eats c.iovec from the front
	}
	clear(whole)
	c.iovec = whole[:0]
	return n, err
}

// Next returns the header of the next frame that is not a heartbeat. The caller
// reads its payload, Length bytes, with Payload before it calls Next again.
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

// Payload reads len(b) bytes of the payload that Next announced.
func (c *Conn) Payload(b []byte) error {
	_, err := io.ReadFull(c.reader, b)
	return c.explain(err)
}

// Traffic returns how many bytes were sent and received so far, headers and
// heartbeats included.
func (c *Conn) Traffic() (sent, received uint64) { return c.given.Load(), c.taken.Load() }

// Drain reads and drops all bytes, frames or not, until the peer hangs up or
// Close is called.
func (c *Conn) Drain() {
	io.Copy(io.Discard, c.reader) // its error is the end of the connection
}

// Close ends the connection and waits for its goroutines. Data that the kernel
// has taken may still arrive at the peer.
func (c *Conn) Close() error {
	err := c.cut()
	c.running.Wait()
	return err
}

// cut is Close for the connection's own goroutines: it does not wait for them.
func (c *Conn) cut() (err error) {
	c.closing.Do(func() {
		close(c.closed)
		err = c.conn.Close()
	})
	return err
}

// explain replaces err by the reason why watch has closed the connection.
func (c *Conn) explain(err error) error {
	if err != nil && c.silent.Load() {
		return fmt.Errorf("%w for %v", ErrSilent, time.Duration(c.silence.Load()))
	}
	return err
}

// beat sends heartbeats, except while Send writes.
func (c *Conn) beat() {
	for c.pause(c.changed[0]) {
		if !c.write.TryLock() {
			continue // the peer sees the data
		}
		err := c.send([]Frame{{Header: Header{Kind: Heartbeat}}})
		c.write.Unlock()
		if err != nil {
			return // Next and Send fail too
		}
	}
}

// watch closes the connection when nothing was read during several pauses. It
// counts pauses and not time, so that a process that was itself frozen first
// reads what has come.
func (c *Conn) watch() {
	last, idle := c.taken.Load(), 0
	for c.pause(c.changed[1]) {
		if now := c.taken.Load(); now != last {
			last, idle = now, 0
			continue
		}
		if idle++; idle >= beats {
			c.silent.Store(true)
			c.cut() // its error says nothing more
			return
		}
	}
}

// pause waits for the time between two heartbeats; false means closed.
func (c *Conn) pause(changed <-chan struct{}) bool {
	for {
		select {
		case <-time.After(max(time.Duration(c.silence.Load())/beats, time.Millisecond)):
			return true
		case <-changed:
		case <-c.closed:
			return false
		}
	}
}

// counted is the raw connection; it counts what is read.
type counted struct{ c *Conn }

func (r counted) Read(b []byte) (int, error) {
	n, err := r.c.conn.Read(b)
	r.c.taken.Add(uint64(n))
	return n, err
}

// tear is what a fault makes of Send: half of the first frame goes out, then
// the connection is reset. The caller holds c.write.
func (c *Conn) tear(frames []Frame, cause error) error {
	if len(frames) > 0 {
		var head [HeaderSize]byte
		h := frames[0].Header
		h.Generation, h.Length = c.generation, uint64(len(frames[0].Payload))
		h.put(head[:])
		whole := append(head[:], frames[0].Payload...)
		n, _ := c.conn.Write(whole[:len(whole)/2]) // the connection ends badly in any case
		c.given.Add(uint64(n))
	}
	under := c.conn
	if channel, ok := under.(interface{ NetConn() net.Conn }); ok {
		under = channel.NetConn()
	}
	if tcp, ok := under.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // the connection ends badly in any case
	}
	_ = c.cut() // the connection ends badly in any case
	return cause
}

// flip is what a fault makes of a header: it flips one bit, which depends on the
// step.
func flip(header []byte) {
	const stride = 89 // has no factor in common with the number of bits, so that in time it flips each of them
	bit := binary.LittleEndian.Uint64(header[16:]) * stride % (8 * HeaderSize)
	header[bit/8] ^= 1 << (bit % 8)
}
