//go:build linux

package sockets

import (
	"context"
	"net"

	"github.com/plx-run/plx/envsync/fanout"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/cluster/channel"
)

// FanoutNetwork opens the connections over which hosts forward files to each other. It
// encrypts and authenticates them, because the files may be confidential.
type FanoutNetwork struct{}

// Listen opens the port at r.Addr at which other hosts connect to receive
// files.
func (FanoutNetwork) Listen(r fanout.Route) (net.Listener, error) {
	return ListenRange{Addr: r.Addr, Low: r.Low, High: r.High}.ListenData()
}

// passing is the name with which both ends of a connection authenticate
// themselves.
const passing = "files"

// Secure encrypts conn and authenticates both ends with key. It implements
// fanout.Network.
func (FanoutNetwork) Secure(ctx context.Context, conn net.Conn, key fanout.Key, accepted bool) (net.Conn, error) {
	c := channel.Config{Key: cluster.Key(key), TLS: true}
	if !accepted {
		return channel.Dial(ctx, conn, c, passing, passing)
	}
	secure, _, err := channel.Accept(ctx, conn, c, func(string) string { return passing })
	return secure, err
}
