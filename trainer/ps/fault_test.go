package ps

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/wire"
)

// blames wants err to be a PeerError about task that says what.
func blames(t *testing.T, err error, task cluster.Task, what string) {
	t.Helper()
	var peer *PeerError
	if !errors.As(err, &peer) || peer.Task != task || !strings.Contains(err.Error(), what) {
		t.Errorf("got %v, want %s to blame, and %q", err, task, what)
	}
}

func TestLostWorkerIsNamedToAll(t *testing.T) {
	c := newCluster(t, example(3), 2)
	clients, all := c.dial(t)
	for _, err := range step(clients, all, 0, 0.1) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range clients[1].links {
		l.conn.Close() // as when the process dies
	}
	clients[1].fail(errors.New("dead"))
	for rank, err := range step(clients, all, 1, 0.1) {
		if rank != 1 {
			blames(t, err, worker(1), "closed by the peer")
		}
	}
	for _, ended := range c.ended {
		blames(t, within(t, ended), worker(1), "connection lost")
	}
}

func TestLostServerIsNamed(t *testing.T) {
	c := newCluster(t, example(2), 2)
	clients, all := c.dial(t)
	go c.stop[1]()
	var errs []error
	for s := uint64(0); errs == nil || errs[0] == nil; s++ { // until it is noticed
		errs = step(clients, all, s, 0.1)
	}
	for _, err := range errs { // also whoever heard of it from the other server
		blames(t, err, cluster.Task{Role: cluster.PS, Index: 1}, c.addrs[1])
	}
}

// proxy carries connections to a server until it is frozen: then it keeps
// them open and lets nothing through, as a cut network does.
type proxy struct {
	ln     net.Listener
	frozen atomic.Bool
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	p := &proxy{ln: ln}
	go func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			t.Cleanup(func() { in.Close(); out.Close() })
			go p.carry(in, out)
			go p.carry(out, in)
		}
	}()
	return p
}

func (p *proxy) carry(to io.Writer, from io.Reader) {
	b := make([]byte, 4096)
	for {
		n, err := from.Read(b)
		if p.frozen.Load() {
			select {}
		}
		if err != nil {
			return
		}
		to.Write(b[:n])
	}
}

// A peer behind a cut network is given up within the declared silence, by
// both sides, and named by both.
func TestSilentPeerEndsTheStep(t *testing.T) {
	d := example(2)
	d.SilenceMillis = 1500
	c := newCluster(t, d, 1)
	p := newProxy(t, c.addrs[0])
	c.addrs[0] = p.ln.Addr().String() // both workers
	clients, all := c.dial(t)
	for _, err := range step(clients, all, 0, 0.1) {
		if err != nil {
			t.Fatal(err)
		}
	}
	p.frozen.Store(true)
	began := time.Now()
	for _, err := range step(clients, all, 1, 0.1) {
		blames(t, err, cluster.Task{Role: cluster.PS}, "silent")
	}
	err := within(t, c.ended[0])
	var peer *PeerError
	if !errors.As(err, &peer) || peer.Task.Role != cluster.Worker || !errors.Is(err, wire.ErrSilent) {
		t.Errorf("server: %v", err)
	}
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("took %v", took)
	}
}

// Garbage on the data port, before and during training, changes nothing.
func TestGarbageChangesNothing(t *testing.T) {
	c := newCluster(t, example(2), 2)
	stop := make(chan struct{})
	var throwing sync.WaitGroup
	var thrown atomic.Int64
	for i := range 4 {
		throwing.Go(func() {
			for k := 0; ; k++ {
				select {
				case <-stop:
					return
				default:
					throwGarbage(c.addrs[k%2], i+k)
					thrown.Add(1)
				}
			}
		})
	}
	defer throwing.Wait()
	defer close(stop)
	clients, all := c.dial(t)
	n := newNaive(c.d, all[0])
	for s := uint64(0); s < 50 || thrown.Load() < 200; s++ {
		for rank, err := range step(clients, all, s, 0.05) {
			if err != nil {
				t.Fatalf("worker:%d: %v", rank, err)
			}
		}
		n.step(all, 0.05)
		n.compare(t, all[1], 1)
	}
	leave(t, c, clients)
}

// throwGarbage connects and sends something that proves nothing.
func throwGarbage(addr string, which int) {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return // the server has ended
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(200 * time.Millisecond))
	noise := make([]byte, 4096)
	switch which % 4 {
	case 0:
		io.WriteString(conn, "GET / HTTP/1.1\r\n\r\n")
	case 1:
		rand.Read(noise)
		conn.Write(noise)
	case 2: // begins like a peer
		rand.Read(noise)
		conn.Write(append([]byte("plx-peer-1\n\x08worker:0\x04ps:0"), noise...))
	case 3:
		cluster.Dial(context.Background(), conn, cluster.PeerKey([]byte("guess"), 0), "worker:1", "ps:0")
	}
}

func TestStrangersAreRefused(t *testing.T) {
	for name, change := range map[string]func(c *ClientConfig){
		"wrong secret":     func(c *ClientConfig) { c.Key = cluster.PeerKey([]byte("other"), 0) },
		"other generation": func(c *ClientConfig) { c.Key = cluster.PeerKey([]byte("secret"), 1); c.Generation = 1 },
		"no such worker":   func(c *ClientConfig) { c.Self = worker(7) },
		"a server":         func(c *ClientConfig) { c.Self = cluster.Task{Role: cluster.PS, Index: 1} },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, example(1), 1)
			m := newMemory(c.d)
			config := c.config(0, m)
			change(&config)
			_, err := Dial(context.Background(), config)
			blames(t, err, cluster.Task{Role: cluster.PS}, c.addrs[0])
			clients, _ := c.dial(t) // the right one still gets in
			leave(t, c, clients)
		})
	}
}

func TestSecondOfAKindIsRefused(t *testing.T) {
	c := newCluster(t, example(1), 1)
	clients, all := c.dial(t)
	_, err := Dial(context.Background(), c.config(0, newMemory(c.d)))
	if err == nil || !strings.Contains(err.Error(), "already connected") {
		t.Errorf("got %v", err)
	}
	for _, err := range step(clients, all, 0, 0.1) {
		if err != nil {
			t.Fatal(err)
		}
	}
	leave(t, c, clients)
}

func TestDisagreementEndsTheStart(t *testing.T) {
	c := newCluster(t, example(3), 2)
	errs := make([]error, 3)
	var dialling sync.WaitGroup
	for rank := range errs {
		config := c.config(rank, newMemory(c.d))
		if rank == 2 {
			config.Declaration.Variables = append([]Variable(nil), c.d.Variables...)
			config.Declaration.Variables[1].Name = "bias"
		}
		dialling.Go(func() { _, errs[rank] = Dial(context.Background(), config) })
	}
	dialling.Wait()
	for _, err := range errs {
		blames(t, err, worker(2), `variable 1 is named "bias", not "b"`)
	}
}

func TestMissingWorkerIsNamed(t *testing.T) {
	d := example(3)
	d.StartMillis = 500
	c := newCluster(t, d, 1)
	errs := make(chan error, 2)
	for rank := range 2 {
		go func() {
			_, err := Dial(context.Background(), c.config(rank, newMemory(c.d)))
			errs <- err
		}()
	}
	for range 2 {
		blames(t, within(t, errs), worker(2), "no sign of [worker:2]")
	}
}

func TestUnreachableServerIsNamed(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close() // nobody listens there any more
	d := example(1)
	d.StartMillis = 300
	d.Pieces = Place(d.Variables, 1)
	m := newMemory(d)
	_, err = Dial(context.Background(), ClientConfig{Self: worker(0), Servers: []string{ln.Addr().String()},
		Declaration: d, Values: m.values, Gradients: m.gradients})
	blames(t, err, cluster.Task{Role: cluster.PS}, "not reached within 300ms")
}

func TestDifferentRatesAreRefused(t *testing.T) {
	c := newCluster(t, example(2), 1)
	clients, _ := c.dial(t)
	errs := make(chan error, 2)
	for rank, client := range clients {
		go func() {
			_, err := client.Step(context.Background(), 0.1+float64(rank), 0)
			errs <- err
		}()
	}
	for range clients {
		if err := within(t, errs); err == nil || !strings.Contains(err.Error(), "learning rate") {
			t.Errorf("got %v", err)
		}
	}
}

func TestLeavingEarlyIsAnError(t *testing.T) {
	c := newCluster(t, example(2), 1)
	clients, all := c.dial(t)
	for _, err := range step(clients, all, 0, 0.1) {
		if err != nil {
			t.Fatal(err)
		}
	}
	left := make(chan error, 1)
	go func() { left <- clients[1].Close() }()
	_, err := clients[0].Step(context.Background(), 0.1, 0)
	if err == nil || !strings.Contains(err.Error(), "every worker must take as many") {
		t.Errorf("got %v", err)
	}
	within(t, left)
}

func TestContextEndsAStep(t *testing.T) {
	c := newCluster(t, example(2), 2)
	clients, _ := c.dial(t)
	ctx, cancel := context.WithCancelCause(context.Background())
	got := make(chan error, 1)
	go func() { _, err := clients[0].Step(ctx, 0.1, 0); got <- err }() // worker:1 never comes
	why := errors.New("told to stop")
	cancel(why)
	if err := within(t, got); !errors.Is(err, why) && !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := clients[0].Step(context.Background(), 0.1, 0); err == nil {
		t.Error("a step after a broken one")
	}
}

// A proven peer may send anything: it is refused in words, and nothing that
// it sent is applied.
func TestBadFramesEndTheTraining(t *testing.T) {
	step0 := wire.Frame{Header: wire.Header{Kind: wire.Step}, Payload: make([]byte, stepSize)}
	push := func(variable uint32, size int, step uint64) wire.Frame {
		return wire.Frame{Header: wire.Header{Kind: wire.Push, Variable: variable, Step: step}, Payload: make([]byte, size)}
	}
	for name, c := range map[string]struct {
		frames []wire.Frame
		want   string
	}{
		"unasked gradient":  {[]wire.Frame{push(0, 60, 0)}, "0 steps were begun"},
		"early gradient":    {[]wire.Frame{step0, push(0, 60, 1)}, "gradient of step 1"},
		"gradient twice":    {[]wire.Frame{step0, push(0, 60, 0), push(0, 60, 0)}, "came twice"},
		"unknown variable":  {[]wire.Frame{step0, push(9, 60, 0)}, "not kept here"},
		"too long":          {[]wire.Frame{step0, push(0, 64, 0)}, "of 64 bytes, want 60"},
		"too short":         {[]wire.Frame{step0, push(0, 0, 0)}, "of 0 bytes, want 60"},
		"wrong step":        {[]wire.Frame{{Header: wire.Header{Kind: wire.Step, Step: 1}, Payload: make([]byte, stepSize)}}, "begins step 1 during step 0"},
		"short step":        {[]wire.Frame{{Header: wire.Header{Kind: wire.Step}}}, "step frame of 0 bytes"},
		"declared again":    {[]wire.Frame{{Header: wire.Header{Kind: wire.Declare}}}, "unexpected declare"},
		"goodbye in a step": {[]wire.Frame{step0, {Header: wire.Header{Kind: wire.Bye}}}, "goodbye during step"},
	} {
		t.Run(name, func(t *testing.T) {
			cl := newCluster(t, example(2), 1)
			clients, _ := cl.dial(t)
			if err := clients[1].links[0].conn.Send(c.frames...); err != nil {
				t.Fatal(err)
			}
			blames(t, within(t, cl.ended[0]), worker(1), c.want)
			_, err := clients[0].Step(context.Background(), 0.1, 0)
			blames(t, err, worker(1), c.want)
		})
	}
}

// FuzzPeer lets a proven worker send any bytes as its declaration and after.
func FuzzPeer(f *testing.F) {
	f.Add([]byte(`{"workers":1}`), []byte{})
	f.Add([]byte(`{"workers":1,"start_ms":1,"silence_ms":1,"optimizer":{"rule":"sgd"}}`), make([]byte, wire.HeaderSize))
	f.Add([]byte(`{"workers":1,"start_ms":9,"silence_ms":9,"optimizer":{"rule":"sgd"},"variables":[{"name":"a","dtype":"float32","shape":[2]}],"pieces":[{"count":2}]}`), []byte{1})
	f.Fuzz(func(t *testing.T, declaration, rest []byte) {
		if len(declaration) > 4096 || strings.Contains(string(declaration), "000000") {
			return // sizes that make the machine, not the program, give up
		}
		c := newCluster(t, example(1), 1)
		conn, err := net.Dial("tcp", c.addrs[0])
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := cluster.Dial(context.Background(), conn, c.key, "worker:0", "ps:0"); err != nil {
			t.Fatal(err)
		}
		w := wire.NewConn(conn, 0, 10*time.Second)
		w.Send(wire.Frame{Header: wire.Header{Kind: wire.Declare}, Payload: declaration}) // may be refused half way
		conn.Write(rest)
		w.Close()
		within(t, c.ended[0]) // whatever it was, the server ends
	})
}
