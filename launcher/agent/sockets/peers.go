//go:build linux

package sockets

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// Identity is what an agent proves to the other agents of its job.
type Identity struct {
	Secret    []byte // the job's, which all its agents have
	HostIndex int    // index of the agent's host among those of the job
}

func (id Identity) key() cluster.Key { return cluster.PeerKey(id.Secret, 0) }

// agentName is the name by which agents know one another.
func agentName(host int) string { return fmt.Sprintf("agent:%d", host) }

// Dial connects to the agent of another host. Both prove the job's secret.
func (id Identity) Dial(ctx context.Context, peer protocol.Peer) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", peer.Addr)
	if err != nil {
		return nil, err
	}
	if err := cluster.Dial(ctx, conn, id.key(), agentName(id.HostIndex), agentName(peer.Index)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// Bounds of reaching an agent.
const (
	reachTime = 10 * time.Second
	// The kernel asks three times for a neighbour's address, a second apart.
	neighbourTime  = 4 * time.Second
	neighbourPause = 100 * time.Millisecond
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

// untilReached dials in bounded time. It dials again for a while if the kernel reports that there is no route to
// the host. It does so for a host that was silent until it has found the host's
// hardware address again, as right after a network was mended.
func untilReached(dial func(context.Context) (net.Conn, error)) error {
	ctx, cancel := context.WithTimeout(context.Background(), reachTime)
	defer cancel()
	for began := time.Now(); ; {
		conn, err := dial(ctx)
		if err == nil {
			return conn.Close()
		}
		if !errors.Is(err, unix.EHOSTUNREACH) || time.Since(began) > neighbourTime {
			return err
		}
		time.Sleep(neighbourPause)
	}
}

// Greeting bounds the first messages of a connection.
const Greeting = 10 * time.Second

// Open opens the agents' protocol on a connection, in bounded time. On an error it
// closes the connection.
func Open(ctx context.Context, raw net.Conn) (*protocol.Conn, error) {
	stop := context.AfterFunc(ctx, func() { raw.SetDeadline(time.Unix(1, 0)) })
	raw.SetDeadline(time.Now().Add(Greeting)) // a closed one fails at its first use
	conn, err := protocol.Open(raw)
	if err != nil {
		stop()
		return nil, err
	}
	if !stop() {
		return nil, errors.Join(ctx.Err(), conn.Close())
	}
	return conn, raw.SetDeadline(time.Time{})
}

// Gate admits connections from other agents of the job, which prove the job's
// secret. At most limit connections are unauthenticated at a time. A further one
// takes the place of the oldest, so silent connections lock no agent out.
type Gate struct {
	key   cluster.Key // derived from the job's secret
	self  string      // name of this agent; a dialling agent must name it
	limit int         // most connections that may be unauthenticated at a time

	mu       sync.Mutex
	unproved []net.Conn // connections that are not authenticated, oldest first
}

// maxUnproved is above the number of agents that check one another at a time.
const maxUnproved = 512

// Gate returns the gate of the agent with this identity.
func (id Identity) Gate() *Gate {
	return &Gate{key: id.key(), self: agentName(id.HostIndex), limit: maxUnproved}
}

// Prove returns nil after conn has proved the job's secret. On an error it closes
// conn.
func (g *Gate) Prove(ctx context.Context, conn net.Conn) error {
	g.enter(conn)
	_, err := cluster.Accept(ctx, conn, g.key, func(string) string { return g.self })
	g.leave(conn)
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	return nil
}

func (g *Gate) enter(conn net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.unproved) >= g.limit {
		g.unproved[0].Close() // its own goroutine reports it
		g.unproved = g.unproved[1:]
	}
	g.unproved = append(g.unproved, conn)
}

func (g *Gate) leave(conn net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.unproved, conn); i >= 0 {
		g.unproved = slices.Delete(g.unproved, i, i+1)
	}
}

// ListenLocal opens the agent's local socket and returns its name. The name is
// random, in the abstract namespace: it needs no file system and has no limit on
// its length.
func ListenLocal() (*net.UnixListener, string, error) {
	name := "@plx-agent-" + rand.Text()
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
