// Package embedded runs SSH servers inside this process, on 127.0.0.2,
// 127.0.0.3 and so on. A launch without a host list uses them as its hosts, so
// that it takes the same code path as a launch on remote hosts.
//
//	cluster, err := embedded.Start(ctx, 2)
//	if err != nil {
//		return err
//	}
//	defer cluster.Close()
//	client, err := ssh.Dial(ctx, cluster.Configs()[0])
//
// Start creates keys that are kept only in memory, so that no other user can
// log in. Commands run as the user of this process, in the user's home
// directory and with this process's environment.
//
// Package sshserver implements the servers.
package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"github.com/plx-run/plx/launcher/ssh"
	"github.com/plx-run/plx/launcher/sshserver"
)

// maxHosts is the largest number of embedded hosts on one machine.
const maxHosts = 512

// Cluster is a set of SSH servers in this process. Its methods may be called
// from several goroutines at once.
type Cluster struct {
	servers []*server
	key     gossh.Signer // private key of the client; the servers accept no other key
}

// Start starts n SSH servers on the addresses from 127.0.0.2 upward, each on a
// free port. Canceling ctx aborts only the start; Close stops the servers.
func Start(ctx context.Context, n int) (*Cluster, error) {
	if n < 1 || n > maxHosts {
		return nil, fmt.Errorf("embedded cluster: %d hosts, want 1 to %d", n, maxHosts)
	}
	key, err := ssh.GenerateKey()
	if err != nil {
		return nil, fmt.Errorf("embedded cluster: make a key: %w", err)
	}
	c := &Cluster{key: key}
	for i := range n {
		s, err := startServer(ctx, Address(i), key.PublicKey())
		if err != nil {
			_ = c.Close() // ignore the error, because the failed start is reported
			return nil, fmt.Errorf("embedded cluster: %w", err)
		}
		c.servers = append(c.servers, s)
	}
	return c, nil
}

// Address returns the IP address of server i of a cluster, counted from 0.
func Address(i int) string { return fmt.Sprintf("127.0.%d.%d", (i+2)>>8, (i+2)&255) }

// dialTime is the connection timeout for embedded servers. It is longer than
// for remote hosts. A late reply of an embedded server only means that this
// machine is overloaded, for example when a hundred embedded hosts end a job.
const dialTime = time.Minute

// Configs returns the SSH client configuration for each server, in order of
// address.
func (c *Cluster) Configs() []ssh.Config {
	configs := make([]ssh.Config, len(c.servers))
	for i, s := range c.servers {
		address := s.listener.Addr().(*net.TCPAddr)
		configs[i] = ssh.Config{
			User: "plx", Host: address.IP.String(), Port: address.Port,
			Signers: []gossh.Signer{c.key}, HostKey: s.key.PublicKey(), DialTimeout: dialTime,
		}
	}
	return configs
}

// Close stops the servers and closes their connections. Like sshd, it does not
// kill processes that commands started: it closes their streams, and this
// process reaps them in the background. Close may be called repeatedly and
// returns within about 2 s.
func (c *Cluster) Close() error {
	var all sync.WaitGroup
	for _, s := range c.servers {
		all.Go(s.close)
	}
	all.Wait()
	return nil
}

const (
	maxConns  = 256             // maximum number of connections to one server, including those in handshake
	closeWait = 2 * time.Second // how long close waits for connections to end
)

// server is one embedded SSH server, which listens on one address.
type server struct {
	listener net.Listener
	key      gossh.Signer // the server's host key
	config   *gossh.ServerConfig

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	closed bool
	serves sync.WaitGroup // waits for the accept loop and all connections
}

// startServer starts an SSH server on a free port of ip. Only the owner of the
// key allowed can log in.
func startServer(ctx context.Context, ip string, allowed gossh.PublicKey) (*server, error) {
	key, err := ssh.GenerateKey()
	if err != nil {
		return nil, fmt.Errorf("make a host key: %w", err)
	}
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		return nil, err
	}
	s := &server{listener: listener, key: key, conns: map[net.Conn]struct{}{}}
	s.config = &gossh.ServerConfig{
		PublicKeyCallback: func(_ gossh.ConnMetadata, offered gossh.PublicKey) (*gossh.Permissions, error) {
			if !bytes.Equal(offered.Marshal(), allowed.Marshal()) {
				return nil, errors.New("unknown key")
			}
			return nil, nil
		},
	}
	s.config.AddHostKey(key)
	s.serves.Go(s.accept)
	return s, nil
}

func (s *server) accept() {
	for {
		conn, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // Accept failed, for example because too many files are open: retry after some connections have closed
			time.Sleep(50 * time.Millisecond)
			continue
		}
		if !s.admit(conn) {
			_ = conn.Close() // ignore the error, because the connection is rejected
			continue
		}
		s.serves.Go(func() {
			defer s.dismiss(conn)
			sshserver.Serve(conn, s.config)
		})
	}
}

// admit registers a new connection. It returns false if the server has too
// many connections or is closed.
func (s *server) admit(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.conns) >= maxConns {
		return false
	}
	s.conns[conn] = struct{}{}
	return true
}

func (s *server) dismiss(conn net.Conn) {
	_ = conn.Close() // ignore the error: the connection may already be closed
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, conn)
}

// close stops listening, closes all connections, and waits up to closeWait
// until their handlers have returned.
func (s *server) close() {
	s.mu.Lock()
	s.closed = true
	_ = s.listener.Close() // ignore the error: it means that the listener is already closed
	for conn := range s.conns {
		_ = conn.Close() // ignore the error: it means that conn is already closed
	}
	s.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		s.serves.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(closeWait):
	}
}
