// Package ssh reaches one host: it runs commands there with streams, copies
// files to it, and closes.
//
//	client, err := ssh.Dial(ctx, ssh.Config{Host: "gpu03"})
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//	err = client.Run(ctx, "exec uname -a", nil, os.Stdout, os.Stderr)
//
// # What is believed
//
// Dial looks the host up in the ssh configuration (package sshconfig) and its key
// in known_hosts. It always checks the key, also with StrictHostKeyChecking no. It
// refuses an unknown key unless [Config].AcceptNewHostKeys is set, or StrictHostKeyChecking is
// accept-new. It always refuses a key that differs from the recorded one. "~" is [Config].Home in all of these files.
//
// # What is clean
//
// Commands are scripts for /bin/sh, whatever the user's login shell is. The output of the
// shell's start-up files never reaches the caller's writers.
//
// # What is bounded
//
// Dial and handshake have a deadline. If nothing arrives for [Config].DeadAfter, the
// Client gives the connection up, and all calls under way return a [LostError].
//
// # What it refuses to do
//
// It asks for a password by [Config].Ask only and for no passphrase, allocates no terminal,
// and forwards no port, and an agent only if [Config].ForwardAgent and the ssh configuration say so. It sends no signal, since many servers ignore the
// request, and does not kill processes that a command left. It knows nothing of jobs or tasks. It does not dial
// again: package transport does.
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

// closeWait bounds how long Close waits for what it ended to return.
const closeWait = 2 * time.Second

var (
	errClientDone   = errors.New("the connection has ended")
	errClosedByHost = errors.New("the host closed it")
)

// Client is a connection to one host. Its methods may be called from several
// goroutines at once.
type Client struct {
	cfg      Config
	conn     *timedConn
	ssh      *gossh.Client
	env      []string // NAME=VALUE for each command
	forwards bool     // the user's agent is forwarded
	via      *Client  // the jump host, which this Client closes; nil: there is no jump host
	sessions sessions

	stop    chan struct{} // closed by the first call of giveUp
	once    sync.Once
	cause   error // why the connection ended; valid once stop is closed
	workers group // goroutines of the connection, for which Close waits

	noisy  atomic.Bool // the user was told that start-up files print text
	opened atomic.Bool // the server has opened a session on this connection
}

func newClient(cfg Config, t sshconfig.Target, conn *timedConn, client *gossh.Client, via *Client) *Client {
	c := &Client{
		cfg: cfg, conn: conn, ssh: client, via: via, env: t.Env,
		sessions: sessions{ended: make(chan struct{})},
		stop:     make(chan struct{}),
	}
	if cfg.ForwardAgent && t.ForwardAgent != "" {
		c.forwards = agent.ForwardToRemote(client, t.ForwardAgent) == nil // it fails if it was called before
	}
	c.workers.start(c.watch)
	c.workers.start(c.keepalive)
	return c
}

// Close ends the connection. Calls under way return a LostError. Close is idempotent and
// returns within about 2 s. It cannot end processes that commands left on the host, nor
// a goroutine that blocks in a reader or writer of Run's caller.
func (c *Client) Close() error {
	c.giveUp(net.ErrClosed)
	c.workers.wait(closeWait)
	if c.via != nil {
		return c.via.Close()
	}
	return nil
}

// giveUp ends the connection for good; the first cause is kept.
func (c *Client) giveUp(cause error) {
	c.once.Do(func() {
		c.cause = cause
		close(c.stop)
		// The net.Conn itself: ssh.Client.Close may wait for a write that the
		// network does not take. The error says nothing about a connection that
		// is given up. Through a jump host even this may wait for a write, until
		// that host's connection is given up.
		c.workers.start(func() { _ = c.conn.Close() })
	})
}

// watch gives the connection up when its reader has ended.
func (c *Client) watch() {
	err := c.ssh.Wait()
	switch {
	case err == nil:
		err = errClientDone
	case errors.Is(err, io.EOF):
		err = errClosedByHost // not io.EOF, which readers take for a normal end
	}
	c.giveUp(err)
}

// keepalive sends requests, and gives the connection up if nothing arrives for
// DeadAfter. Any byte counts.
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
			c.giveUp(fmt.Errorf("nothing came from the host for %v", c.cfg.DeadAfter))
			return
		}
		select {
		case asking <- struct{}{}:
			c.workers.start(func() {
				// An answer is a read on the connection, even a refusal. A
				// failure ends the connection. So the error is not needed.
				_, _, _ = c.ssh.SendRequest("keepalive@openssh.com", true, nil)
				<-asking
			})
		default: // the last request is not answered yet
		}
	}
}

// lost returns the LostError of a connection that has ended, else nil.
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

// explain returns what ended a failed call: the end of ctx, the loss of the connection,
// or else err.
func (c *Client) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// The reader ends the channels a moment before it ends itself.
	if errors.Is(err, errNoStatus) || isDrop(err) {
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

// timedConn bounds every write, and remembers when the last byte arrived, and the first ones.
type timedConn struct {
	net.Conn
	writeTimeout time.Duration
	lastRead     atomic.Int64 // when the last byte arrived, in nanoseconds since start
	start        time.Time

	mu    sync.Mutex
	first []byte // the first bytes that arrived, at most maxFirst
}

// maxFirst bounds what is kept of a server's greeting, in bytes.
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

// atGreeting adds to the error of a handshake that came to no key of the server what the server
// has said until then. late tells that the time was over.
func (c *timedConn) atGreeting(host string, err error, late bool) error {
	c.mu.Lock()
	said := strings.TrimSpace(string(c.first))
	c.mu.Unlock()
	line, _, _ := strings.Cut(said, "\n")
	switch {
	case said == "":
		err = fmt.Errorf("%w: the server has said nothing", err)
	case !strings.HasPrefix(said, "SSH-") && !strings.Contains(said, "\nSSH-"):
		err = fmt.Errorf("%w: instead of an SSH greeting the server says %.80q", err, strings.TrimSpace(line))
	case late || isDrop(err):
		err = fmt.Errorf("%w: the server has greeted, and said nothing more", err)
	default:
		return err
	}
	if exit.Hint(err) == "" {
		err = exit.WithHint(err, "see whether ssh "+host+" true works, and that sshd listens on that port")
	}
	return err
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

// group counts goroutines. Unlike a sync.WaitGroup it may start some during a wait, and
// the wait has a bound.
type group struct {
	mu    sync.Mutex
	count int           // number of goroutines that run
	idle  chan struct{} // closed and set to nil when count becomes 0; nil: nobody waits
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

// wait returns when no goroutine is left, or after the bound.
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

// HostKeyError says that the host showed a key which is not accepted.
type HostKeyError struct {
	Host        string   // as in the resource file; or the jump host with the key
	Address     string   // as written in known_hosts
	KeyType     string   // type of the key that the host showed, such as ssh-ed25519
	Fingerprint string   // of the key that the host showed, as SHA256:...
	Recorded    []string // places of other keys on record, as "file:line (type)"; empty: the host is unknown
	Revoked     bool     // the key that the host showed is marked @revoked

	unchecked bool // the ssh configuration wants no check
}

// Changed reports whether the key contradicts the record. False: there is no record.
func (e *HostKeyError) Changed() bool { return len(e.Recorded) > 0 || e.Revoked }

func (e *HostKeyError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "host %s: host key refused: it shows %s key %s", e.Host, e.KeyType, e.Fingerprint)
	switch {
	case e.Revoked:
		fmt.Fprintf(&b, ", which is revoked at %s", strings.Join(e.Recorded, ", "))
	case e.Changed():
		fmt.Fprintf(&b, ", but another key is recorded for it at %s", strings.Join(e.Recorded, ", "))
	default:
		fmt.Fprintf(&b, " and none is known for %s", e.Address)
	}
	if e.unchecked {
		b.WriteString("; plx does not follow StrictHostKeyChecking no")
	}
	return b.String()
}

// Hint says how to accept an unknown key, in the same words for all hosts. A changed key has
// no hint: to accept it needs more than a copied command.
func (e *HostKeyError) Hint() string {
	if e.Changed() {
		return ""
	}
	return "compare each fingerprint with the host's own, then run again with --accept-new-host-keys; StrictHostKeyChecking accept-new in the ssh configuration does the same for good"
}

// RefusedBy implements the method that package transport asks for.
func (e *HostKeyError) RefusedBy() (check, cure string) {
	return transport.HostKey, "ask who runs the host; if it was set up again, remove the old key: ssh-keygen -R '" + e.Address + "'"
}
