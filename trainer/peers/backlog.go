package peers

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"
)

const (
	maxUnproved = 256         // connections that have not proved themselves yet
	patience    = time.Second // for the oldest of them while another connection waits for its place
)

// backlog bounds how many connections are proving themselves. The zero value
// is ready. One goroutine calls enter, any goroutine calls exit.
type backlog struct {
	mu    sync.Mutex
	conns []unprovedConn // oldest first
	left  chan struct{}  // a token: a connection has left
}

type unprovedConn struct {
	conn  net.Conn
	since time.Time
}

// enter waits for a place. When the backlog is full, it closes the oldest
// connection after a moment, so that a flood of silent connections does not
// keep the tasks of the job out. It reports false when ctx ends.
func (b *backlog) enter(ctx context.Context, conn net.Conn) bool {
	for {
		b.mu.Lock()
		if b.left == nil {
			b.left = make(chan struct{}, 1)
		}
		if len(b.conns) < maxUnproved {
			b.conns = append(b.conns, unprovedConn{conn, time.Now()})
			b.mu.Unlock()
			return ctx.Err() == nil
		}
		oldest := b.conns[0]
		if time.Since(oldest.since) >= patience {
			oldest.conn.Close() // ends its proof
			b.conns = slices.Delete(b.conns, 0, 1)
		}
		b.mu.Unlock()
		timer := time.NewTimer(patience - time.Since(oldest.since))
		select {
		case <-b.left:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return false
		}
	}
}

func (b *backlog) exit(conn net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.conns = slices.DeleteFunc(b.conns, func(u unprovedConn) bool { return u.conn == conn })
	select {
	case b.left <- struct{}{}:
	default: // a token is there already
	}
}
