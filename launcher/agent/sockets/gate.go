//go:build linux

package sockets

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/plx-run/plx/trainer/cluster"
)

// Gate admits connections from other agents of the job, which prove the job's
// secret. At most limit connections are unauthenticated at a time. A further one
// takes the place of the oldest, so silent connections lock no agent out.
type Gate struct {
	key   cluster.Key
	self  string // the name that dialling agents must mean
	limit int

	mu       sync.Mutex
	unproved []net.Conn // oldest first
}

// maxUnproved is above the number of agents that check one another at a time.
const maxUnproved = 512

// Gate returns the gate of the agent with this identity.
func (id Identity) Gate() *Gate {
	return &Gate{key: id.key(), self: agentName(id.HostIndex), limit: maxUnproved}
}

// Prove returns nil after conn has proved the job's secret. On an error it closes
// conn.
func (g *Gate) Prove(ctx context.Context, conn net.Conn) error {
	g.enter(conn)
	_, err := cluster.Accept(ctx, conn, g.key, func(string) string { return g.self })
	g.leave(conn)
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	return nil
}

func (g *Gate) enter(conn net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.unproved) >= g.limit {
		g.unproved[0].Close() // its own goroutine reports it
		g.unproved = g.unproved[1:]
	}
	g.unproved = append(g.unproved, conn)
}

func (g *Gate) leave(conn net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, c := range g.unproved {
		if c == conn {
			g.unproved = append(g.unproved[:i:i], g.unproved[i+1:]...)
			return
		}
	}
}
