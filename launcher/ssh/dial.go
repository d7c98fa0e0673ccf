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

// Config tells which host to dial and how. Only Host is required. Dial keeps its own
// copy.
type Config struct {
	// User, Host and Port are as in the resource file. Host may be an alias of the
	// ssh configuration. Empty User, zero Port: those of the configuration, then the
	// local user and 22.
	User, Host string
	Port       int

	// Home is ~ in keys, configuration and known_hosts. Empty: $HOME. The password
	// file is not read.
	Home string
	// ConfigFile is the ssh configuration. Empty: <Home>/.ssh/config. A missing file
	// counts as an empty one.
	ConfigFile string
	// KnownHostsFile has the keys of hosts. Empty: UserKnownHostsFile of the
	// configuration, then <Home>/.ssh/known_hosts.
	KnownHostsFile string
	// AcceptNewHostKeys records the key of a host that has none on record.
	AcceptNewHostKeys bool

	// ForwardAgent forwards the user's SSH agent to commands, if the configuration says so too.
	ForwardAgent bool

	// Signers and HostKey replace the configuration, the agent and known_hosts: only
	// these keys are offered, and only this host key is accepted. Set both or none.
	Signers []gossh.Signer
	HostKey gossh.PublicKey

	// Ask asks the user what a host asks at the login, such as for a password. refused is
	// the last answer, which a host has not accepted; empty: none was given. It may be
	// called from several goroutines at once. Nil: nobody can be asked.
	Ask func(ctx context.Context, question string, echo bool, refused string) (string, error)

	// Notice receives one-line notices for the user, without newline. It may be
	// called from several goroutines at once. Nil drops them.
	Notice func(string)
	// Noisy is called, once for a connection and instead of a notice, if start-up files of
	// the login shell print so many bytes at each command. Nil: it is a notice.
	Noisy func(bytes int)

	// Crowded is called when a session has to wait until another one ends: as many are open as
	// the server allows. It may end one. Nil: nothing is called.
	Crowded func()

	// DialTimeout bounds one attempt to connect, with the handshake, for each hop. The login
	// has 2 minutes more, or as long if that is longer. 0: ConnectTimeout of the configuration,
	// then 15 s for the way to the server and 60 s with the handshake.
	DialTimeout time.Duration
	// DialAtMost bounds the same, also where DialTimeout or the configuration allows more. 0:
	// nothing else bounds it.
	DialAtMost time.Duration
	// RetryFor bounds the attempts that follow one which the server refused for load.
	// 0: 30 s.
	RetryFor time.Duration
	// KeepaliveEvery is the time between two keepalive requests. 0: 5 s.
	KeepaliveEvery time.Duration
	// DeadAfter is how long the host may send nothing before the connection counts as
	// lost. It is at least KeepaliveEvery. 0: 20 s, so that a dead host is noticed
	// within 30 s.
	DeadAfter time.Duration

	shown func() // called when the server has shown an accepted key, so that the login begins; may be nil
	piped bool   // the connection is no socket of plx's: its own errors say why it ended
}

// validate refuses impossible values and fills in the defaults.
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

// maxHops bounds a chain of jump hosts: a configuration can make it endless.
const maxHops = 8

// Dial connects to a host, through jump hosts if the configuration names some, checks its
// key and authenticates. If the server refuses an attempt for load, Dial tries again
// after random pauses, for at most cfg.RetryFor. A key that is not accepted is a
// [HostKeyError].
func Dial(ctx context.Context, cfg Config) (*Client, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return dialHop(ctx, cfg, nil, 0)
}

// dialHop dials one hop. path has the hops before it; none: those of the configuration.
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
		_ = via.Close() // the next hop failed
	}
	return c, err
}

// dialRetry tries again while the server refuses for load.
func dialRetry(ctx context.Context, cfg Config, t sshconfig.Target, via *Client) (*Client, error) {
	giveUp := time.Now().Add(cfg.RetryFor)
	for attempt := 0; ; attempt++ {
		c, loaded, err := dialOnce(ctx, cfg, t, via)
		if err == nil {
			return c, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("host %s: %w", cfg.Host, context.Cause(ctx))
		}
		var refusal *HostKeyError
		if errors.As(err, &refusal) {
			return nil, refusal // its text has the host
		}
		pause := backoff(attempt)
		if !loaded || time.Now().Add(pause).After(giveUp) {
			return nil, fmt.Errorf("host %s: %w", cfg.Host, err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// Over makes a Client of a connection that leads to the server, whatever it goes through. The
// Client owns it. cfg must have Signers and HostKey. Loss of the connection has the
// connection's own error as its cause.
func Over(ctx context.Context, raw net.Conn, cfg Config) (*Client, error) {
	if cfg.HostKey == nil {
		return nil, fmt.Errorf("host %s: signers and host key are missing", cfg.Host)
	}
	name := cfg.Host
	cfg.Host = "pipe" // no name to look up
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
	c, _, err := greet(ctx, cfg, t, raw, nil)
	return c, err
}

// backoff returns a pause that doubles from 200 ms to 4 s. It is random: connections that
// were refused together must not come back together.
func backoff(attempt int) time.Duration {
	longest := min(200*time.Millisecond<<min(attempt, 10), 4*time.Second)
	return longest/4 + rand.N(longest*3/4)
}

// loginTime bounds a login, for which the server may ask others several times. Its own limit,
// LoginGraceTime, is as long by default; ssh has none.
const loginTime = 2 * time.Minute

// dialOnce makes one attempt. loaded reports that the server ended it before it showed a
// key, as sshd does beyond MaxStartups.
func dialOnce(ctx context.Context, cfg Config, t sshconfig.Target, via *Client) (c *Client, loaded bool, err error) {
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
			limit.Stop() // the user may take long
			defer func() { limit.Reset(time.Duration(allowed.Load())) }()
			return ask(ctx, question, echo, refused)
		}
	}
	way, arrived := context.WithTimeoutCause(ctx, min(t.Connect, cfg.DialTimeout), tooLate(min(t.Connect, cfg.DialTimeout)))
	defer arrived()
	raw, err := connect(way, t, via)
	if err != nil {
		return nil, isRefusal(way, err), fmt.Errorf("connect to %s: %w", t.Address, causeOr(way, plain(err)))
	}
	return greet(ctx, cfg, t, raw, via)
}

// greet makes a Client of a connection to the server. keyless reports that the server ended
// it before it showed a key.
func greet(ctx context.Context, cfg Config, t sshconfig.Target, raw net.Conn, via *Client) (c *Client, keyless bool, err error) {
	conn := &timedConn{Conn: raw, writeTimeout: cfg.DeadAfter, start: time.Now()}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // ends the handshake
	client, keyShown, err := handshake(ctx, cfg, t, conn)
	if !stop() && err == nil {
		_ = client.Close() // the deadline was first
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = conn.Close()
		loaded := !keyShown && isRefusal(ctx, err)
		late := ctx.Err() != nil
		if !errors.Is(err, errNoAgent) {
			err = causeOr(ctx, err)
		}
		switch {
		case cfg.piped || errors.Is(err, errNoAgent):
		case !keyShown:
			err = conn.atGreeting(cfg.Host, err, late)
		case late:
			err = fmt.Errorf("%w: the server has shown its key, and the login has not ended", err)
		}
		return nil, loaded, err
	}
	return newClient(cfg, t, conn, client, via), false, nil
}

func causeOr(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// plain removes the address from an error of the network: the caller adds it.
func plain(err error) error {
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
		<-ctx.Done() // the socket has the deadline of ctx, and may be first
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

// errNoAgent is why there was no time left for the host.
var errNoAgent = errors.New("the SSH agent has not answered")

// handshake authenticates both sides. keyShown reports that the host showed its key.
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
		Auth:              append([]gossh.AuthMethod{gossh.PublicKeys(offer.keys...)}, questions(ctx, cfg, t)...),
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
			return nil, nil // the next one of Auth
		},
	}
	inner, channels, requests, err := gossh.NewClientConn(conn, keys.address, config)
	if err != nil {
		if keyShown { // there is no login before
			err = offer.explain(err)
		}
		return nil, keyShown, explainAlgorithms(err)
	}
	if weak := weakOf(inner); len(weak) > 0 {
		cfg.Notice(fmt.Sprintf("warning: host %s: its SSH server agreed to nothing better than %s, which is not secure: update it", cfg.Host, strings.Join(weak, ", ")))
	}
	return gossh.NewClient(inner, channels, requests), true, nil
}

// isRefusal reports whether a server under load ended the connection, as opposed to
// another failure such as the deadline of the attempt.
func isRefusal(ctx context.Context, err error) bool {
	return ctx.Err() == nil && (isDrop(err) || strings.Contains(err.Error(), "Exceeded MaxStartups"))
}

// isDrop reports whether err is the end of a connection.
func isDrop(err error) bool {
	return slices.ContainsFunc([]error{
		io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE, os.ErrDeadlineExceeded, errClientDone,
		sftp.ErrSSHFxConnectionLost,
	}, func(end error) bool { return errors.Is(err, end) })
}

func joinAddress(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// resolve looks the host up in the ssh configuration, unless cfg brings its own keys.
func resolve(ctx context.Context, cfg Config) (sshconfig.Target, error) {
	if cfg.HostKey == nil {
		return sshconfig.Resolve(ctx, sshconfig.Query{Host: cfg.Host, User: cfg.User, Port: cfg.Port,
			Home: cfg.Home, ConfigFile: cfg.ConfigFile, KnownHostsFile: cfg.KnownHostsFile})
	}
	t := sshconfig.Target{HostName: cfg.Host, Port: cmp.Or(cfg.Port, 22), User: cfg.User, Connect: sshconfig.DefaultConnect, Timeout: sshconfig.DefaultTimeout, Network: "tcp"}
	t.Address = joinAddress(t.HostName, t.Port)
	return t, nil
}
