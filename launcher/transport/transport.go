// Package transport says what plx needs of a connection to one host, and what the errors of
// such a connection mean.
//
//	conn := transport.NewConn("gpu01", func(ctx context.Context) (transport.Transport, error) { return ssh.Dial(ctx, cfg) })
//	defer conn.Close()
//	err := conn.Run(ctx, "uname -s", nil, os.Stdout, os.Stderr)
//
// A way to reach hosts is one package that passes the suite of internal/test/transporttest.
//
// # Errors
//
// An [ExitError] is the end of a command. A [LostError] says that the connection is gone. The
// error of a Dialer may say by which side the connection was refused, see [RefusedBy]. Every
// other error concerns the one call.
//
// # What it refuses to do
//
// It retries no call: a Conn dials again at the next one.
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

// Transport is a connection to one host. Its methods may be called from several
// goroutines at once. Their errors may begin with the host's name.
type Transport interface {
	// Run runs a POSIX shell script in the home folder.
	Run(ctx context.Context, command string, stdin io.Reader, stdout, stderr io.Writer) error
	// Copy writes what r has to a new file at path, which is absolute. After an error a part
	// of the file may be there. Not every host has a way for this.
	Copy(ctx context.Context, r io.Reader, path string) error
	// Close ends the connection and the calls under way. It is idempotent.
	Close() error
}

// Dialer makes a new connection to one host. With an error it returns no Transport that
// can be used.
type Dialer func(ctx context.Context) (Transport, error)

// Conn is a Transport that dials when it is used: for the first time, and again
// after the connection was lost.
type Conn struct {
	name     string // of the host
	dial     Dialer
	dialling chan struct{} // holds one element while a goroutine dials

	mu     sync.Mutex
	conn   Transport // nil: not dialled yet, or lost
	closed bool      // Close was called: nothing is dialled any more
}

// NewConn returns the connection to a host, which dial makes at the first call.
func NewConn(host string, dial Dialer) *Conn {
	return &Conn{name: host, dial: dial, dialling: make(chan struct{}, 1)}
}

// Dial connects unless there is a connection.
func (c *Conn) Dial(ctx context.Context) error {
	_, err := c.get(ctx)
	return err
}

// get returns the connection, or a new one. While one goroutine dials the others wait.
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

// Connected reports whether there is a connection.
func (c *Conn) Connected() bool {
	conn, _ := c.current() // a closed one has none
	return conn != nil
}

// current returns the connection, nil if there is none.
func (c *Conn) current() (Transport, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, net.ErrClosed
	}
	return c.conn, nil
}

// keep makes conn the connection, unless Close was called before.
func (c *Conn) keep(conn Transport) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errors.Join(net.ErrClosed, conn.Close())
	}
	c.conn = conn
	return nil
}

// use calls with the connection. If the connection is lost the next call dials again.
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
		conn.Close() // it is lost: the error says nothing more
	}
	return Unnamed(c.name, err)
}

// Unnamed removes the host's name from an error, wherever a layer below has put it: the caller
// adds it, once.
func Unnamed(host string, err error) error {
	if err == nil {
		return nil
	}
	name, text := "host "+host+": ", err.Error()
	bare := strings.ReplaceAll(strings.TrimPrefix(text, name), ": "+name, ": ")
	if bare == text {
		return err
	}
	return Reworded(err, bare)
}

// Run implements Transport.
func (c *Conn) Run(ctx context.Context, command string, stdin io.Reader, stdout, stderr io.Writer) error {
	return c.use(ctx, func(conn Transport) error { return conn.Run(ctx, command, stdin, stdout, stderr) })
}

// Copy implements Transport.
func (c *Conn) Copy(ctx context.Context, r io.Reader, path string) error {
	return c.use(ctx, func(conn Transport) error { return conn.Copy(ctx, r, path) })
}

// Close ends the connection, if there is one. It does not wait for a dial under way.
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

// WithTimeout connects, and then bounds ctx. The time does not include the dial, before
// which the host may wait for its turn.
func (c *Conn) WithTimeout(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc, error) {
	if err := c.Dial(ctx); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %v", limit))
	return ctx, cancel, nil
}
