package ssh_test

import (
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

// proxy is a TCP proxy between client and server that can freeze and cut
// connections.
type proxy struct {
	listener net.Listener
	mu       sync.Mutex
	conns    []net.Conn
	thaw     chan struct{} // nil while bytes flow; closed to let them flow again
	held     atomic.Int32  // how often bytes had to wait
	all      sync.WaitGroup
}

func startProxy(t *testing.T, to string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener}
	p.all.Go(func() { p.accept(to) })
	t.Cleanup(func() {
		_ = listener.Close() // tests do not close it
		p.unfreeze()
		p.cut()
		p.all.Wait()
	})
	return p
}

func (p *proxy) port() int { return p.listener.Addr().(*net.TCPAddr).Port }

func (p *proxy) accept(to string) {
	for {
		from, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		onward, err := net.Dial("tcp", to)
		if err != nil {
			_ = from.Close() // there is no server
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, from, onward)
		p.mu.Unlock()
		p.all.Go(func() { p.carry(from, onward) })
		p.all.Go(func() { p.carry(onward, from) })
	}
}

// carry copies bytes in one direction, and waits while the proxy is frozen.
func (p *proxy) carry(from, to net.Conn) {
	defer func() { _ = from.Close(); _ = to.Close() }() // if one connection ends, close both
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		thaw := p.thaw
		p.mu.Unlock()
		if thaw != nil {
			p.held.Add(1)
			<-thaw
		}
		if err != nil {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// cut resets all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range p.conns {
		if tcp, is := conn.(*net.TCPConn); is {
			_ = tcp.SetLinger(0) // makes Close send a TCP reset; an error for a closed connection does not matter
		}
		_ = conn.Close()
	}
	p.conns = nil
}

// freeze lets nothing through, silently.
func (p *proxy) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.thaw == nil {
		p.thaw = make(chan struct{})
	}
}

func (p *proxy) unfreeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.thaw != nil {
		close(p.thaw)
		p.thaw = nil
	}
}

func (p *proxy) knownAs() string { return "[127.0.0.1]:" + strconv.Itoa(p.port()) }
