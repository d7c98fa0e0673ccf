package fanout

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// fanOut is the maximum number of other hosts to which one host forwards the
// stream.
const fanOut = 2

// joinTime is how long Send waits for a host that can forward the stream.
// After that, the launching machine uploads the stream to the new host
// directly.
const joinTime = 3 * time.Second

// Group distributes one stream to several hosts and decides which host
// receives it from which.
type Group struct {
	content   *Spool
	key       Key
	low, high int // first and last port on which hosts may listen, as in Route.Low and Route.High; 0 and 0 mean any port

	mu      sync.Mutex
	changed chan struct{} // closed and replaced whenever a field below changes; guarded by mu
	coming  int           // upper bound on the number of hosts that have not called Send yet
	nodes   []*node       // hosts with an open port that forward the stream, in the order in which they opened it
	opening int           // number of hosts that were asked to open a port and have not replied yet
	direct  bool          // if true, the launching machine uploads the stream to every further host, and hosts do not forward it
	lost    []string      // messages about failed connections between hosts, as FailedLinks returns them
}

// node is a host that forwards the stream to other hosts.
type node struct {
	addr   string // address of the host's open port, as host:port
	taking int    // number of hosts that receive the stream from this node now
	given  int    // number of hosts that were ever told to receive the stream from this node, at most fanOut
	gone   bool   // true if the node has received the whole stream or has failed; no further host is told to receive the stream from it
}

func (n *node) take()  { n.taking, n.given = n.taking+1, n.given+1 }
func (n *node) leave() { n.taking-- }
func (n *node) close() { n.gone = true }

// Host is a host that is to receive the stream.
type Host struct {
	Name string
	Addr string // the host's IP address or name, without a port, at which other hosts can reach it; empty: the host forwards nothing
}

// NewGroup returns a Group for at most n hosts. If direct is true, this
// machine uploads the stream to each host itself, which is faster for a short
// stream. low and high are the first and last port on which a host may listen,
// as in Route.
func NewGroup(content *Spool, n int, direct bool, low, high int) *Group {
	g := &Group{content: content, changed: make(chan struct{}), coming: n, direct: direct, low: low, high: high}
	rand.Read(g.key[:]) // rand.Read never returns an error
	return g
}

// FailedLinks returns one message for each connection between two hosts that
// failed. After such a failure, the launching machine sends the rest of the
// stream to the receiving host directly.
func (g *Group) FailedLinks() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lost
}

// Watch has the callbacks and the timeout with which Send supervises the
// command that receives the stream on a host.
type Watch struct {
	Fail       func(error)   // called with the reason if Send gives up on the host; must kill the command there
	Progress   func(int64)   // called with the number of bytes that the host has received so far
	Timeout    time.Duration // maximum time between two reports of the host
	TimeoutErr error         // error that Send passes to Fail if the host reports nothing for Timeout
}

// Send sends the stream to one host. On the host, a command runs Receive and
// Finish; in is this command's standard input and out its standard output.
// Send returns nil once the host has the whole stream and no other host still
// receives the stream from it. The caller then closes in. If the command
// fails, reads of out and writes to in must return its error.
func (g *Group) Send(ctx context.Context, to Host, in io.Writer, out io.Reader, watch Watch) error {
	route, from := g.join(ctx, to)
	m := &member{g: g, name: to.Name, addr: route.Addr, from: from, in: in, watch: watch}
	defer m.leave()
	if route.Pass {
		m.opening = true
	}
	text, err := json.Marshal(route)
	if err != nil {
		return err
	}
	if _, err := in.Write(append(text, '\n')); err != nil {
		return err
	}
	silence := time.AfterFunc(watch.Timeout, func() { watch.Fail(watch.TimeoutErr) })
	defer silence.Stop()
	if route.From == "" {
		m.stream(ctx, 0)
	}
	lines := bufio.NewReaderSize(out, 2*maxLine)
	for {
		line, err := readLine(lines)
		if err != nil {
			return err
		}
		silence.Reset(watch.Timeout)
		if line == "ok" {
			silence.Stop()
			return m.finish(ctx)
		}
		if err := m.take(ctx, line); err != nil {
			watch.Fail(err)
			return err
		}
	}
}

// member is the state of one host during its call of Send.
type member struct {
	g       *Group
	name    string
	addr    string
	from    *node // host from which this host receives the stream; nil: from the launching machine
	self    *node // this host as a forwarder of the stream; nil: this host forwards nothing
	opening bool  // this host was asked to open a port and has not replied yet
	in      io.Writer
	watch   Watch
	sending sync.WaitGroup
	sent    bool // true once the launching machine has begun to upload the stream to this host directly
}

// take handles one line that the host has written: "at N" (it has received N
// bytes), "port N" (it listens on port N) or "lost N WHY" (its download from
// another host failed after N bytes, with the reason WHY).
func (m *member) take(ctx context.Context, line string) error {
	word, rest, _ := strings.Cut(line, " ")
	number, why, _ := strings.Cut(rest, " ")
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 {
		return fmt.Errorf("invalid reply %.80q", line)
	}
	switch {
	case word == "at":
		m.watch.Progress(n)
	case word == "port" && m.opening && n <= 65535:
		m.opening = false
		if n > 0 { // port 0 means that the host could not open a port
			m.self = &node{addr: net.JoinHostPort(m.addr, strconv.FormatInt(n, 10))}
		}
		m.g.opened(m.self)
	case word == "lost" && m.from != nil && !m.sent:
		lost := fmt.Sprintf("%s could not take files from %s: %s", m.name, m.from.addr, why)
		// If one host cannot reach another, other hosts probably cannot
		// either: from now on the launching machine uploads to every host.
		m.g.change(func() { m.g.lost, m.g.direct = append(m.g.lost, lost), true })
		m.g.change(m.from.leave)
		m.from = nil
		m.stream(ctx, n)
	default:
		return fmt.Errorf("unexpected reply %.80q", line)
	}
	return nil
}

// stream starts a goroutine that uploads the stream, beginning at byte from,
// to the host.
func (m *member) stream(ctx context.Context, from int64) {
	m.sent = true
	m.sending.Go(func() {
		to := newFrames(m.in)
		err := m.g.content.Copy(ctx, to, from, func() error { return to.writeLength(heartbeat) })
		if err == nil {
			err = to.writeLength(0)
		}
		if err != nil && !errors.Is(err, io.ErrClosedPipe) { // on io.ErrClosedPipe the command has exited, and its own error is reported instead
			m.watch.Fail(err)
		}
	})
}

// finish releases the host from which this host received the stream, then
// waits until no other host receives the stream from this host.
func (m *member) finish(ctx context.Context) error {
	m.sending.Wait()
	if m.from != nil {
		m.g.change(m.from.leave)
		m.from = nil
	}
	if m.self == nil {
		return nil
	}
	m.g.change(m.self.close)
	return m.g.await(ctx, func() bool { return m.self.taking == 0 })
}

// leave removes the host from the state of the group when Send returns, with
// or without an error.
func (m *member) leave() {
	m.sending.Wait()
	if m.opening {
		m.g.opened(nil)
	}
	if m.self != nil {
		m.g.change(m.self.close)
	}
	if m.from != nil {
		m.g.change(m.from.leave)
	}
}

// opened records the reply of a host that was asked to open a port. The
// parameter n is the host as a forwarder of the stream. It is nil if the host
// could not open a port or has failed.
func (g *Group) opened(n *node) {
	g.change(func() {
		g.opening--
		if n != nil {
			g.nodes = append(g.nodes, n)
		}
	})
}

// change calls the function by, which modifies the group, with g.mu held, and
// wakes all calls of await.
func (g *Group) change(by func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	by()
	g.wake()
}

// wake makes all calls of await evaluate their condition again. The caller
// must hold g.mu.
func (g *Group) wake() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// await waits until done returns true. It calls done with g.mu held.
func (g *Group) await(ctx context.Context, done func() bool) error {
	for {
		g.mu.Lock()
		ok, changed := done(), g.changed
		g.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// join decides from where a new host, the argument to, receives the stream. The
// second result is the host that sends it, or nil if the launching machine
// uploads the stream directly.
func (g *Group) join(ctx context.Context, to Host) (route Route, from *node) {
	ctx, cancel := context.WithTimeout(ctx, joinTime)
	defer cancel()
	assign := func(late bool) bool {
		from = g.free()
		if from == nil && !g.direct && g.opening > 0 && !late {
			return false
		}
		route = g.assign(to, from)
		return true
	}
	if g.await(ctx, func() bool { return assign(false) }) != nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		assign(true)
	}
	return route, from
}

// assign returns the route of a host, the argument to. The argument from is the
// host that sends it the stream, or nil if the launching machine does. The
// caller must hold g.mu.
func (g *Group) assign(to Host, from *node) Route {
	route := Route{Key: g.key, Low: g.low, High: g.high}
	if from != nil {
		from.take()
		route.From = from.addr
	}
	g.coming--
	if !g.direct && to.Addr != "" && g.room() < g.coming {
		route.Pass, route.Addr = true, to.Addr
		g.opening++
	}
	g.wake()
	return route
}

// free returns the first host that can forward the stream to one more host, or
// nil. The caller must hold g.mu.
func (g *Group) free() *node {
	for _, n := range g.nodes {
		if !g.direct && !n.gone && n.given < fanOut {
			return n
		}
	}
	return nil
}

// room returns the number of further hosts that can receive the stream from
// other hosts. The caller must hold g.mu.
func (g *Group) room() int {
	room := fanOut * g.opening
	for _, n := range g.nodes {
		if !n.gone {
			room += fanOut - n.given
		}
	}
	return room
}
