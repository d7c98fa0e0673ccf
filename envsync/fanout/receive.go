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

// Part is a host's part in a relay. One goroutine may use it.
type Part struct {
	ctx     context.Context // ends the part
	cancel  context.CancelFunc
	route   Route
	in      *bufio.Reader // from the sender
	network Network
	stream  *io.PipeReader // what Read reads
	spool   *Spool         // what is passed on; nil: nothing is
	port    net.Listener   // where others get it; nil: nowhere
	running sync.WaitGroup // goroutines that serve others

	mu   sync.Mutex
	out  io.Writer // to the sender
	has  int64     // bytes of the stream that were received
	told time.Time // when has was last reported
}

// tellEvery is how often a host reports how many bytes it has.
const tellEvery = 200 * time.Millisecond

// dialTime bounds a connection to another host, with its proof.
const dialTime = 5 * time.Second

// most is how many connections of others a host keeps: twice what it serves, so that a
// few that were lost take no place.
const most = 2 * fan

// Receive reads a Route from in, and begins to receive the stream. What is passed on to
// others is kept in a file in the folder dir meanwhile. The caller ends with Finish or
// Close. A read of in may outlive them.
func Receive(ctx context.Context, in *bufio.Reader, out io.Writer, dir string, network Network) (*Part, error) {
	line, err := readLine(in)
	if err != nil {
		return nil, fmt.Errorf("read where the files come from: %w", err)
	}
	p := &Part{in: in, out: out, network: network}
	if err := json.Unmarshal([]byte(line), &p.route); err != nil {
		return nil, fmt.Errorf("read where the files come from: %w", err)
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

// open opens the port for others. A host that has none is no error: it passes nothing
// on.
func (p *Part) open(dir string) error {
	port, err := p.network.Listen(p.route)
	if err != nil {
		return p.say("port 0")
	}
	_, number, err := net.SplitHostPort(port.Addr().String())
	if err == nil {
		p.spool, err = NewSpool(dir)
	}
	if err == nil {
		err = p.say("port " + number)
	}
	if err != nil {
		return errors.Join(err, port.Close())
	}
	p.port = port
	return nil
}

// begin starts the goroutine that receives.
func (p *Part) begin() {
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
		w.CloseWithError(err) // nil reads as io.EOF
	}()
}

// Read reads the stream.
func (p *Part) Read(b []byte) (int, error) { return p.stream.Read(b) }

// fill writes the stream to w, from the other host as far as that goes.
func (p *Part) fill(w io.Writer) error {
	if p.route.From != "" {
		err := p.fromPeer(w)
		if err == nil || errors.Is(err, errKeep) || p.ctx.Err() != nil {
			return err
		}
		if err := p.say(fmt.Sprintf("lost %d %.200q", p.received(), err.Error())); err != nil {
			return err
		}
	}
	return readFrames(p.in, w, p.live)
}

// fromPeer takes the stream from another host.
func (p *Part) fromPeer(w io.Writer) error {
	ctx, cancel := context.WithTimeout(p.ctx, dialTime)
	defer cancel()
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", p.route.From)
	if err != nil {
		return err
	}
	defer raw.Close() // only read from
	conn, err := p.network.Secure(ctx, raw, p.route.Key, false)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(p.ctx, func() { raw.Close() })
	defer stop()
	return readFrames(bufio.NewReaderSize(&impatient{conn}, 64<<10), w, p.live)
}

// impatient is a connection of which each read and write is bounded.
type impatient struct{ net.Conn }

func (c *impatient) Read(b []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	return c.Conn.Read(b)
}

func (c *impatient) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// live counts n bytes that came, and reports them now and then. The report also tells the
// sender that this host lives.
func (p *Part) live(n int) error {
	p.mu.Lock()
	p.has += int64(n)
	has, now := p.has, time.Now()
	due := n == 0 || now.Sub(p.told) > tellEvery
	if due {
		p.told = now
	}
	p.mu.Unlock()
	if !due {
		return nil
	}
	return p.say(fmt.Sprintf("at %d", has))
}

func (p *Part) received() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.has
}

// say writes a line to the sender.
func (p *Part) say(line string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := io.WriteString(p.out, line+"\n"); err != nil {
		return fmt.Errorf("report to plx: %w", err)
	}
	return nil
}

// serve admits other hosts, each for one copy of the stream.
func (p *Part) serve() {
	places := make(chan struct{}, most)
	for {
		raw, err := p.port.Accept()
		if err != nil {
			return // Close has closed the port; whoever waits for it is lost otherwise, and gets the stream from the sender
		}
		select {
		case places <- struct{}{}:
			p.running.Go(func() {
				defer func() { <-places }()
				p.pass(raw)
			})
		default:
			raw.Close() // too many: it is told by the end of the connection
		}
	}
}

// pass writes the stream to another host. If that fails, the other host gets the rest
// from the sender.
func (p *Part) pass(raw net.Conn) {
	defer raw.Close() // the last frame tells that nothing is missing
	defer context.AfterFunc(p.ctx, func() { raw.Close() })()
	ctx, cancel := context.WithTimeout(p.ctx, dialTime)
	defer cancel()
	conn, err := p.network.Secure(ctx, raw, p.route.Key, true)
	if err != nil {
		return
	}
	to := newFrames(&impatient{conn})
	if err := p.spool.Copy(p.ctx, to, 0, func() error { return to.mark(beat) }); err != nil {
		return
	}
	if to.mark(0) == nil {
		_, _ = (&impatient{conn}).Read(make([]byte, 1)) // the other host closes it after the last frame
	}
}

// Finish reports that this host has the whole stream and needs nothing more. It returns
// when the sender has closed in, which it does when no other host takes the stream from
// this one.
func (p *Part) Finish() error {
	defer p.Close()
	if err := p.say("ok"); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, p.in); err != nil {
		return fmt.Errorf("wait for the end: %w", err)
	}
	return nil
}

// Close ends the part. It may be called again.
func (p *Part) Close() {
	p.cancel()
	if p.port != nil {
		p.port.Close() // nothing was written to it
	}
	p.stream.Close() // whoever writes to it ends
	p.running.Wait()
	if p.spool == nil {
		return
	}
	if _, ended := p.spool.Size(); ended {
		_ = p.spool.Close() // nobody reads it any more
	}
}
