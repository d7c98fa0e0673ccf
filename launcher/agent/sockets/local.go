//go:build linux

package sockets

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

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
