// Package channel secures the connections between the tasks, and between the
// agents, of one job.
//
//	conn, err := channel.Dial(ctx, raw, channel.Config{Key: key}, "worker:1/holder", "ps:0/holder")
//	conn, peer, err := channel.Accept(ctx, raw, channel.Config{Key: key}, self)
//
// Both ends first prove to each other that they know the job's secret (package
// cluster). After the proof, one of these protects the connection:
//
//   - nothing, if both ends are on one host, so that no network is between them;
//   - a checksum of all data, by default. If a byte changes on the way, the connection fails with [ErrChanged]. The checksum detects faulty hardware, not an attacker;
//   - TLS 1.3, if Config.TLS is set, so that no third party can read or change data.
//
// The dialler sends its choice as one byte after the proof. An acceptor whose
// Config demands TLS refuses any other choice, unless the addresses show that
// both ends are on one host.
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

// ErrChanged is the error of Read if a checksum shows that the received data
// differs from the data that was sent.
var ErrChanged = errors.New("changed on its way: a checksum does not match")

// Config must be the same at both ends of a connection.
type Config struct {
	Key cluster.Key // secret key with which a task or agent proves that it belongs to the job
	TLS bool        // true if connections between different hosts are encrypted
}

// protection is how a connection is protected.
type protection byte

const (
	unprotected protection = 'b'
	checksum    protection = 'c'
	encrypted   protection = 't'
)

// setupTime is the maximum time for choosing the protection and for the TLS
// handshake, after the proof of the secret.
const setupTime = 10 * time.Second

// Dial secures a new connection to a peer. It proves the job's secret with
// [cluster.Dial] and then chooses the protection. After an error the caller
// must close conn.
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

// Accept secures a connection that another task or agent has dialled with
// [Dial]. It checks the proof with [cluster.Accept] and returns the dialler's
// name.
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

// choose returns the protection for a connection: none if both ends are on the
// same host, else TLS or a checksum.
func (c Config) choose(conn net.Conn) protection {
	switch {
	case sameHost(conn):
		return unprotected
	case c.TLS:
		return encrypted
	}
	return checksum
}

// ends are the names of both ends of a connection.
type ends struct {
	near, far string
	dialled   bool // true if this end (near) has dialled, false if the other end has
}

// changed returns the error for received data that differs from what the far
// end has sent.
func (e ends) changed() error {
	far, _, _ := strings.Cut(e.far, "/") // the peer's name without the part after "/", which is the connection's purpose
	near, _, _ := strings.Cut(e.near, "/")
	return fmt.Errorf("what %s sent to %s was %w", far, near, ErrChanged)
}

func (c Config) protect(ctx context.Context, conn net.Conn, p protection, between ends) (net.Conn, error) {
	switch p {
	case unprotected:
		return conn, nil
	case checksum:
		return newChecksummed(conn, between), nil
	case encrypted:
		return encrypt(ctx, conn, c.Key, between.dialled)
	}
	return nil, fmt.Errorf("unknown protection %#02x", byte(p))
}

// sameHost reports whether both ends of a connection are on one host: they
// have the same IP address, or both have loopback addresses.
func sameHost(conn net.Conn) bool {
	near, ok := conn.LocalAddr().(*net.TCPAddr)
	far, too := conn.RemoteAddr().(*net.TCPAddr)
	return ok && too && (near.IP.Equal(far.IP) || near.IP.IsLoopback() && far.IP.IsLoopback())
}

// bound sets a deadline: reads and writes of conn fail after ctx has ended, or
// after setupTime. The function it returns removes the deadline.
func bound(ctx context.Context, conn net.Conn) (release func()) {
	conn.SetDeadline(time.Now().Add(setupTime)) // the error is ignored: a closed conn also fails at its first read or write
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	return func() {
		if stop() {
			conn.SetDeadline(time.Time{})
		}
	}
}
