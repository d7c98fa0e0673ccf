//go:build linux

package sockets

import (
	"cmp"
	"context"
	crypto "crypto/rand"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/cluster/channel"
)

// Identity holds what an agent needs to authenticate itself to the other
// agents of its job.
type Identity struct {
	Secret    []byte // the job's secret, which all its agents know
	HostIndex int    // index of the agent's host in the job's list of hosts
	TLS       bool   // true if connections between hosts are encrypted
}

func (id Identity) channel() channel.Config {
	return channel.Config{Key: cluster.PeerKey(id.Secret, 0), TLS: id.TLS}
}

// agentName returns the name that an agent presents to other agents when it
// authenticates itself.
func agentName(host int) string { return fmt.Sprintf("agent:%d", host) }

// Dial connects to the agent of another host. Both agents prove to each other
// that they know the job's secret.
func (id Identity) Dial(ctx context.Context, peer protocol.Peer) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", peer.Addr)
	if err != nil {
		return nil, err
	}
	protected, err := channel.Dial(ctx, conn, id.channel(), agentName(id.HostIndex), agentName(peer.Index))
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return protected, nil
}

// Timeouts of dialling an agent.
const (
	reachTime = 10 * time.Second
	// neighbourTime is how long to retry after "no route to host". The kernel
	// sends three ARP requests, one second apart, before it reports that
	// error.
	neighbourTime = 4 * time.Second
	// crowdTime is how long to retry if the agent closes the connection,
	// because too many agents dial it at once.
	crowdTime = 6 * time.Second
	dialPause = 100 * time.Millisecond
)

// reachLimit is the maximum number of agents that ReachAll dials at the same
// time.
const reachLimit = 64

// ReachAll dials the other agents and returns those that it could not reach.
func (id Identity) ReachAll(peers []protocol.Peer) []protocol.Unreached {
	var mu sync.Mutex
	var failures []protocol.Unreached
	var dialling errgroup.Group
	dialling.SetLimit(reachLimit)
	for _, peer := range peers {
		if peer.Index == id.HostIndex {
			continue
		}
		dialling.Go(func() error {
			err := untilReached(func(ctx context.Context) (net.Conn, error) { return id.Dial(ctx, peer) })
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				failures = append(failures, protocol.Unreached{Peer: peer, Cause: err.Error()})
			}
			return nil
		})
	}
	_ = dialling.Wait() // the result is always nil: the goroutines add their errors to failures
	return failures
}

// untilReached dials an agent until it succeeds, for at most reachTime. It
// retries in two cases only. The first is "no route to host": after a network
// failure, the kernel reports this until it has found the host's hardware
// address again. The second is a connection that the agent closes. When a
// large job starts, all agents dial the agent of worker 0 at once, and that
// agent drops some of the connections.
func untilReached(dial func(context.Context) (net.Conn, error)) error {
	ctx, cancel := context.WithTimeout(context.Background(), reachTime)
	defer cancel()
	for began := time.Now(); ; {
		conn, err := dial(ctx)
		if err == nil {
			return conn.Close()
		}
		patience := time.Duration(0)
		switch {
		case errors.Is(err, unix.EHOSTUNREACH):
			patience = neighbourTime
		case isClosed(err):
			patience = crowdTime
		}
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded): // a deadline of ctx or of the authentication has passed, and the socket reported it first
			return fmt.Errorf("no answer within %v: %w", reachTime, err)
		case time.Since(began) >= patience:
			return err
		}
		time.Sleep(dialPause + rand.N(dialPause))
	}
}

// isClosed reports whether err means that the peer has closed the connection.
// If that happens during authentication, package cluster returns ErrProof.
func isClosed(err error) bool {
	return slices.ContainsFunc([]error{io.EOF, io.ErrUnexpectedEOF, unix.ECONNRESET, unix.EPIPE, cluster.ErrProof},
		func(closed error) bool { return errors.Is(err, closed) })
}

// GreetingTimeout is the timeout for the first messages of a connection between
// agents.
const GreetingTimeout = 10 * time.Second

// Open starts the agents' protocol on a new connection. If that takes longer
// than GreetingTimeout, Open fails and closes the connection.
func Open(ctx context.Context, raw net.Conn) (*protocol.Conn, error) {
	stop := context.AfterFunc(ctx, func() { raw.SetDeadline(time.Unix(1, 0)) })
	raw.SetDeadline(time.Now().Add(GreetingTimeout)) // ignore the error: if the connection is closed, Open below fails
	conn, err := protocol.Open(raw)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = cmp.Or(context.Cause(ctx), fmt.Errorf("no greeting within %v", GreetingTimeout))
	}
	if err != nil {
		stop()
		return nil, err
	}
	if !stop() {
		return nil, errors.Join(context.Cause(ctx), conn.Close())
	}
	return conn, raw.SetDeadline(time.Time{})
}

// Gate returns a channel.Gate, which authenticates incoming connections: it
// accepts only agents of the same job.
func (id Identity) Gate() *channel.Gate {
	self := agentName(id.HostIndex)
	return channel.NewGate(id.channel(), func(string) string { return self })
}

// ListenLocal opens the agent's local Unix socket and returns its random name.
// The name is in the abstract namespace, so the socket needs no file. A file's
// path could be longer than a socket's name may be.
func ListenLocal() (*net.UnixListener, string, error) {
	name := "@plx-agent-" + crypto.Text()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, "", fmt.Errorf("open the agent's local socket: %w", err)
	}
	return ln, name, nil
}

// DialLocal connects to an agent's local Unix socket. It returns an error if
// the socket belongs to another user.
func DialLocal(ctx context.Context, name string) (*net.UnixConn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", name)
	if err != nil {
		return nil, err
	}
	local := conn.(*net.UnixConn)
	if err := SameUser(local); err != nil {
		return nil, errors.Join(err, local.Close())
	}
	return local, nil
}

// SameUser returns an error if the process at the other end of conn runs as
// another user.
func SameUser(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(err, failed); err != nil {
		return fmt.Errorf("get the user at the other end of the local socket: %w", err)
	}
	if int(peer.Uid) != os.Geteuid() {
		return fmt.Errorf("the other end of the local socket runs as user %d, this process as %d", peer.Uid, os.Geteuid())
	}
	return nil
}
