//go:build linux

package sockets

import (
	"context"
	"net"

	"github.com/plx-run/plx/envsync/fanout"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/cluster/channel"
)

// Relay makes the connections over which hosts pass files on to each other. It encrypts
// them: files that plx sends by SSH are nobody else's to read.
type Relay struct{}

// Listen opens a port for other hosts at r.Addr.
func (Relay) Listen(r fanout.Route) (net.Listener, error) {
	return Place{Addr: r.Addr, Low: r.Low, High: r.High}.ListenData()
}

// passing is the name of both ends of a connection.
const passing = "files"

// Secure is as in fanout.Network.
func (Relay) Secure(ctx context.Context, conn net.Conn, key fanout.Key, accepted bool) (net.Conn, error) {
	c := channel.Config{Key: cluster.Key(key), TLS: true}
	if !accepted {
		return channel.Dial(ctx, conn, c, passing, passing)
	}
	secure, _, err := channel.Accept(ctx, conn, c, func(string) string { return passing })
	return secure, err
}
