// Package channel makes connections between tasks, and between agents, of one job.
//
//	conn, err := channel.Dial(ctx, raw, channel.Config{Key: key}, "worker:1/holder", "ps:0/holder")
//	conn, peer, err := channel.Accept(ctx, raw, channel.Config{Key: key}, self)
//
// Both ends first prove the job's secret (package cluster). Then the connection is
// protected by one of these:
//
//   - nothing, if both ends are on one host: no network lies between them;
//   - a checksum of everything, by default: a byte that changed on its way fails
//     the connection with [ErrChanged]. It protects from faulty hardware, not from an
//     attacker;
//   - TLS 1.3, if Config.TLS is set: nobody on the way can read or change anything.
//
// The dialler sends its choice in one byte after the proof. An acceptor whose Config
// demands TLS refuses another choice, unless it sees by itself that both ends are on
// one host.
package channel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
)

// ErrChanged says that data is not what the other end has sent.
var ErrChanged = errors.New("changed on its way: a checksum does not match")

// Config is what both ends of a job's connections agree on.
type Config struct {
	Key cluster.Key // proves that the task or agent belongs to the job
	TLS bool        // encrypt what leaves the host
}

// protection is how a connection is protected.
type protection byte

const (
	bare      protection = 'b'
	checksum  protection = 'c'
	encrypted protection = 't'
)

// setupTime bounds what follows the proof.
const setupTime = 10 * time.Second

// Dial makes a channel of a new connection, see [cluster.Dial]. On an error the
// caller closes conn.
func Dial(ctx context.Context, conn net.Conn, c Config, self, peer string) (net.Conn, error) {
	if err := cluster.Dial(ctx, conn, c.Key, self, peer); err != nil {
		return nil, err
	}
	defer bound(ctx, conn)()
	p := c.choose(conn)
	if _, err := conn.Write([]byte{byte(p)}); err != nil {
		return nil, err
	}
	protected, err := c.protect(ctx, conn, p, ends{near: self, far: peer, dialled: true})
	if err != nil {
		return nil, fmt.Errorf("encrypt the connection to %s: %w", peer, err)
	}
	return protected, nil
}

// Accept is the other side of [Dial], see [cluster.Accept]. It returns the name of the
// dialler.
func Accept(ctx context.Context, conn net.Conn, c Config, self func(dialler string) string) (protected net.Conn, peer string, err error) {
	peer, err = cluster.Accept(ctx, conn, c.Key, self)
	if err != nil {
		return nil, "", err
	}
	defer bound(ctx, conn)()
	var choice [1]byte
	if _, err := io.ReadFull(conn, choice[:]); err != nil {
		return nil, "", err
	}
	p := protection(choice[0])
	if c.TLS && p != encrypted && !sameHost(conn) {
		return nil, "", fmt.Errorf("%s did not encrypt the connection, and this job is encrypted", peer)
	}
	protected, err = c.protect(ctx, conn, p, ends{near: self(peer), far: peer})
	if err != nil {
		return nil, "", fmt.Errorf("protect the connection of %s: %w", peer, err)
	}
	return protected, peer, nil
}

// choose returns the protection that a connection needs.
func (c Config) choose(conn net.Conn) protection {
	switch {
	case sameHost(conn):
		return bare
	case c.TLS:
		return encrypted
	}
	return checksum
}

// ends are the names of both ends of a connection.
type ends struct {
	near, far string
	dialled   bool // by the near one
}

// changed is the error of data that is not what the far end has sent.
func (e ends) changed() error {
	far, _, _ := strings.Cut(e.far, "/") // without the purpose
	near, _, _ := strings.Cut(e.near, "/")
	return fmt.Errorf("what %s sent to %s was %w", far, near, ErrChanged)
}

func (c Config) protect(ctx context.Context, conn net.Conn, p protection, between ends) (net.Conn, error) {
	switch p {
	case bare:
		return conn, nil
	case checksum:
		return newSummed(conn, between), nil
	case encrypted:
		return encrypt(ctx, conn, c.Key, between.dialled)
	}
	return nil, fmt.Errorf("unknown protection %#02x", byte(p))
}

// sameHost reports whether both ends of a connection have one address, or are on the
// loopback interface.
func sameHost(conn net.Conn) bool {
	near, ok := conn.LocalAddr().(*net.TCPAddr)
	far, too := conn.RemoteAddr().(*net.TCPAddr)
	return ok && too && (near.IP.Equal(far.IP) || near.IP.IsLoopback() && far.IP.IsLoopback())
}

// bound makes conn fail after ctx has ended, or after setupTime. release removes the
// deadline.
func bound(ctx context.Context, conn net.Conn) (release func()) {
	conn.SetDeadline(time.Now().Add(setupTime)) // a closed conn fails at its first use
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	return func() {
		if stop() {
			conn.SetDeadline(time.Time{})
		}
	}
}
