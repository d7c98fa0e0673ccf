package fanout

import (
	"context"
	"crypto/sha256"
	"net"
)

// Key is the random secret of a Group. A host must prove that it knows the key
// before another host sends it the stream.
type Key [sha256.Size]byte

// Route is the launching machine's instruction to a host: where to get the
// stream, and whether to forward it to other hosts.
type Route struct {
	From string `json:"from,omitempty"` // host:port to download the stream from; empty: the launching machine writes the stream to standard input
	Key  Key    `json:"key"`            // secret of the Group
	Pass bool   `json:"pass,omitempty"` // this host must open a port and forward the stream to other hosts
	Addr string `json:"addr,omitempty"` // address, without a port, on which this host listens for other hosts; empty unless Pass is true
	// Low and High are the first and last port on which this host may listen.
	// 0 and 0 mean any port.
	Low  int `json:"low,omitempty"`
	High int `json:"high,omitempty"`
}

// Network opens and secures the connections between hosts. Its implementation
// decides about encryption and authentication.
type Network interface {
	// Listen opens a port at address r.Addr, within r.Low to r.High, for
	// connections from other hosts.
	Listen(r Route) (net.Listener, error)
	// Secure encrypts a new connection. It returns an error unless the peer
	// proves before ctx ends that it knows key. accepted is true for a
	// connection that the peer dialed. The caller closes conn.
	Secure(ctx context.Context, conn net.Conn, key Key, accepted bool) (net.Conn, error)
}
