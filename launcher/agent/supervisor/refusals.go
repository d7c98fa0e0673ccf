//go:build linux

package supervisor

import (
	"log"
	"net"
	"sync/atomic"
)

// refusals logs connections that were refused: the first ones, and then one whenever their
// number has doubled. So nobody fills the host's disk by connecting.
type refusals struct {
	n atomic.Int64
}

// firstRefusals is how many of them have a line each.
const firstRefusals = 20

// add logs that a connection was refused. Any goroutine may call it.
func (r *refusals) add(to *log.Logger, from net.Addr, why error) {
	switch n := r.n.Add(1); {
	case n <= firstRefusals:
		to.Printf("connection from %s refused: %v", from, why)
	case n&(n-1) == 0:
		to.Printf("%d connections were refused until now, the last from %s: %v", n, from, why)
	}
}
