package client

import (
	"math"
	"net"
	"sync"
	"testing"
)

// fuse is a proxy between one worker and its servers. After it has forwarded a
// given number of bytes from the worker, it closes all connections, perhaps in
// the middle of a frame, as if the worker's process were killed.
type fuse struct {
	mu    sync.Mutex
	left  int64
	conns []net.Conn
	blown chan struct{}
}

// newFuse returns a proxy, and the addresses that the worker must dial instead
// of addrs.
func newFuse(t *testing.T, addrs ...string) (*fuse, []string) {
	t.Helper()
	f := &fuse{left: math.MaxInt64, blown: make(chan struct{})}
	var at []string
	var carrying sync.WaitGroup
	var doors []net.Listener
	for _, to := range addrs {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		at, doors = append(at, ln.Addr().String()), append(doors, ln)
		carrying.Go(func() {
			for in, err := ln.Accept(); err == nil; in, err = ln.Accept() {
				out, err := net.Dial("tcp", to)
				if err != nil {
					in.Close()
					continue
				}
				f.mu.Lock()
				f.conns = append(f.conns, in, out)
				f.mu.Unlock()
				carrying.Go(func() { f.carry(out, in, f.pay) })
				carrying.Go(func() { f.carry(in, out, func(n int) int { return n }) })
			}
		})
	}
	t.Cleanup(func() {
		for _, ln := range doors {
			ln.Close()
		}
		f.blow()
		carrying.Wait()
	})
	return f, at
}

// arm sets the number of bytes that the proxy still forwards.
func (f *fuse) arm(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left = n
}

// pay returns how many of the next n bytes the proxy may forward.
func (f *fuse) pay(n int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n = int(min(int64(n), f.left))
	f.left -= int64(n)
	return n
}

func (f *fuse) carry(to, from net.Conn, pay func(int) int) {
	b := make([]byte, 2<<10) // less than most frames
	for {
		n, err := from.Read(b)
		passes := pay(n)
		to.Write(b[:passes]) // a failed write also makes the next read fail
		if passes < n {
			f.blow()
			return
		}
		if err != nil {
			to.Close()
			from.Close()
			return
		}
	}
}

func (f *fuse) blow() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left = 0
	select {
	case <-f.blown:
	default:
		close(f.blown)
	}
	for _, c := range f.conns {
		c.Close()
	}
}
