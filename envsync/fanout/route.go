package fanout

import (
	"context"
	"crypto/sha256"
	"net"
)

// Key is the secret of a Group. A host proves it to the host from which it takes the
// stream.
type Key [sha256.Size]byte

// Route tells a host from where it gets a stream, and whether others get it from there.
type Route struct {
	From string `json:"from,omitempty"` // host:port of the host to dial; empty: the sender sends it
	Key  Key    `json:"key"`            // of the Group
	Pass bool   `json:"pass,omitempty"` // other hosts may take the stream from this one
	Addr string `json:"addr,omitempty"` // with Pass: this host's address for them, without a port
	// Low and High are the first and last port that may be used; 0 and 0: any.
	Low  int `json:"low,omitempty"`
	High int `json:"high,omitempty"`
}

// Network makes the connections between hosts.
type Network interface {
	// Listen opens a port for others at r.Addr.
	Listen(r Route) (net.Listener, error)
	// Secure makes a new connection private. It returns an error unless the other end
	// proves the key until ctx ends. accepted tells that the other end dialled. The
	// caller closes conn.
	Secure(ctx context.Context, conn net.Conn, key Key, accepted bool) (net.Conn, error)
}
