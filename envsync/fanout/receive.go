package fanout

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Receiver is the receiving end of the stream on one host. Only one goroutine may
// use it.
type Receiver struct {
	ctx     context.Context // cancelled when the Receiver is closed or the caller's context ends
	cancel  context.CancelFunc
	route   Route
	in      *bufio.Reader // standard input, on which the sender (the launching machine) writes
	network Network
	stream  *io.PipeReader // reading end of a pipe, from which Read takes the stream
	spool   *Spool         // copy of the stream on disk, from which other hosts are served; nil: this host forwards nothing
	port    net.Listener   // listener for other hosts; nil: this host forwards nothing
	running sync.WaitGroup // goroutines that serve other hosts

	mu       sync.Mutex
	out      io.Writer // standard output, which the sender (the launching machine) reads
	has      int64     // number of bytes of the stream received so far
	reported time.Time // time of the last "at N" report to the sender
}

// reportEvery is the minimum time between two reports of the number of received
// bytes.
const reportEvery = 200 * time.Millisecond

// dialTime is the timeout for opening a connection between two hosts,
// including the proof that the peer knows the Key.
const dialTime = 5 * time.Second

// maxConns is the maximum number of open connections from other hosts. It is twice
// the number of hosts that are served, so that a few broken connections do not
// block a host that needs the stream.
const maxConns = 2 * fanOut

// Receive reads a Route from in, and starts to receive the stream. If the host
// forwards the stream, Receive keeps a copy in a temporary file in dir. The
// caller must call Finish or Close. A blocked read of in may outlive both
// calls.
func Receive(ctx context.Context, in *bufio.Reader, out io.Writer, dir string, network Network) (*Receiver, error) {
	line, err := readLine(in)
	if err != nil {
		return nil, fmt.Errorf("read the sender's instructions: %w", err)
	}
	p := &Receiver{in: in, out: out, network: network}
	if err := json.Unmarshal([]byte(line), &p.route); err != nil {
		return nil, fmt.Errorf("read the sender's instructions: %w", err)
	}
	p.ctx, p.cancel = context.WithCancel(ctx)
	if p.route.Pass {
		if err := p.open(dir); err != nil {
			p.cancel()
			return nil, err
		}
	}
	p.begin()
	return p, nil
}

// open opens the port for other hosts and reports its number to the sender
// (the launching machine). A host that cannot open a port reports port 0 and
// forwards nothing; that is no error.
func (p *Receiver) open(dir string) error {
	port, err := p.network.Listen(p.route)
	if err != nil {
		return p.writeLine("port 0")
	}
	_, number, err := net.SplitHostPort(port.Addr().String())
	if err == nil {
		p.spool, err = NewSpool(dir)
	}
	if err == nil {
		err = p.writeLine("port " + number)
	}
	if err != nil {
		return errors.Join(err, port.Close())
	}
	p.port = port
	return nil
}

// begin starts the goroutines that receive the stream and serve other hosts.
func (p *Receiver) begin() {
	if p.spool != nil {
		go func() { p.spool.End(p.fill(p.spool)) }()
		p.running.Go(p.serve)
	}
	r, w := io.Pipe()
	p.stream = r
	go func() {
		var err error
		if p.spool != nil {
			err = p.spool.Copy(p.ctx, w, 0, func() error { return nil })
		} else {
			err = p.fill(w)
		}
		w.CloseWithError(err) // If err is nil, the reader of the pipe gets io.EOF.
	}()
}

// Read reads the next bytes of the stream.
func (p *Receiver) Read(b []byte) (int, error) { return p.stream.Read(b) }

// fill writes the stream to w. It receives the stream from the host at
// Route.From. If that connection fails, fill gets the rest of the stream from
// the sender (the launching machine).
func (p *Receiver) fill(w io.Writer) error {
	if p.route.From != "" {
		err := p.fromPeer(w)
		if err == nil || errors.Is(err, errOutput) || p.ctx.Err() != nil {
			return err
		}
		if err := p.writeLine(fmt.Sprintf("lost %d %.200q", p.received(), err.Error())); err != nil {
			return err
		}
	}
	return readFrames(p.in, w, p.live)
}

// fromPeer receives the stream from the host at Route.From and writes it to w.
func (p *Receiver) fromPeer(w io.Writer) error {
	ctx, cancel := context.WithTimeout(p.ctx, dialTime)
	defer cancel()
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", p.route.From)
	if err != nil {
		return err
	}
	defer raw.Close() // the connection is only read, so an error of Close does not matter
	conn, err := p.network.Secure(ctx, raw, p.route.Key, false)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(p.ctx, func() { raw.Close() })
	defer stop()
	return readFrames(bufio.NewReaderSize(&timeoutConn{conn}, 64<<10), w, p.live)
}

// timeoutConn is a connection whose reads and writes each time out after the
// constant ioTimeout.
type timeoutConn struct{ net.Conn }

func (c *timeoutConn) Read(b []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(ioTimeout)); err != nil {
		return 0, err
	}
	return c.Conn.Read(b)
}

func (c *timeoutConn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(ioTimeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// live adds n to the number of received bytes and reports the sum to the
// sender, at most once in reportEvery. The report also shows the sender that
// this host is alive.
func (p *Receiver) live(n int) error {
	p.mu.Lock()
	p.has += int64(n)
	has, now := p.has, time.Now()
	due := n == 0 || now.Sub(p.reported) > reportEvery
	if due {
		p.reported = now
	}
	p.mu.Unlock()
	if !due {
		return nil
	}
	return p.writeLine(fmt.Sprintf("at %d", has))
}

func (p *Receiver) received() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.has
}

// writeLine writes one line to standard output, which the sender reads.
func (p *Receiver) writeLine(line string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := io.WriteString(p.out, line+"\n"); err != nil {
		return fmt.Errorf("send a report to plx: %w", err)
	}
	return nil
}

// serve accepts connections of other hosts and sends each of them a copy of
// the stream.
func (p *Receiver) serve() {
	places := make(chan struct{}, maxConns)
	for {
		raw, err := p.port.Accept()
		if err != nil {
			// Accept fails after Close has closed the port. On any other
			// error, hosts that wait for this host to accept them time out.
			// They then get the stream from the sending machine.
			return
		}
		select {
		case places <- struct{}{}:
			p.running.Go(func() {
				defer func() { <-places }()
				p.pass(raw)
			})
		default:
			raw.Close() // too many connections: the peer notices that the connection was closed
		}
	}
}

// pass sends the stream to another host. If an error occurs, the other host
// gets the missing part of the stream from the sender (the launching machine).
func (p *Receiver) pass(raw net.Conn) {
	defer raw.Close() // the receiver knows from the end frame that the stream is complete, so an error of Close does not matter
	defer context.AfterFunc(p.ctx, func() { raw.Close() })()
	ctx, cancel := context.WithTimeout(p.ctx, dialTime)
	defer cancel()
	conn, err := p.network.Secure(ctx, raw, p.route.Key, true)
	if err != nil {
		return
	}
	to := newFrames(&timeoutConn{conn})
	if err := p.spool.Copy(p.ctx, to, 0, func() error { return to.writeLength(heartbeat) }); err != nil {
		return
	}
	if to.writeLength(0) == nil {
		// Wait until the receiver closes the connection, which it does after
		// the end frame.
		_, _ = (&timeoutConn{conn}).Read(make([]byte, 1))
	}
}

// Finish reports to the sender (the launching machine) that this host has
// processed the whole stream. Finish returns when the sender has closed this
// process's standard input. The sender does so once no other host still
// receives the stream from this host.
func (p *Receiver) Finish() error {
	defer p.Close()
	if err := p.writeLine("ok"); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, p.in); err != nil {
		return fmt.Errorf("wait for the sender to finish: %w", err)
	}
	return nil
}

// Close stops receiving and serving. It may be called more than once.
func (p *Receiver) Close() {
	p.cancel()
	if p.port != nil {
		p.port.Close() // closing a listener loses no data, so an error of Close does not matter
	}
	p.stream.Close() // makes writes to the pipe fail, which ends the goroutine that fills it
	p.running.Wait()
	if p.spool == nil {
		return
	}
	if _, ended := p.spool.Size(); ended {
		_ = p.spool.Close() // no goroutine reads the file any more, so an error of Close does not matter
	}
}
