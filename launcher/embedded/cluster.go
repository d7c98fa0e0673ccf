// Package embedded runs SSH servers inside this process, on 127.0.0.2,
// 127.0.0.3 and so on, so that a launch without hosts takes the same path as one
// with them.
//
//	cluster, err := embedded.Start(ctx, 2)
//	if err != nil {
//		return err
//	}
//	defer cluster.Close()
//	client, err := ssh.Dial(ctx, cluster.Configs()[0])
//
// Start makes the keys and keeps them in memory only, so nobody else can log in. Commands
// run as the user of this process, in its home and with its environment.
//
// Package sshserver says how a server behaves.
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

// maxHosts is what one machine may carry.
const maxHosts = 512

// Cluster is a set of servers. Its methods may be called from several
// goroutines at once.
type Cluster struct {
	servers []*server
	key     gossh.Signer // the only key that may log in
}

// Start listens on n addresses from 127.0.0.2 on, each at a port that is free.
// ctx bounds the start only; Close ends the servers.
func Start(ctx context.Context, n int) (*Cluster, error) {
	if n < 1 || n > maxHosts {
		return nil, fmt.Errorf("embedded cluster: %d hosts, want 1 to %d", n, maxHosts)
	}
	key, err := ssh.NewKey()
	if err != nil {
		return nil, fmt.Errorf("embedded cluster: make a key: %w", err)
	}
	c := &Cluster{key: key}
	for i := range n {
		s, err := startServer(ctx, Address(i), key.PublicKey())
		if err != nil {
			_ = c.Close() // the start is what failed
			return nil, fmt.Errorf("embedded cluster: %w", err)
		}
		c.servers = append(c.servers, s)
	}
	return c, nil
}

// Address returns the address of server i of a cluster.
func Address(i int) string { return fmt.Sprintf("127.0.%d.%d", (i+2)>>8, (i+2)&255) }

// dialTime is longer than for other hosts: no network is on the way, and if an answer is late
// this machine has too much to do, as when a hundred hosts of it end a job.
const dialTime = time.Minute

// Configs returns how to dial each of the servers, in order of address.
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

// Close ends the servers and their connections. Like sshd it leaves the processes that
// commands started: their streams end, and this process reaps them in the background.
// Close is idempotent and returns within about 2 s.
func (c *Cluster) Close() error {
	var all sync.WaitGroup
	for _, s := range c.servers {
		all.Go(s.close)
	}
	all.Wait()
	return nil
}

const (
	maxConns  = 256             // connections of one server, those in handshake included
	closeWait = 2 * time.Second // for the end of what close ended
)

// server is one listening address.
type server struct {
	listener net.Listener
	key      gossh.Signer // the server's host key
	config   *gossh.ServerConfig

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	closed bool
	serves sync.WaitGroup // the accept loop and the connections
}

// startServer serves on a free port of ip. Only the key allowed can log in.
func startServer(ctx context.Context, ip string, allowed gossh.PublicKey) (*server, error) {
	key, err := ssh.NewKey()
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
		if err != nil { // such as too many open files: wait until some are closed
			time.Sleep(50 * time.Millisecond)
			continue
		}
		if !s.admit(conn) {
			_ = conn.Close() // the error of a refused connection says nothing
			continue
		}
		s.serves.Go(func() {
			defer s.dismiss(conn)
			sshserver.Serve(conn, s.config)
		})
	}
}

// admit registers a connection, unless there are too many.
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
	_ = conn.Close() // it has ended, or must end
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, conn)
}

// close ends the listener and all connections.
func (s *server) close() {
	s.mu.Lock()
	s.closed = true
	_ = s.listener.Close() // fails only if it is closed
	for conn := range s.conns {
		_ = conn.Close() // fails only if it is closed
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
