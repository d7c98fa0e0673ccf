package channel

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"
)

// Gate accepts connections of which at most 512 are unproved at a time:
//
//	gate := channel.NewGate(config, self)
//	ln = gate.Listener(ln)
//	conn, err := ln.Accept()
//	protected, peer, err := gate.Accept(ctx, conn) // on a goroutine of its own
//
// If one more connection comes, the address that has most of them loses one. So a crowd
// from one address takes no place of another address. Whoever has come in from the
// crowd's own address keeps the place for a moment, which is enough to prove the secret;
// whoever has not may dial again. Any goroutine may use a Gate.
type Gate struct {
	config Config
	self   func(dialler string) string
	limit  int // most unproved connections

	mu       sync.Mutex
	unproved []unproved // the oldest first
}

// unproved is a connection that has not proved the secret.
type unproved struct {
	conn  net.Conn
	from  string // address of the other end, without a port
	since time.Time
}

const (
	places = 512         // above the number of agents that check one another at a time
	moment = time.Second // for which a connection has its place in any crowd
)

// NewGate returns a Gate. self is as for Accept.
func NewGate(c Config, self func(dialler string) string) *Gate {
	return &Gate{config: c, self: self, limit: places}
}

// Listener returns ln with places for its connections, each of which must go to Accept. A
// connection has its place before the next one is accepted: there are never more of them
// than places, however late the goroutines run that let them prove themselves.
func (g *Gate) Listener(ln net.Listener) net.Listener { return gated{ln, g} }

type gated struct {
	net.Listener
	gate *Gate
}

func (l gated) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.gate.enter(conn)
	}
	return conn, err
}

// Accept is the function Accept. It fails if the Gate has closed conn in favour of
// another one.
func (g *Gate) Accept(ctx context.Context, conn net.Conn) (protected net.Conn, peer string, err error) {
	defer g.leave(conn)
	return Accept(ctx, conn, g.config, g.self)
}

func (g *Gate) enter(conn net.Conn) {
	from := conn.RemoteAddr().String()
	if host, _, err := net.SplitHostPort(from); err == nil {
		from = host
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unproved = append(g.unproved, unproved{conn, from, time.Now()})
	if len(g.unproved) > g.limit {
		i := g.surplus()
		if tcp, ok := g.unproved[i].conn.(*net.TCPConn); ok {
			tcp.SetLinger(0) // the other end sees a lost connection, not a proof that failed
		}
		g.unproved[i].conn.Close() // its own goroutine reports it
		g.unproved = slices.Delete(g.unproved, i, i+1)
	}
}

// surplus returns the index of the connection that must go. Of the address that has
// most, it is the oldest one if that has had its moment, and otherwise the newest one.
func (g *Gate) surplus() int {
	of, most := map[string]int{}, 0
	for _, u := range g.unproved {
		of[u.from]++
		most = max(most, of[u.from])
	}
	crowd := func(u unproved) bool { return of[u.from] == most }
	oldest := slices.IndexFunc(g.unproved, crowd)
	if time.Since(g.unproved[oldest].since) >= moment {
		return oldest
	}
	newest := len(g.unproved) - 1
	for !crowd(g.unproved[newest]) {
		newest--
	}
	return newest
}

func (g *Gate) leave(conn net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unproved = slices.DeleteFunc(g.unproved, func(u unproved) bool { return u.conn == conn })
}
