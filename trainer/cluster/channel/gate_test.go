package channel

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
)

// Connections that send nothing reach the limit of unproved ones. A peer from
// another address must get in at once, a peer from the same address after a
// moment.
func TestSilentConnectionsDoNotBlockPeers(t *testing.T) {
	const limit = 3
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := NewGate(Config{Key: cluster.PeerKey([]byte("secret"), 0)}, func(string) string { return "agent:0" })
	g.limit = limit
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	defer ln.Close()
	refused, gated := make(chan error, 16), g.Listener(ln)
	wg.Go(func() {
		for {
			conn, err := gated.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				if _, _, err := g.Accept(ctx, conn); err != nil {
					refused <- err
				}
				conn.Close()
			})
		}
	})
	for range 2 * limit {
		if conn, err := net.Dial("tcp", ln.Addr().String()); err == nil { // an error means that the gate has refused the connection
			defer conn.Close()
		}
	}
	for range limit {
		<-refused
	}
	prove := func(from string) error {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		conn, err := d.DialContext(ctx, "tcp", ln.Addr().String())
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = Dial(ctx, conn, g.config, "agent:1", "agent:0")
		return err
	}
	if err := prove("127.0.0.2"); err != nil {
		t.Errorf("from another address: %v", err)
	}
	err = prove("127.0.0.1")
	for end := time.Now().Add(8 * time.Second); err != nil && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		err = prove("127.0.0.1") // retry for less than the 10 s after which silent connections time out
	}
	if err != nil {
		t.Errorf("from the crowd's address: %v", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := len(g.unproved); n > limit {
		t.Errorf("%d have places", n)
	}
}

// fakeConn is a fake connection that records whether the Gate has closed it.
type fakeConn struct {
	net.Conn
	from   string
	closed bool
}

func (p *fakeConn) RemoteAddr() net.Addr { return addr(p.from) }
func (p *fakeConn) Close() error         { p.closed = true; return nil }

type addr string

func (a addr) Network() string { return "tcp" }
func (a addr) String() string  { return string(a) }

func TestGateClosesConnectionsOfTheBusiestAddress(t *testing.T) {
	const limit = 10
	for name, c := range map[string]struct {
		crowd func(i int) string // returns the address of the i-th connection of the attacker
		later time.Duration      // pause after which the attacker opens more connections
		stays bool
	}{
		"from another address":               {func(i int) string { return fmt.Sprintf("10.0.0.2:%d", i) }, time.Hour, true},
		"from the same address":              {func(i int) string { return fmt.Sprintf("10.0.0.1:%d", i) }, gracePeriod - 1, true},
		"from the same address, much later":  {func(i int) string { return fmt.Sprintf("10.0.0.1:%d", i) }, gracePeriod, false},
		"from many addresses":                {func(i int) string { return fmt.Sprintf("[fd00::%x]:9", i) }, gracePeriod - 1, true},
		"from many addresses, much later":    {func(i int) string { return fmt.Sprintf("[fd00::%x]:9", i) }, gracePeriod, false},
		"from two addresses, and much later": {func(i int) string { return fmt.Sprintf("10.0.0.%d:%d", 2+i%2, i) }, time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &Gate{limit: limit}
				honest := &fakeConn{from: "10.0.0.1:5"}
				all := []*fakeConn{honest}
				g.enter(honest)
				for i := range 100 {
					if i == 50 {
						time.Sleep(c.later)
					}
					one := &fakeConn{from: c.crowd(i)}
					all = append(all, one)
					g.enter(one)
				}
				open := 0
				for _, p := range all {
					if !p.closed {
						open++
					}
				}
				if open != limit || honest.closed == c.stays {
					t.Errorf("%d connections have a place, want %d; the honest one is closed: %v", open, limit, honest.closed)
				}
			})
		})
	}
}
