//go:build linux

package supervisor

import (
	"log"
	"net"
	"sync/atomic"
)

// refusals logs refused connections: each of the first 20, and later one
// whenever their total has doubled. So an attacker cannot fill the disk by
// connecting.
type refusals struct {
	n atomic.Int64
}

// firstRefusals is the number of refused connections that are logged one by
// one.
const firstRefusals = 20

// add logs a refused connection. It is safe for concurrent use.
func (r *refusals) add(to *log.Logger, from net.Addr, why error) {
	switch n := r.n.Add(1); {
	case n <= firstRefusals:
		to.Printf("connection from %s refused: %v", from, why)
	case n&(n-1) == 0:
		to.Printf("%d connections were refused until now, the last from %s: %v", n, from, why)
	}
}
