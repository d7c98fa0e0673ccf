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

// Identity is what an agent proves to the other agents of its job.
type Identity struct {
	Secret    []byte // the job's, which all its agents have
	HostIndex int    // index of the agent's host among those of the job
	TLS       bool   // the job's agents encrypt what leaves a host
}

func (id Identity) channel() channel.Config {
	return channel.Config{Key: cluster.PeerKey(id.Secret, 0), TLS: id.TLS}
}

// agentName is the name by which agents know one another.
func agentName(host int) string { return fmt.Sprintf("agent:%d", host) }

// Dial connects to the agent of another host. Both prove the job's secret.
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

// Bounds of reaching an agent.
const (
	reachTime = 10 * time.Second
	// The kernel asks three times for a neighbour's address, a second apart.
	neighbourTime = 4 * time.Second
	// crowdTime is for agents that turn others away because too many dial them at once.
	crowdTime = 6 * time.Second
	dialPause = 100 * time.Millisecond
)

// reachMany is how many agents ReachAll dials at a time.
const reachMany = 64

// ReachAll returns which of the other agents do not answer.
func (id Identity) ReachAll(peers []protocol.Peer) []protocol.Unreached {
	var mu sync.Mutex
	var failures []protocol.Unreached
	var dialling errgroup.Group
	dialling.SetLimit(reachMany)
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
	_ = dialling.Wait() // failures has the errors
	return failures
}

// untilReached dials in bounded time. It dials again for a while if the kernel reports that
// there is no route to the host. The kernel does so for a host that was silent until it has
// found the host's hardware address again, as right after a network was mended. It dials
// again too if the agent closes the connection: at the start of a job of many hosts all
// dial the chief's at once, and its gate closes some of the connections.
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
		case errors.Is(err, os.ErrDeadlineExceeded): // of a socket, by ctx or by the proof
			return fmt.Errorf("no answer within %v: %w", reachTime, err)
		case time.Since(began) >= patience:
			return err
		}
		time.Sleep(dialPause + rand.N(dialPause))
	}
}

// isClosed reports whether the other side has closed the connection, which package cluster
// takes for a refused proof.
func isClosed(err error) bool {
	return slices.ContainsFunc([]error{io.EOF, io.ErrUnexpectedEOF, unix.ECONNRESET, unix.EPIPE, cluster.ErrProof},
		func(closed error) bool { return errors.Is(err, closed) })
}

// Greeting bounds the first messages of a connection.
const Greeting = 10 * time.Second

// Open opens the agents' protocol on a connection, in bounded time. On an error it
// closes the connection.
func Open(ctx context.Context, raw net.Conn) (*protocol.Conn, error) {
	stop := context.AfterFunc(ctx, func() { raw.SetDeadline(time.Unix(1, 0)) })
	raw.SetDeadline(time.Now().Add(Greeting)) // a closed one fails at its first use
	conn, err := protocol.Open(raw)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = cmp.Or(context.Cause(ctx), fmt.Errorf("no greeting within %v", Greeting))
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

// Gate returns the gate of the agent with this identity, which admits other agents of the
// job.
func (id Identity) Gate() *channel.Gate {
	self := agentName(id.HostIndex)
	return channel.NewGate(id.channel(), func(string) string { return self })
}

// ListenLocal opens the agent's local socket and returns its name. The name is
// random, in the abstract namespace: it needs no file system and has no limit on
// its length.
func ListenLocal() (*net.UnixListener, string, error) {
	name := "@plx-agent-" + crypto.Text()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, "", fmt.Errorf("open the agent's local socket: %w", err)
	}
	return ln, name, nil
}

// DialLocal connects to an agent's local socket. It refuses a socket of another
// user.
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

// SameUser refuses a connection whose other end runs as another user.
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
		return fmt.Errorf("ask which user is at the local socket: %w", err)
	}
	if int(peer.Uid) != os.Geteuid() {
		return fmt.Errorf("the local socket's other end is user %d, this is %d", peer.Uid, os.Geteuid())
	}
	return nil
}
