package hosts

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/ssh"
)

// Transport is a connection to one host. Its methods may be called from several
// goroutines at once. Their errors may begin with the host's name. The error of a
// command that ended with another status than 0 has a method ExitStatus() int.
//
// An error with a method ConnectionLost() string says that the connection is gone,
// and why. Every other error concerns the one call. Package transporttest tests
// what this package relies on.
type Transport interface {
	// Run runs a POSIX shell script in the home folder.
	Run(ctx context.Context, command string, stdin io.Reader, stdout, stderr io.Writer) error
	// Copy writes size bytes to path, whole or not at all. A relative path starts
	// at the home folder.
	Copy(ctx context.Context, r io.Reader, size int64, path string, mode fs.FileMode) error
	// Close ends the connection and the calls under way. It is idempotent.
	Close() error
}

// Dialer makes a new connection to one host. With an error it returns no Transport that
// can be used.
type Dialer func(ctx context.Context) (Transport, error)

// lost returns why the connection is gone. False: err does not say that it is.
func lost(err error) (why string, is bool) {
	var l interface{ ConnectionLost() string }
	if !errors.As(err, &l) {
		return "", false
	}
	return l.ConnectionLost(), true
}

// IsLost reports whether err says that there was a connection, which is gone.
func IsLost(err error) bool {
	_, is := lost(err)
	return is
}

// ExitStatus returns the exit status of a command that ended by itself, else -1.
func ExitStatus(err error) int {
	var e interface{ ExitStatus() int }
	if errors.As(err, &e) {
		return e.ExitStatus()
	}
	return -1
}

// reworded is an error with another text.
type reworded struct {
	error
	text string
}

func (r *reworded) Error() string { return r.text }
func (r *reworded) Unwrap() error { return r.error }

// overSSH dials an SSH server.
func overSSH(cfg ssh.Config) Dialer {
	return func(ctx context.Context) (Transport, error) { return ssh.Dial(ctx, cfg) }
}

// inTurn delays the first dial of a host until fewer than FanOut hosts of the Set are
// being dialled. A host that was connected before is dialled at once: in a queue its
// lease could run out.
func (s *Set) inTurn(name string, dial Dialer) Dialer {
	var reached atomic.Bool
	return func(ctx context.Context) (conn Transport, err error) {
		if reached.Load() {
			return dial(ctx)
		}
		defer func() { reached.Store(err == nil) }()
		select {
		case s.turns <- struct{}{}:
			defer func() { <-s.turns }()
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		s.dials.Begin(name)
		defer s.dials.End(name)
		return dial(ctx)
	}
}

// isThisMachine reports whether the line means this machine, and leaves the port to
// plx.
func isThisMachine(line hostfile.Host) bool {
	return line.Port == 0 && slices.Contains([]string{"localhost", "127.0.0.1", "::1"}, line.Name)
}

// noSSHServer reports whether no SSH server listens on this machine.
func noSSHServer(ctx context.Context) bool {
	d := net.Dialer{Timeout: 2 * time.Second}
	c, err := d.DialContext(ctx, "tcp", "127.0.0.1:22")
	if err == nil {
		c.Close() // nothing was sent
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// connection is a Transport that dials when it is used: for the first time, and again
// after the connection was lost.
type connection struct {
	name     string // of the host
	dial     Dialer
	dialling chan struct{} // holds one element while a goroutine dials

	mu     sync.Mutex
	conn   Transport // nil: not dialled yet, or lost
	closed bool      // Close was called: nothing is dialled any more
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

// use calls with the connection. If the connection is lost the next call dials again.
func (c *connection) use(ctx context.Context, call func(Transport) error) error {
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
	return c.use(ctx, func(conn Transport) error { return conn.Run(ctx, command, stdin, stdout, stderr) })
}

// Copy implements Transport.
func (c *connection) Copy(ctx context.Context, from io.Reader, size int64, path string, mode fs.FileMode) error {
	return c.use(ctx, func(conn Transport) error { return conn.Copy(ctx, from, size, path, mode) })
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
