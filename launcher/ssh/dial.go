package ssh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pkg/sftp"
	gossh "golang.org/x/crypto/ssh"

	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/ssh/sshconfig"
)

// Config holds the host to dial and the options of the connection. Only Host
// is required. Dial copies the Config.
type Config struct {
	// User, Host and Port come from the resource file (plx's list of hosts).
	// Host may be an alias of the ssh configuration. If User is empty or Port
	// is 0, plx uses the value of the ssh configuration. If that has none, plx
	// uses the local user's name or port 22.
	User, Host string
	Port       int

	// Home replaces "~" in the paths of keys, ssh configuration and
	// known_hosts. Empty means $HOME; the password database is not consulted.
	Home string
	// ConfigFile is the path of the ssh configuration; empty means
	// <Home>/.ssh/config. A missing file is no error.
	ConfigFile string
	// KnownHostsFile is the path of the file with the keys of hosts. If it is
	// empty, plx uses UserKnownHostsFile of the ssh configuration. If that is
	// not set, plx uses <Home>/.ssh/known_hosts.
	KnownHostsFile string
	// AcceptNewHostKeys makes Dial accept the key of a host that known_hosts
	// does not list, and add it to the file.
	AcceptNewHostKeys bool

	// ForwardAgent forwards the user's SSH agent to commands, if ForwardAgent
	// in the ssh configuration allows it too.
	ForwardAgent bool

	// Signers and HostKey replace the ssh configuration, the SSH agent and
	// known_hosts. Only the keys in Signers are offered, and only HostKey is
	// accepted. Set both fields or neither.
	Signers []gossh.Signer
	HostKey gossh.PublicKey

	// Ask shows the user a prompt of the host, such as for a password, and
	// returns the reply. refused is the user's previous reply, which the host
	// rejected; it is empty for the first prompt. Several goroutines may call
	// Ask at once. If Ask is nil, plx prompts for nothing.
	Ask func(ctx context.Context, question string, echo bool, refused string) (string, error)

	// Notice receives messages for the user: one line each, without newline.
	// Several goroutines may call it at once. If Notice is nil, the messages
	// are dropped.
	Notice func(string)
	// OnStartUpOutput receives the number of bytes that shell start-up files
	// printed before a command. It is called at most once per connection. If
	// it is nil, Notice receives a message instead.
	OnStartUpOutput func(bytes int)

	// OnSessionRefused is called when the server refuses a further session, so
	// that a new command must wait until another session ends. The function
	// may end a session itself. It may be nil.
	OnSessionRefused func()

	// DialTimeout limits one attempt to connect to a host, including the
	// handshake; each jump host has its own attempt. The login after the
	// handshake may take 2 minutes, or DialTimeout if that is longer. If
	// DialTimeout is 0, ConnectTimeout of the ssh configuration is the limit.
	// Without ConnectTimeout, the limits are 15 s to connect and 60 s
	// including the handshake.
	DialTimeout time.Duration
	// DialAtMost is an upper limit for the connection attempt and for the
	// login, even if DialTimeout or the ssh configuration allows more time. 0
	// means no upper limit.
	DialAtMost time.Duration
	// RetryFor is the time during which Dial retries if an overloaded server
	// refuses the connection. 0 means 30 s.
	RetryFor time.Duration
	// KeepaliveEvery is the interval between keepalive requests. 0 means 5 s.
	KeepaliveEvery time.Duration
	// DeadAfter is the time without any byte from the host after which the
	// connection counts as lost. A value below KeepaliveEvery is raised to
	// KeepaliveEvery. 0 means 20 s, so that a dead host is detected within 30
	// s.
	DeadAfter time.Duration

	shown func() // called when the host key was accepted and the login begins; may be nil
	piped bool   // true if the connection was passed to NewClientConn; its own errors then say why it ended
}

// validate checks the fields of the Config and fills in the defaults.
func (c *Config) validate() error {
	if err := sshconfig.CheckName("host", c.Host); err != nil {
		return err
	}
	if c.Host == "" {
		return errors.New("host is empty")
	}
	if err := sshconfig.CheckName("user", c.User); err != nil {
		return err
	}
	if c.Port < 0 || c.Port > 65535 {
		return fmt.Errorf("host %s: port %d is not between 1 and 65535", c.Host, c.Port)
	}
	if (len(c.Signers) > 0) != (c.HostKey != nil) {
		return fmt.Errorf("host %s: signers and host key go together", c.Host)
	}
	c.Home = cmp.Or(c.Home, os.Getenv("HOME"))
	if c.Home == "" && c.HostKey == nil {
		return fmt.Errorf("host %s: HOME is not set, so there is no place to look for keys and known hosts", c.Host)
	}
	c.ConfigFile = cmp.Or(c.ConfigFile, filepath.Join(c.Home, ".ssh", "config"))
	c.RetryFor = cmp.Or(c.RetryFor, 30*time.Second)
	c.KeepaliveEvery = cmp.Or(c.KeepaliveEvery, 5*time.Second)
	c.DeadAfter = max(cmp.Or(c.DeadAfter, 20*time.Second), c.KeepaliveEvery)
	if c.Notice == nil {
		c.Notice = func(string) {}
	}
	return nil
}

// maxHops limits the number of jump hosts to a host, because an ssh
// configuration can define an endless chain of them.
const maxHops = 8

// Dial connects to a host, checks its key and logs in. It goes through the
// jump hosts that the ssh configuration names. If an overloaded server refuses
// the connection, Dial retries after random pauses, for at most cfg.RetryFor.
// If the host key is not accepted, the error is a [HostKeyError].
func Dial(ctx context.Context, cfg Config) (*Client, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return dialHop(ctx, cfg, nil, 0)
}

// dialHop connects to cfg.Host through the jump hosts in path. If path is
// empty, it uses the jump hosts that the ssh configuration names. depth is the
// number of nested calls, which maxHops limits.
func dialHop(ctx context.Context, cfg Config, path []sshconfig.Hop, depth int) (*Client, error) {
	if depth >= maxHops {
		return nil, fmt.Errorf("host %s: more than %d jump hosts", cfg.Host, maxHops)
	}
	t, err := resolve(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("host %s: %w", cfg.Host, err)
	}
	if len(path) > 0 {
		t.Jumps, t.ProxyCommand = path, ""
	}
	cfg.DialTimeout = cmp.Or(cfg.DialTimeout, t.Timeout)
	cfg.DialTimeout = min(cfg.DialTimeout, cmp.Or(cfg.DialAtMost, cfg.DialTimeout))
	if len(t.Jumps) == 0 {
		return dialRetry(ctx, cfg, t, nil)
	}
	last := len(t.Jumps) - 1
	next := cfg
	next.ForwardAgent = false
	next.User, next.Host, next.Port = t.Jumps[last].User, t.Jumps[last].Host, t.Jumps[last].Port
	via, err := dialHop(ctx, next, t.Jumps[:last], depth+1)
	if err != nil {
		return nil, fmt.Errorf("host %s: through jump host: %w", cfg.Host, err)
	}
	c, err := dialRetry(ctx, cfg, t, via)
	if err != nil {
		_ = via.Close() // ignored: the error of the failed connection is returned
	}
	return c, err
}

// dialRetry calls dialOnce until it succeeds. It retries only while the server
// is overloaded, for at most cfg.RetryFor.
func dialRetry(ctx context.Context, cfg Config, t sshconfig.Target, via *Client) (*Client, error) {
	giveUp := time.Now().Add(cfg.RetryFor)
	for attempt := 0; ; attempt++ {
		c, overloaded, err := dialOnce(ctx, cfg, t, via)
		if err == nil {
			return c, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("host %s: %w", cfg.Host, context.Cause(ctx))
		}
		var refusal *HostKeyError
		if errors.As(err, &refusal) {
			return nil, refusal // return the HostKeyError alone, because its message names the host already
		}
		pause := backoff(attempt)
		if !overloaded || time.Now().Add(pause).After(giveUp) {
			return nil, fmt.Errorf("host %s: %w", cfg.Host, err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// NewClientConn performs the SSH handshake and returns a Client. raw is a
// connection of any type to the server; the Client closes it. cfg must have
// Signers and HostKey. If the connection is lost later, the LostError wraps
// the error of raw.
func NewClientConn(ctx context.Context, raw net.Conn, cfg Config) (*Client, error) {
	if cfg.HostKey == nil {
		return nil, fmt.Errorf("host %s: signers and host key are missing", cfg.Host)
	}
	name := cfg.Host
	cfg.Host = "pipe" // a placeholder for cfg.Host, which need not be a valid host name
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	t, err := resolve(ctx, cfg)
	if err != nil {
		return nil, err
	}
	cfg.Host, cfg.piped = name, true
	ctx, cancel := context.WithTimeoutCause(ctx, t.Timeout, fmt.Errorf("no answer within %v", t.Timeout))
	defer cancel()
	c, _, err := clientOver(ctx, cfg, t, raw, nil)
	return c, err
}

// backoff returns the pause before the next attempt: random, with a maximum
// that doubles from 200 ms to 4 s. Randomness keeps clients that were refused
// together from retrying together.
func backoff(attempt int) time.Duration {
	longest := min(200*time.Millisecond<<min(attempt, 10), 4*time.Second)
	return longest/4 + rand.N(longest*3/4)
}

// loginTime limits the login, in which the server may prompt the user several
// times. It equals the default of sshd's LoginGraceTime.
const loginTime = 2 * time.Minute

// dialOnce makes one attempt to connect. overloaded reports that the server closed
// the connection before it sent its host key, as sshd does when MaxStartups is
// exceeded.
func dialOnce(ctx context.Context, cfg Config, t sshconfig.Target, via *Client) (c *Client, overloaded bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	tooLate := func(limit time.Duration) error {
		return exit.WithHint(fmt.Errorf("no connection within %v", limit), "see whether ssh "+cfg.Host+" true works, and how long it takes; ConnectTimeout of the ssh configuration allows more")
	}
	var allowed atomic.Int64
	allowed.Store(int64(cfg.DialTimeout))
	limit := time.AfterFunc(cfg.DialTimeout, func() { cancel(tooLate(time.Duration(allowed.Load()))) })
	defer limit.Stop()
	cfg.shown = sync.OnceFunc(func() {
		login := max(cfg.DialTimeout, loginTime)
		login = min(login, cmp.Or(cfg.DialAtMost, login))
		allowed.Store(int64(login))
		limit.Reset(login)
	})
	if ask := cfg.Ask; ask != nil {
		cfg.Ask = func(ctx context.Context, question string, echo bool, refused string) (string, error) {
			limit.Stop() // stop the time limit: the user may need long to reply
			defer func() { limit.Reset(time.Duration(allowed.Load())) }()
			return ask(ctx, question, echo, refused)
		}
	}
	way, arrived := context.WithTimeoutCause(ctx, min(t.Connect, cfg.DialTimeout), tooLate(min(t.Connect, cfg.DialTimeout)))
	defer arrived()
	raw, err := connect(way, t, via)
	if err != nil {
		return nil, isRefusal(way, err), fmt.Errorf("connect to %s: %w", t.Address, causeOr(way, withoutAddress(err)))
	}
	return clientOver(ctx, cfg, t, raw, via)
}

// clientOver performs the SSH handshake on raw and returns a Client. beforeKey
// reports that the server closed the connection before it sent its host key.
func clientOver(ctx context.Context, cfg Config, t sshconfig.Target, raw net.Conn, via *Client) (c *Client, beforeKey bool, err error) {
	conn := &timedConn{Conn: raw, writeTimeout: cfg.DeadAfter, start: time.Now()}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // makes the handshake fail when ctx ends
	client, keyShown, err := handshake(ctx, cfg, t, conn)
	if !stop() && err == nil {
		_ = client.Close() // ctx ended just as the handshake succeeded
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = conn.Close()
		overloaded := !keyShown && isRefusal(ctx, err)
		late := ctx.Err() != nil
		if !errors.Is(err, errNoAgent) {
			err = causeOr(ctx, err)
		}
		switch {
		case cfg.piped || errors.Is(err, errNoAgent):
		case !keyShown:
			err = conn.withGreeting(cfg.Host, err, late)
		case late:
			err = fmt.Errorf("%w: the server has sent its key, but the login has not finished", err)
		}
		return nil, overloaded, err
	}
	return newClient(cfg, t, conn, client, via), false, nil
}

func causeOr(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// withoutAddress removes the address from a network error, because the caller adds the
// address to the message.
func withoutAddress(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

func connect(ctx context.Context, t sshconfig.Target, via *Client) (net.Conn, error) {
	if via != nil {
		return via.ssh.DialContext(ctx, "tcp", t.Address)
	}
	if t.ProxyCommand != "" {
		return startProxy(t)
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, t.Network, t.Address)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		<-ctx.Done() // the socket shares the deadline of ctx and may report it slightly earlier
	}
	var unknown *net.DNSError
	if !errors.As(err, &unknown) {
		return conn, err
	}
	for _, address := range lookUp(ctx, t) {
		if conn, err = dialer.DialContext(ctx, t.Network, address); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

// errNoAgent reports that the SSH agent did not reply before the deadline of
// the connection attempt.
var errNoAgent = errors.New("the SSH agent has not answered")

// handshake checks the host's key and logs the user in. keyShown is true if
// the host has sent its key. It is also true if handshake failed before it
// exchanged a byte: the caller then does not take the server for overloaded.
func handshake(ctx context.Context, cfg Config, t sshconfig.Target, conn net.Conn) (client *gossh.Client, keyShown bool, err error) {
	keys, err := newHostKeys(cfg, t)
	if err != nil {
		return nil, true, err
	}
	offer := newOffer(ctx, cfg, t)
	defer offer.close()
	if ctx.Err() != nil && offer.agent != nil {
		return nil, true, fmt.Errorf("%w: %w", context.Cause(ctx), errNoAgent)
	}
	config := &gossh.ClientConfig{
		Config:            algorithms(),
		User:              t.User,
		Auth:              append([]gossh.AuthMethod{gossh.PublicKeys(offer.keys...)}, promptMethods(ctx, cfg, t)...),
		HostKeyAlgorithms: keys.algorithms,
		HostKeyCallback: func(name string, remote net.Addr, key gossh.PublicKey) error {
			keyShown = true
			err := keys.check(name, remote, key)
			if err == nil && cfg.shown != nil {
				cfg.shown()
			}
			return err
		},
		AuthCallback: func(now *gossh.ClientAuthContext) (gossh.AuthMethod, error) {
			offer.allowed = now.AllowedMethods
			return nil, nil // A nil method makes the SSH library continue with the next entry of Auth.
		},
	}
	inner, channels, requests, err := gossh.NewClientConn(conn, keys.address, config)
	if err != nil {
		if keyShown { // the login starts only after the host has sent its key
			err = offer.explain(err)
		}
		return nil, keyShown, explainAlgorithms(err)
	}
	if weak := weakAlgorithms(inner); len(weak) > 0 {
		cfg.Notice(fmt.Sprintf("warning: host %s: its SSH server agreed to nothing better than %s, which is not secure: update it", cfg.Host, strings.Join(weak, ", ")))
	}
	return gossh.NewClient(inner, channels, requests), true, nil
}

// isRefusal reports whether err looks as if an overloaded server closed the
// connection. It is false if ctx has ended, since then plx closed the
// connection.
func isRefusal(ctx context.Context, err error) bool {
	return ctx.Err() == nil && (isConnectionEnd(err) || strings.Contains(err.Error(), "Exceeded MaxStartups"))
}

// isConnectionEnd reports whether err means that the connection was closed or broken.
func isConnectionEnd(err error) bool {
	return slices.ContainsFunc([]error{
		io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE, os.ErrDeadlineExceeded, errClientDone,
		sftp.ErrSSHFxConnectionLost,
	}, func(end error) bool { return errors.Is(err, end) })
}

func joinAddress(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// resolve returns the host's settings from the ssh configuration. If
// cfg.HostKey is set, it does not read the configuration and returns the
// defaults.
func resolve(ctx context.Context, cfg Config) (sshconfig.Target, error) {
	if cfg.HostKey == nil {
		return sshconfig.Resolve(ctx, sshconfig.Query{Host: cfg.Host, User: cfg.User, Port: cfg.Port,
			Home: cfg.Home, ConfigFile: cfg.ConfigFile, KnownHostsFile: cfg.KnownHostsFile})
	}
	t := sshconfig.Target{HostName: cfg.Host, Port: cmp.Or(cfg.Port, 22), User: cfg.User, Connect: sshconfig.DefaultConnect, Timeout: sshconfig.DefaultTimeout, Network: "tcp"}
	t.Address = joinAddress(t.HostName, t.Port)
	return t, nil
}
