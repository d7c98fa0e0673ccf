package ssh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pkg/sftp"
	gossh "golang.org/x/crypto/ssh"
)

// maxHops bounds a chain of jump hosts, which a configuration can make endless.
const maxHops = 8

// Dial connects to a host, checks its key and authenticates, through jump hosts
// where the configuration says so. An attempt that the server refuses for load
// is repeated, after pauses of random length, for at most cfg.RetryFor.
// A [HostKeyError] tells why a host's key was refused.
func Dial(ctx context.Context, cfg Config) (*Client, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return dialHop(ctx, cfg, nil, 0)
}

// dialHop reaches one hop. path are the hops before it, which overrule what
// the configuration says of it; nil for none known.
func dialHop(ctx context.Context, cfg Config, path []hop, depth int) (*Client, error) {
	if depth >= maxHops {
		return nil, fmt.Errorf("host %s: more than %d jump hosts", cfg.Host, maxHops)
	}
	t, err := resolve(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("host %s: %w", cfg.Host, err)
	}
	if path != nil {
		t.jumps = path
	}
	if cfg.DialTimeout <= 0 {
		cfg.DialTimeout = t.timeout
	}
	if len(t.jumps) == 0 {
		return dialRetry(ctx, cfg, t, nil)
	}
	last := len(t.jumps) - 1
	next := cfg
	next.User, next.Host, next.Port = t.jumps[last].user, t.jumps[last].host, t.jumps[last].port
	via, err := dialHop(ctx, next, pathBefore(t.jumps), depth+1)
	if err != nil {
		return nil, fmt.Errorf("host %s: through jump host: %w", cfg.Host, err)
	}
	c, err := dialRetry(ctx, cfg, t, via)
	if err != nil {
		_ = via.Close() // the hop behind it is what failed
	}
	return c, err
}

// pathBefore returns the hops before the last, nil when there are none.
func pathBefore(jumps []hop) []hop {
	if len(jumps) < 2 {
		return nil
	}
	return jumps[:len(jumps)-1]
}

// dialRetry repeats attempts that were refused for load.
func dialRetry(ctx context.Context, cfg Config, t target, via *Client) (*Client, error) {
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
			return nil, refusal // it names the host
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

// backoff returns a random pause that doubles from 200 ms to 4 s: random, for
// the hosts that were refused together would come back together.
func backoff(attempt int) time.Duration {
	longest := min(200*time.Millisecond<<min(attempt, 10), 4*time.Second)
	return longest/4 + rand.N(longest*3/4)
}

// dialOnce makes one attempt. loaded tells that the server ended it before it
// showed a key, as sshd does beyond MaxStartups.
func dialOnce(ctx context.Context, cfg Config, t target, via *Client) (c *Client, loaded bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.DialTimeout,
		fmt.Errorf("no connection within %v", cfg.DialTimeout))
	defer cancel()
	raw, err := connect(ctx, t.address, via)
	if err != nil {
		return nil, isRefusal(ctx, err), fmt.Errorf("connect to %s: %w", t.address, causeOr(ctx, plain(err)))
	}
	conn := newTimedConn(raw, cfg.DeadAfter)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // ends the handshake
	client, keyShown, err := handshake(ctx, cfg, t, conn)
	if !stop() && err == nil {
		_ = client.Close() // the deadline came first
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = conn.Close()
		return nil, !keyShown && isRefusal(ctx, err), causeOr(ctx, err)
	}
	return newClient(cfg, conn, client, via), false, nil
}

func causeOr(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// plain takes the address off an error of the network, which is named already.
func plain(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

func connect(ctx context.Context, address string, via *Client) (net.Conn, error) {
	if via != nil {
		return via.ssh.DialContext(ctx, "tcp", address)
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		<-ctx.Done() // the socket's deadline is that of ctx and may ring first
	}
	return conn, err
}

// handshake authenticates both sides; keyShown tells that it got as far as the
// host's key.
func handshake(ctx context.Context, cfg Config, t target, conn net.Conn) (client *gossh.Client, keyShown bool, err error) {
	keys, err := newHostKeys(cfg, t)
	if err != nil {
		return nil, true, err
	}
	offer, err := newOffer(ctx, cfg, t)
	if err != nil {
		return nil, true, err
	}
	defer offer.close()
	config := &gossh.ClientConfig{
		User:              t.user,
		Auth:              []gossh.AuthMethod{gossh.PublicKeysCallback(offer.signers)},
		HostKeyAlgorithms: keys.algorithms,
		HostKeyCallback: func(name string, remote net.Addr, key gossh.PublicKey) error {
			keyShown = true
			return keys.check(name, remote, key)
		},
	}
	inner, channels, requests, err := gossh.NewClientConn(conn, keys.address, config)
	if err != nil {
		return nil, keyShown, offer.explain(err)
	}
	return gossh.NewClient(inner, channels, requests), true, nil
}

// isRefusal tells how a server under load ends a connection that it has no room
// for from other failures, such as the deadline of the attempt.
func isRefusal(ctx context.Context, err error) bool {
	return ctx.Err() == nil && (isDrop(err) || strings.Contains(err.Error(), "Exceeded MaxStartups"))
}

// isDrop tells the end of a connection from other failures.
func isDrop(err error) bool {
	for _, end := range []error{
		io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE, os.ErrDeadlineExceeded, errClientDone,
		sftp.ErrSSHFxConnectionLost,
	} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}

func joinAddress(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
