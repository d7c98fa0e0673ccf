// Package ssh is an SSH client for one host: it runs commands there and copies
// files to it.
//
//	client, err := ssh.Dial(ctx, ssh.Config{Host: "gpu03"})
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//	err = client.Run(ctx, "exec uname -a", nil, os.Stdout, os.Stderr)
//
// # Host keys
//
// Dial reads the user's ssh configuration (package sshconfig) and looks up the
// host's key in known_hosts. In these files "~" means [Config].Home. Dial
// always checks the key, even with StrictHostKeyChecking no.
//
// Dial refuses an unknown key unless [Config].AcceptNewHostKeys is set or
// StrictHostKeyChecking is accept-new. It always refuses a key that differs
// from the recorded one.
//
// # Output
//
// A command is a script for /bin/sh, whatever the user's login shell is. The
// client drops what the shell's start-up files (such as .bashrc) print, so the
// caller receives only the command's output.
//
// # Deadlines
//
// Connecting and the handshake have a deadline. If no byte arrives for
// [Config].DeadAfter, the Client closes the connection, and all running calls
// return a [LostError].
//
// # What the package does not do
//
// The client asks for passwords only through [Config].Ask, and never for the
// passphrase of a key file. It allocates no terminal and forwards no port. It
// forwards the SSH agent only if [Config].ForwardAgent and the ssh
// configuration allow it. It sends no signal to a command, since many servers
// ignore the request, and does not kill processes that a command leaves
// behind. It does not reconnect; package transport does.
package ssh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	gossh "golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/ssh/sshconfig"
	"github.com/plx-run/plx/launcher/transport"
)

// closeWait limits how long Client.Close waits for the goroutines of the
// connection to return.
const closeWait = 2 * time.Second

var (
	errClientDone   = errors.New("the connection has ended")
	errClosedByHost = errors.New("the host closed it")
)

// Client is an SSH connection to one host. Its methods may be called from
// several goroutines at once.
type Client struct {
	cfg      Config
	conn     *timedConn
	ssh      *gossh.Client
	env      []string // environment variables as NAME=VALUE, sent to the server for each command
	forwards bool     // true if commands on the host may use the user's SSH agent
	via      *Client  // connection to the jump host, closed together with this Client; nil if no jump host is used
	sessions sessions

	stop    chan struct{} // closed by the first call of giveUp
	once    sync.Once
	cause   error // why the connection ended; valid once stop is closed
	workers group // running goroutines of this connection; Close waits until they return

	warnedOfNoise atomic.Bool // true after the user was warned that shell start-up files print text
	opened        atomic.Bool // true once the server has accepted a session on this connection
}

func newClient(cfg Config, t sshconfig.Target, conn *timedConn, client *gossh.Client, via *Client) *Client {
	c := &Client{
		cfg: cfg, conn: conn, ssh: client, via: via, env: t.Env,
		sessions: sessions{ended: make(chan struct{})},
		stop:     make(chan struct{}),
	}
	if cfg.ForwardAgent && t.ForwardAgent != "" {
		// ForwardToRemote fails only if forwarding was set up on this
		// connection before.
		c.forwards = agent.ForwardToRemote(client, t.ForwardAgent) == nil
	}
	c.workers.start(c.watch)
	c.workers.start(c.keepalive)
	return c
}

// Close ends the connection. Running calls return a LostError. Close is
// idempotent and returns within about 2 s. It does not kill processes that
// commands left running on the host. It cannot stop a goroutine that blocks in
// a reader or writer passed to Run.
func (c *Client) Close() error {
	c.giveUp(net.ErrClosed)
	c.workers.wait(closeWait)
	if c.via != nil {
		return c.via.Close()
	}
	return nil
}

// giveUp closes the connection for good and records cause as the reason. Only
// the first call has an effect.
func (c *Client) giveUp(cause error) {
	c.once.Do(func() {
		c.cause = cause
		close(c.stop)
		// Close the net.Conn itself: ssh.Client.Close may wait for a pending
		// write that the network does not accept. Through a jump host even
		// closing the net.Conn may block, until the connection to the jump
		// host closes. The error of Close is ignored, since the connection is
		// lost anyway.
		c.workers.start(func() { _ = c.conn.Close() })
	})
}

// watch calls giveUp when the SSH library has stopped reading from the
// connection.
func (c *Client) watch() {
	err := c.ssh.Wait()
	switch {
	case err == nil:
		err = errClientDone
	case errors.Is(err, io.EOF):
		err = errClosedByHost // A caller would take io.EOF for a normal end of the output.
	}
	c.giveUp(err)
}

// keepalive regularly sends keepalive requests, and closes the connection if
// no byte has arrived from the host for DeadAfter.
func (c *Client) keepalive() {
	ticker := time.NewTicker(c.cfg.KeepaliveEvery)
	defer ticker.Stop()
	asking := make(chan struct{}, 1)
	for {
		select {
		case <-c.stop:
			return
		case <-ticker.C:
		}
		if c.conn.silence() >= c.cfg.DeadAfter {
			c.giveUp(fmt.Errorf("no byte arrived from the host for %v", c.cfg.DeadAfter))
			return
		}
		select {
		case asking <- struct{}{}:
			c.workers.start(func() {
				// The error is ignored. Any reply, even a refusal, updates the
				// time of the last byte. If sending fails, the connection is
				// lost and watch reports that.
				_, _, _ = c.ssh.SendRequest("keepalive@openssh.com", true, nil)
				<-asking
			})
		default: // the host has not replied to the previous keepalive request yet
		}
	}
}

// lost returns a LostError if the connection has ended, and nil otherwise.
func (c *Client) lost() error {
	select {
	case <-c.stop:
		by := "ssh"
		if c.cfg.piped {
			by = ""
		}
		return &transport.LostError{Host: c.cfg.Host, By: by, Cause: c.cause}
	default:
		return nil
	}
}

// explain returns the root cause of a failed call: the cause of ctx if ctx has
// ended, a LostError if the connection is lost, and otherwise err.
func (c *Client) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// When a connection breaks, the SSH library closes its channels a moment
	// before c.stop is closed. Wait up to a second for c.stop.
	if errors.Is(err, errNoStatus) || isConnectionEnd(err) {
		select {
		case <-c.stop:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Second):
		}
	}
	if lost := c.lost(); lost != nil {
		return lost
	}
	return err
}

// timedConn sets a deadline for every write. It records when the last byte
// arrived, and keeps the first bytes of the server for error messages.
type timedConn struct {
	net.Conn
	writeTimeout time.Duration
	lastRead     atomic.Int64 // when the last byte arrived, in nanoseconds since the field start
	start        time.Time

	mu    sync.Mutex
	first []byte // first bytes received, at most maxFirst; guarded by mu
}

// maxFirst is the number of bytes of the server's greeting that are kept for
// error messages.
const maxFirst = 256

func (c *timedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.lastRead.Store(int64(time.Since(c.start)))
		c.mu.Lock()
		c.first = append(c.first, p[:min(n, maxFirst-len(c.first))]...)
		c.mu.Unlock()
	}
	return n, err
}

// withGreeting completes the error of a handshake that failed before the
// server sent its host key. It adds the server's greeting, or says that no
// greeting arrived. The parameter late reports that the deadline had passed.
func (c *timedConn) withGreeting(host string, err error, late bool) error {
	c.mu.Lock()
	said := strings.TrimSpace(string(c.first))
	c.mu.Unlock()
	line, _, _ := strings.Cut(said, "\n")
	switch {
	case said == "":
		err = fmt.Errorf("%w: the server has sent nothing", err)
	case !strings.HasPrefix(said, "SSH-") && !strings.Contains(said, "\nSSH-"):
		err = fmt.Errorf("%w: instead of an SSH greeting the server sent %.80q", err, strings.TrimSpace(line))
	case late || isConnectionEnd(err):
		err = fmt.Errorf("%w: the server sent its greeting and nothing more", err)
	default:
		return err
	}
	if exit.Hint(err) == "" {
		err = exit.WithHint(err, "see whether ssh "+host+" true works, and that sshd listens on that port")
	}
	return err
}

func (c *timedConn) Write(p []byte) (int, error) {
	// A connection through a jump host supports no deadlines, so the error is
	// ignored. The connection to the jump host itself has a deadline.
	_ = c.Conn.SetWriteDeadline(time.Now().Add(c.writeTimeout))
	return c.Conn.Write(p)
}

// silence returns the time since the last byte arrived.
func (c *timedConn) silence() time.Duration {
	return time.Since(c.start) - time.Duration(c.lastRead.Load())
}

// group counts running goroutines, like sync.WaitGroup. Unlike with
// sync.WaitGroup, goroutines may start while wait is running, and wait has a
// time limit.
type group struct {
	mu    sync.Mutex
	count int           // number of running goroutines
	idle  chan struct{} // closed and set to nil when count becomes 0; nil while no caller is in wait
}

func (g *group) start(f func()) {
	g.mu.Lock()
	g.count++
	g.mu.Unlock()
	go func() {
		defer g.finish()
		f()
	}()
}

func (g *group) finish() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.count--
	if g.count == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}

// wait returns when no goroutine of the group is running, and at the latest
// after the time bound.
func (g *group) wait(bound time.Duration) {
	g.mu.Lock()
	if g.count == 0 {
		g.mu.Unlock()
		return
	}
	if g.idle == nil {
		g.idle = make(chan struct{})
	}
	idle := g.idle
	g.mu.Unlock()
	select {
	case <-idle:
	case <-time.After(bound):
	}
}

// HostKeyError reports that plx does not accept the key of an SSH server.
type HostKeyError struct {
	Host        string   // name in the resource file, or the jump host that sent the key
	Address     string   // host or [host]:port, as known_hosts spells it
	KeyType     string   // type of the refused key, such as ssh-ed25519
	Fingerprint string   // SHA256:... fingerprint of the refused key
	Recorded    []string // known_hosts entries of the host with other keys, as "file:line (type)"; empty if the host is unknown
	Revoked     bool     // true if known_hosts marks the refused key as @revoked

	unchecked bool // true if the ssh configuration sets StrictHostKeyChecking no
}

// Changed reports whether known_hosts has a different key for the host or has
// revoked this key. It is false for a host without an entry.
func (e *HostKeyError) Changed() bool { return len(e.Recorded) > 0 || e.Revoked }

func (e *HostKeyError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "host %s: host key refused: the host sent %s key %s", e.Host, e.KeyType, e.Fingerprint)
	switch {
	case e.Revoked:
		fmt.Fprintf(&b, ", which is revoked at %s", strings.Join(e.Recorded, ", "))
	case e.Changed():
		fmt.Fprintf(&b, ", but another key is recorded for it at %s", strings.Join(e.Recorded, ", "))
	default:
		fmt.Fprintf(&b, " and none is known for %s", e.Address)
	}
	if e.unchecked {
		b.WriteString("; plx ignores StrictHostKeyChecking no")
	}
	return b.String()
}

// Hint returns how to accept the key of an unknown host; the text is the same
// for all hosts. For a changed key it returns "", because the user must first
// find out why the key changed.
func (e *HostKeyError) Hint() string {
	if e.Changed() {
		return ""
	}
	return "compare each fingerprint with the host's own, then run again with --accept-new-host-keys; StrictHostKeyChecking accept-new in the ssh configuration does the same for good"
}

// RefusedBy implements an interface of transport.RefusedBy. It returns which
// check refused the connection, and what the user can do.
func (e *HostKeyError) RefusedBy() (check, cure string) {
	return transport.HostKey, "ask who runs the host; if it was set up again, remove the old key: ssh-keygen -R '" + e.Address + "'"
}
