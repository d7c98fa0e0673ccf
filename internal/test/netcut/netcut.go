// Package netcut cuts the network in tests.
//
// A proxy stands before an address and carries what comes to it:
//
//	v := netcut.New(t, addr) // others dial v.Addr() instead of addr
//	v.Shut()                // from now on nothing comes through
//
// Shut, it keeps connections open and lets nothing through, also not that one
// side hung up: as where a cable is cut, a host is gone or a process frozen,
// and not as where a process ends. It is never opened again.
package netcut

import (
	"net"
	"sync"
	"testing"
)

// Proxy carries connections to an address until it is shut.
type Proxy struct {
	ln       net.Listener
	to       string
	shut     chan struct{}
	once     sync.Once
	over     chan struct{} // the test has ended
	carrying sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn // both ends of each
	ended bool
}

// New returns an open proxy on the loopback interface. It goes with the test.
func New(t testing.TB, to string) *Proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	v := &Proxy{ln: ln, to: to, shut: make(chan struct{}), over: make(chan struct{})}
	v.carrying.Go(v.accept)
	t.Cleanup(v.end)
	return v
}

// Addr is where it listens.
func (v *Proxy) Addr() string { return v.ln.Addr().String() }

// Shut lets nothing through any more.
func (v *Proxy) Shut() { v.once.Do(func() { close(v.shut) }) }

func (v *Proxy) accept() {
	for {
		in, err := v.ln.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", v.to)
		if err != nil {
			in.Close()
			continue
		}
		if !v.keep(in, out) {
			return
		}
		v.carrying.Go(func() { v.carry(in, out) })
		v.carrying.Go(func() { v.carry(out, in) })
	}
}

// keep notes what end must close. It reports false, and closes it, after end.
func (v *Proxy) keep(conns ...net.Conn) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.conns = append(v.conns, conns...)
	if v.ended {
		v.hangUp()
	}
	return !v.ended
}

// carry passes bytes on, and that there are no more.
func (v *Proxy) carry(to, from net.Conn) {
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		select {
		case <-v.shut:
			<-v.over
			return
		default:
		}
		if _, failed := to.Write(b[:n]); err != nil || failed != nil {
			to.Close()
			from.Close()
			return
		}
	}
}

// hangUp needs v.mu.
func (v *Proxy) hangUp() {
	for _, c := range v.conns {
		c.Close() // it may be closed already
	}
}

// end waits until nothing is left.
func (v *Proxy) end() {
	v.mu.Lock()
	v.ended = true
	v.ln.Close() // tests end with it
	v.hangUp()
	v.mu.Unlock()
	close(v.over)
	v.carrying.Wait()
}
