package channel

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"
)

// Gate accepts connections. It limits the unproved connections, whose other
// end has not yet proved that it knows the job's secret, to 512 at a time:
//
//	gate := channel.NewGate(config, self)
//	ln = gate.Listener(ln)
//	conn, err := ln.Accept()
//	protected, peer, err := gate.Accept(ctx, conn) // on a goroutine of its own
//
// If there are more, the Gate closes one connection of the IP address with the
// most unproved connections. So an attacker with one address cannot displace
// the connections of another address. The Gate closes the oldest unproved
// connection of the address if it is at least one second old, and otherwise
// the newest one. One second is enough for the proof. A dialler whose
// connection was closed may dial again. Any goroutine may use a Gate.
type Gate struct {
	config Config
	self   func(dialler string) string
	limit  int // maximum number of unproved connections

	mu       sync.Mutex
	unproved []unproved // connections whose other end has not yet proved that it knows the secret, oldest first
}

// unproved is a connection whose other end has not yet proved that it knows
// the job's secret.
type unproved struct {
	conn  net.Conn
	from  string // address of the other end, without a port
	since time.Time
}

const (
	maxUnproved = 512         // maximum number of unproved connections; larger than the number of agents that dial one agent at the same time to check their connections
	gracePeriod = time.Second // a connection younger than this is not closed in favor of a newer one from the same address
)

// NewGate returns a Gate. The function self is passed on to the function
// Accept: it returns the name under which a dialler must know this task.
func NewGate(c Config, self func(dialler string) string) *Gate {
	return &Gate{config: c, self: self, limit: maxUnproved}
}

// Listener returns a listener that counts each connection of ln as unproved
// before it accepts the next one. So the number of unproved connections never
// exceeds the limit, even if the goroutines that check them are slow. The
// caller must pass each connection to Gate.Accept.
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

// Accept calls the function [Accept] for conn, a connection of the Gate's
// listener. It fails if the Gate has closed conn because there were too many
// unproved connections.
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
		i := g.connToClose()
		if tcp, ok := g.unproved[i].conn.(*net.TCPConn); ok {
			tcp.SetLinger(0) // a linger time of 0 sends a connection reset: after a normal close, the other end would assume that this task refused its proof
		}
		g.unproved[i].conn.Close() // an error of Close does not matter: Accept gets and reports the error of the closed connection
		g.unproved = slices.Delete(g.unproved, i, i+1)
	}
}

// connToClose returns the index of the connection to close. It is a connection
// of the address with the most unproved connections: the oldest one if that is
// at least one second old, and otherwise the newest one.
func (g *Gate) connToClose() int {
	of, most := map[string]int{}, 0
	for _, u := range g.unproved {
		of[u.from]++
		most = max(most, of[u.from])
	}
	crowd := func(u unproved) bool { return of[u.from] == most }
	oldest := slices.IndexFunc(g.unproved, crowd)
	if time.Since(g.unproved[oldest].since) >= gracePeriod {
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
