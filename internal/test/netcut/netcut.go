// Package netcut simulates a broken network in tests.
//
// A proxy forwards connections to an address until it is shut:
//
//	v := netcut.New(t, addr) // clients dial v.Addr() instead of addr
//	v.Shut()                // from now on the proxy forwards nothing
//
// After Shut, the proxy keeps connections open but forwards nothing, not even
// that one side has closed its end. To the peers this looks like a cut cable,
// a lost host or a frozen process, not like a process that ended. A proxy
// cannot be reopened.
package netcut

import (
	"net"
	"sync"
	"testing"
)

// Proxy forwards connections to an address until it is shut.
type Proxy struct {
	ln       net.Listener
	to       string
	shut     chan struct{}
	once     sync.Once
	over     chan struct{} // closed at the end of the test, when the proxy stops
	carrying sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn // connections to the client and to the server, for every client; guarded by mu
	ended bool
}

// New starts a proxy on the loopback interface that forwards to an address.
// The end of the test stops it.
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

// Addr is the address on which the proxy listens.
func (v *Proxy) Addr() string { return v.ln.Addr().String() }

// Shut makes the proxy forward nothing more.
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

// keep registers connections that the method end must close. If end was
// already called, keep closes them and returns false.
func (v *Proxy) keep(conns ...net.Conn) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.conns = append(v.conns, conns...)
	if v.ended {
		v.hangUp()
	}
	return !v.ended
}

// carry copies bytes from the connection from to the connection to until
// either is closed, then closes both. After Shut, it stops copying and leaves
// both open.
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

// hangUp closes all connections. The caller holds v.mu.
func (v *Proxy) hangUp() {
	for _, c := range v.conns {
		c.Close() // an error only means that the connection is closed already
	}
}

// end closes the listener and all connections, and waits for the proxy's
// goroutines.
func (v *Proxy) end() {
	v.mu.Lock()
	v.ended = true
	v.ln.Close() // an error of Close does not matter at the end of a test
	v.hangUp()
	v.mu.Unlock()
	close(v.over)
	v.carrying.Wait()
}
