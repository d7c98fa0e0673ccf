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
// A server behaves as sshd does where plx depends on it: a command outlives its channel,
// exit statuses and signals are reported, and SSH_CONNECTION is set. It refuses terminals,
// forwarding and passwords, and it has no login shell and so no start-up files.
package embedded

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"net"
	"sync"

	gossh "golang.org/x/crypto/ssh"

	"github.com/plx-run/plx/launcher/ssh"
)

// maxHosts keeps the addresses within 127.0.0.0/24.
const maxHosts = 253

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
	key, err := newKey()
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
func Address(i int) string { return fmt.Sprintf("127.0.0.%d", i+2) }

// Configs returns how to dial each of the servers, in order of address.
func (c *Cluster) Configs() []ssh.Config {
	configs := make([]ssh.Config, len(c.servers))
	for i, s := range c.servers {
		address := s.listener.Addr().(*net.TCPAddr)
		configs[i] = ssh.Config{
			User: "plx", Host: address.IP.String(), Port: address.Port,
			Signers: []gossh.Signer{c.key}, HostKey: s.key.PublicKey(),
		}
	}
	return configs
}

// Kill ends server i and its connections at once, like the failure of a host.
func (c *Cluster) Kill(i int) { c.servers[i].close() }

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

func newKey() (gossh.Signer, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	return gossh.NewSignerFromKey(private)
}
