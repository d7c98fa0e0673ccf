package ssh

import (
	"net"
	"sync/atomic"
	"time"
)

// timedConn bounds every write, and remembers when the last byte arrived.
type timedConn struct {
	net.Conn
	writeTimeout time.Duration
	lastRead     atomic.Int64 // nanoseconds since start
	start        time.Time
}

func newTimedConn(conn net.Conn, writeTimeout time.Duration) *timedConn {
	return &timedConn{Conn: conn, writeTimeout: writeTimeout, start: time.Now()}
}

func (c *timedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.lastRead.Store(int64(time.Since(c.start)))
	}
	return n, err
}

func (c *timedConn) Write(p []byte) (int, error) {
	// A channel through a jump host has no deadlines; the jump host's own connection
	// has.
	_ = c.Conn.SetWriteDeadline(time.Now().Add(c.writeTimeout))
	return c.Conn.Write(p)
}

// silence returns the time since the last byte arrived.
func (c *timedConn) silence() time.Duration {
	return time.Since(c.start) - time.Duration(c.lastRead.Load())
}
