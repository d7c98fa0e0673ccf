// Package transport defines a connection to one host as plx uses it, and the
// errors of such a connection.
//
//	conn := transport.NewConn("gpu01", func(ctx context.Context) (transport.Transport, error) { return ssh.Dial(ctx, cfg) })
//	defer conn.Close()
//	err := conn.Run(ctx, "uname -s", nil, os.Stdout, os.Stderr)
//
// Each implementation of [Transport] must pass the tests of
// internal/test/transporttest.
//
// # Errors
//
// An [ExitError] reports a command that failed. A [LostError] reports a lost
// connection. [RefusedBy] tells whether an error of a Dialer is a refused host
// key or login. Every other error concerns only the call that returned it.
//
// # What the package does not do
//
// It never repeats a failed call. After a lost connection, the next call on a
// Conn dials again.
package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// Transport is a connection to one host. Several goroutines may call its
// methods at once. An error may begin with the host's name.
type Transport interface {
	// Run runs command as a POSIX shell script in the user's home directory.
	Run(ctx context.Context, command string, stdin io.Reader, stdout, stderr io.Writer) error
	// Copy writes the content of r to a new file. path must be absolute. After
	// an error an incomplete file may remain. Some hosts do not support Copy.
	Copy(ctx context.Context, r io.Reader, path string) error
	// Close ends the connection and makes running calls fail. It is
	// idempotent.
	Close() error
}

// Dialer opens a connection to one host. If it returns an error, the Transport
// must not be used.
type Dialer func(ctx context.Context) (Transport, error)

// Conn is a Transport that dials on its first call, and again on the first
// call after the connection was lost.
type Conn struct {
	name     string // name of the host, removed from the start of errors
	dial     Dialer
	dialling chan struct{} // holds one element while a goroutine dials, so that only one does

	mu     sync.Mutex
	conn   Transport // current connection; nil before the first dial and after a loss; guarded by mu
	closed bool      // true after Close, which prevents further dials; guarded by mu
}

// NewConn returns a Conn for a host. NewConn does not connect; the first call
// of a method calls dial.
func NewConn(host string, dial Dialer) *Conn {
	return &Conn{name: host, dial: dial, dialling: make(chan struct{}, 1)}
}

// Dial connects to the host, unless a connection exists.
func (c *Conn) Dial(ctx context.Context) error {
	_, err := c.get(ctx)
	return err
}

// get returns the current connection, or dials a new one. If another goroutine
// is dialling, get waits for that dial.
func (c *Conn) get(ctx context.Context) (Transport, error) {
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
		return nil, Unnamed(c.name, err)
	}
	return conn, c.keep(conn)
}

// Connected reports whether the Conn has a connection that no call has found
// to be lost.
func (c *Conn) Connected() bool {
	conn, _ := c.current() // after Close, current returns nil and an error
	return conn != nil
}

// current returns the existing connection, or nil if there is none. After
// Close it returns net.ErrClosed.
func (c *Conn) current() (Transport, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, net.ErrClosed
	}
	return c.conn, nil
}

// keep stores conn as the current connection. If Close was called meanwhile,
// keep closes conn instead.
func (c *Conn) keep(conn Transport) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errors.Join(net.ErrClosed, conn.Close())
	}
	c.conn = conn
	return nil
}

// use runs call with the current connection. If call reports that the
// connection is lost, use drops it, and the next call dials again.
func (c *Conn) use(ctx context.Context, call func(Transport) error) error {
	conn, err := c.get(ctx)
	if err != nil {
		return err
	}
	if err = call(conn); IsLost(err) {
		c.mu.Lock()
		if c.conn == conn {
			c.conn = nil
		}
		c.mu.Unlock()
		conn.Close() // Ignore the error of Close: err already reports the loss.
	}
	return Unnamed(c.name, err)
}

// Unnamed returns err without the prefix "host NAME: " of the named host,
// wherever it occurs in the message. The caller then adds the prefix once.
func Unnamed(host string, err error) error {
	if err == nil {
		return nil
	}
	name, text := "host "+host+": ", err.Error()
	bare := strings.ReplaceAll(strings.TrimPrefix(text, name), ": "+name, ": ")
	if bare == text {
		return err
	}
	return WithMessage(err, bare)
}

// Run implements Transport.
func (c *Conn) Run(ctx context.Context, command string, stdin io.Reader, stdout, stderr io.Writer) error {
	return c.use(ctx, func(conn Transport) error { return conn.Run(ctx, command, stdin, stdout, stderr) })
}

// Copy implements Transport.
func (c *Conn) Copy(ctx context.Context, r io.Reader, path string) error {
	return c.use(ctx, func(conn Transport) error { return conn.Copy(ctx, r, path) })
}

// Close closes the connection, if one exists. It does not wait for a dial that
// is running.
func (c *Conn) Close() error {
	c.mu.Lock()
	conn := c.conn
	c.conn, c.closed = nil, true
	c.mu.Unlock()
	if conn == nil {
		return nil
	}
	return conn.Close()
}

// WithTimeout connects to the host, and then returns a copy of ctx that ends
// after limit. The time to connect does not count, because dials to many hosts
// may be queued.
func (c *Conn) WithTimeout(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc, error) {
	if err := c.Dial(ctx); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %v", limit))
	return ctx, cancel, nil
}
