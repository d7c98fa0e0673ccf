package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/trainer/cluster"
)

// listenLocal opens the agent's local socket under a random name in the
// abstract namespace, where paths have no length and no file system.
func listenLocal() (*net.UnixListener, string, error) {
	name := "@plx-agent-" + rand.Text()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, "", fmt.Errorf("open the agent's local socket: %w", err)
	}
	return ln, name, nil
}

// dialLocal connects to an agent's local socket and makes sure that its owner
// is the same user.
func dialLocal(ctx context.Context, name string) (*net.UnixConn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", name)
	if err != nil {
		return nil, err
	}
	local := conn.(*net.UnixConn)
	if err := sameUser(local); err != nil {
		return nil, errors.Join(err, local.Close())
	}
	return local, nil
}

// sameUser refuses a peer that runs as somebody else.
func sameUser(conn *net.UnixConn) error {
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
		return fmt.Errorf("ask who is at the local socket: %w", err)
	}
	if int(peer.Uid) != os.Geteuid() {
		return fmt.Errorf("the local socket's other end is user %d, this is %d", peer.Uid, os.Geteuid())
	}
	return nil
}

// gate proves connections from other hosts. At most limit of them are
// unproved at a time: another one takes the place of the oldest, so that
// strangers who say nothing keep nobody out.
type gate struct {
	key   cluster.Key
	self  string
	limit int

	mu       sync.Mutex
	unproved []net.Conn // oldest first
}

// maxUnproved is above the number of agents that check one another at a time.
const maxUnproved = 512

// prove returns nil once conn has proved the job's secret. On an error conn is
// closed.
func (g *gate) prove(ctx context.Context, conn net.Conn) error {
	g.enter(conn)
	_, err := cluster.Accept(ctx, conn, g.key, g.self)
	g.leave(conn)
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	return nil
}

func (g *gate) enter(conn net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.unproved) >= g.limit {
		g.unproved[0].Close() // its own goroutine reports it
		g.unproved = g.unproved[1:]
	}
	g.unproved = append(g.unproved, conn)
}

func (g *gate) leave(conn net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, c := range g.unproved {
		if c == conn {
			g.unproved = append(g.unproved[:i:i], g.unproved[i+1:]...)
			return
		}
	}
}

// listenData opens the agent's socket on the data network.
func listenData(p place) (net.Listener, error) {
	s, err := p.open(true)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(s.fd), "agent")
	defer f.Close() // FileListener works on its own copy
	ln, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", s.addr, err)
	}
	return ln, nil // the claim on the port lives as long as the process
}
