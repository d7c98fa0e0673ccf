package hosts

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"strings"
	"sync"
	"time"
)

// connection is a Transport that dials when it is used: for the first time, and again
// after the connection was lost.
type connection struct {
	name     string // of the host
	dial     Dialer
	dialling chan struct{} // holds one element while a goroutine dials

	mu     sync.Mutex
	conn   Transport // nil: none
	closed bool
}

// Dial connects unless there is a connection.
func (c *connection) Dial(ctx context.Context) error {
	_, err := c.get(ctx)
	return err
}

// get returns the connection, or a new one. While one goroutine dials the others wait.
func (c *connection) get(ctx context.Context) (Transport, error) {
	if conn, err := c.current(); conn != nil || err != nil {
		return conn, err
	}
	select {
	case c.dialling <- struct{}{}:
		defer func() { <-c.dialling }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if conn, err := c.current(); conn != nil || err != nil {
		return conn, err
	}
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, unnamed(c.name, err)
	}
	return conn, c.keep(conn)
}

// Connected reports whether there is a connection.
func (c *connection) Connected() bool {
	conn, _ := c.current() // a closed one has none
	return conn != nil
}

// current returns the connection, nil if there is none.
func (c *connection) current() (Transport, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, net.ErrClosed
	}
	return c.conn, nil
}

// keep makes conn the connection, unless Close was called before.
func (c *connection) keep(conn Transport) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errors.Join(net.ErrClosed, conn.Close())
	}
	c.conn = conn
	return nil
}

// after removes conn if err says that it is lost: the next call dials again.
func (c *connection) after(conn Transport, err error) error {
	if !IsLost(err) {
		return unnamed(c.name, err)
	}
	c.mu.Lock()
	if c.conn == conn {
		c.conn = nil
	}
	c.mu.Unlock()
	conn.Close() // it is lost: the error says nothing more
	return unnamed(c.name, err)
}

// unnamed removes the host's name from the beginning of a transport's error: the
// caller adds it, once.
func unnamed(host string, err error) error {
	if err == nil {
		return nil
	}
	text, named := strings.CutPrefix(err.Error(), "host "+host+": ")
	if !named {
		return err
	}
	return &reworded{err, text}
}

// Run implements Transport.
func (c *connection) Run(ctx context.Context, command string, stdin io.Reader, stdout, stderr io.Writer) error {
	conn, err := c.get(ctx)
	if err != nil {
		return err
	}
	return c.after(conn, conn.Run(ctx, command, stdin, stdout, stderr))
}

// Copy implements Transport.
func (c *connection) Copy(ctx context.Context, from io.Reader, size int64, path string, mode fs.FileMode) error {
	conn, err := c.get(ctx)
	if err != nil {
		return err
	}
	return c.after(conn, conn.Copy(ctx, from, size, path, mode))
}

// Close ends the connection, if there is one. It does not wait for a dial under way.
func (c *connection) Close() error {
	c.mu.Lock()
	conn := c.conn
	c.conn, c.closed = nil, true
	c.mu.Unlock()
	if conn == nil {
		return nil
	}
	return conn.Close()
}

// WithTimeout connects, and then bounds ctx. The time does not include the dial, before
// which the host may wait for its turn.
func (c *connection) WithTimeout(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc, error) {
	if err := c.Dial(ctx); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	return ctx, cancel, nil
}
