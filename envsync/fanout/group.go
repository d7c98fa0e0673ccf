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

// fan is to how many hosts a host passes a stream on.
const fan = 2

// joinTime is how long a host waits for another one from which it can take the stream.
const joinTime = 3 * time.Second

// Group is one stream on its way to several hosts.
type Group struct {
	content   *Spool
	key       Key
	low, high int // as in Route

	mu      sync.Mutex
	changed chan struct{} // closed, and replaced, when something below changes
	coming  int           // hosts that may still come, at most
	nodes   []*node       // hosts that pass the stream on, in the order in which they came
	opening int           // hosts that were told to open a port, and have not yet
	direct  bool          // from now on the sender sends to every host itself
	lost    []string      // what was lost between hosts
}

// node is a host that passes the stream on.
type node struct {
	addr   string // host:port
	taking int    // hosts that take the stream from it now
	given  int    // hosts that were told to
	gone   bool   // it has what it needs: no more hosts are sent there
}

func (n *node) take()  { n.taking, n.given = n.taking+1, n.given+1 }
func (n *node) leave() { n.taking-- }
func (n *node) close() { n.gone = true }

// Host is a host that gets the stream.
type Host struct {
	Name string
	Addr string // its address for other hosts, without a port; empty: it passes nothing on
}

// NewGroup returns a Group for at most n hosts. With direct the sender sends the stream
// to each host itself, which is quicker for a short one. low and high are as in Route.
func NewGroup(content *Spool, n int, direct bool, low, high int) *Group {
	g := &Group{content: content, changed: make(chan struct{}), coming: n, direct: direct, low: low, high: high}
	rand.Read(g.key[:]) // never fails
	return g
}

// Lost returns what was lost between hosts, in words. The sender has sent it itself.
func (g *Group) Lost() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lost
}

// Watch is told how a host fares.
type Watch struct {
	Fail     func(error)   // ends the command on the host
	At       func(int64)   // gets the number of bytes that the host has
	Patience time.Duration // how long the host may report nothing
	Silent   error         // what Fail gets after that
}

// Send is the sender's side of Receive and Finish, with the command's input in and output
// out. It returns nil when the host has everything, and no other host takes the stream
// from it: then the caller closes in. An error of the command itself is told by in and
// out.
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
	silence := time.AfterFunc(watch.Patience, func() { watch.Fail(watch.Silent) })
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
		silence.Reset(watch.Patience)
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

// member is a host while the stream is sent to it.
type member struct {
	g       *Group
	name    string
	addr    string
	from    *node // it takes the stream from there; nil: from the sender
	self    *node // it passes the stream on; nil: it does not
	opening bool  // it is about to open a port
	in      io.Writer
	watch   Watch
	sending sync.WaitGroup
	sent    bool // the sender sends, or has sent
}

// take takes a line of the host.
func (m *member) take(ctx context.Context, line string) error {
	word, rest, _ := strings.Cut(line, " ")
	number, why, _ := strings.Cut(rest, " ")
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 {
		return fmt.Errorf("%.80q is no answer that plx knows", line)
	}
	switch {
	case word == "at":
		m.watch.At(n)
	case word == "port" && m.opening && n <= 65535:
		m.opening = false
		if n > 0 { // other hosts can take the stream from this one
			m.self = &node{addr: net.JoinHostPort(m.addr, strconv.FormatInt(n, 10))}
		}
		m.g.opened(m.self)
	case word == "lost" && m.from != nil && !m.sent:
		lost := fmt.Sprintf("%s could not take files from %s: %s", m.name, m.from.addr, why)
		// Where one host cannot reach another, further hosts are not made to try.
		m.g.change(func() { m.g.lost, m.g.direct = append(m.g.lost, lost), true })
		m.g.change(m.from.leave)
		m.from = nil
		m.stream(ctx, n)
	default:
		return fmt.Errorf("%.80q is no answer that plx expects", line)
	}
	return nil
}

// stream begins to send the stream from byte from on.
func (m *member) stream(ctx context.Context, from int64) {
	m.sent = true
	m.sending.Go(func() {
		to := newFrames(m.in)
		err := m.g.content.Copy(ctx, to, from, func() error { return to.mark(beat) })
		if err == nil {
			err = to.mark(0)
		}
		if err != nil && !errors.Is(err, io.ErrClosedPipe) { // else the command has ended, and says why
			m.watch.Fail(err)
		}
	})
}

// finish waits until no other host takes the stream from this one.
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

// leave forgets the host.
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

// opened notes that a host has opened its port, and passes the stream on as n; nil: it does
// not.
func (g *Group) opened(n *node) {
	g.change(func() {
		g.opening--
		if n != nil {
			g.nodes = append(g.nodes, n)
		}
	})
}

// change changes the group.
func (g *Group) change(by func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	by()
	g.wake()
}

// wake has all that wait look again. It needs g.mu.
func (g *Group) wake() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// await waits until done, which is called with g.mu, returns true.
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

// join decides from where a host gets the stream. from is nil if that is the sender.
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

// assign returns the route of a host that gets the stream from another one; nil: from
// the sender. It needs g.mu.
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

// free returns the first host that can pass the stream on to one more. It needs g.mu.
func (g *Group) free() *node {
	for _, n := range g.nodes {
		if !g.direct && !n.gone && n.given < fan {
			return n
		}
	}
	return nil
}

// room returns how many more hosts can get the stream from other hosts. It needs g.mu.
func (g *Group) room() int {
	room := fan * g.opening
	for _, n := range g.nodes {
		if !n.gone {
			room += fan - n.given
		}
	}
	return room
}
