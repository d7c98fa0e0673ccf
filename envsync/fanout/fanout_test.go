package fanout

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// loopback is a Network on the loopback interface. Secure sends the key
// unencrypted.
type loopback struct {
	deaf  bool                 // Listen fails
	dials func(net.Conn) error // called with each connection that a host has dialed; its error breaks the connection; nil: not called
}

func (l loopback) Listen(r Route) (net.Listener, error) {
	if l.deaf {
		return nil, errors.New("no port")
	}
	return net.Listen("tcp", net.JoinHostPort(r.Addr, "0"))
}

func (l loopback) Secure(ctx context.Context, conn net.Conn, key Key, accepted bool) (net.Conn, error) {
	if !accepted && l.dials != nil {
		if err := l.dials(conn); err != nil {
			return nil, err
		}
	}
	deadline, _ := ctx.Deadline()
	conn.SetDeadline(deadline)
	defer conn.SetDeadline(time.Time{})
	if !accepted {
		_, err := conn.Write(key[:])
		return conn, err
	}
	var got Key
	if _, err := io.ReadFull(conn, got[:]); err != nil || got != key {
		return nil, fmt.Errorf("wrong key: %w", err)
	}
	return conn, nil
}

// testHost is a host that runs the receiving command.
type testHost struct {
	name    string
	network Network
	fail    int64        // the command fails after this number of bytes; 0: it does not fail
	got     bytes.Buffer // the stream
	taken   atomic.Int64 // number of bytes that the sender has uploaded to this host
}

var errBroken = errors.New("broken")

// run is the command.
func (h *testHost) run(ctx context.Context, in io.Reader, out io.Writer, dir string) error {
	part, err := Receive(ctx, bufio.NewReader(in), out, dir, h.network)
	if err != nil {
		return err
	}
	defer part.Close()
	if h.fail > 0 {
		_, _ = io.CopyN(&h.got, part, h.fail)
		return errBroken
	}
	if _, err := io.Copy(&h.got, part); err != nil {
		return err
	}
	return part.Finish()
}

// send sends the stream of g to all hosts, as package tree does, and returns
// the error of each host.
func send(t *testing.T, g *Group, hosts []*testHost, patience time.Duration) []error {
	t.Helper()
	errs := make([]error, len(hosts))
	var all errgroup.Group
	for i, h := range hosts {
		all.Go(func() error {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			in, stdin := io.Pipe()
			stdout, out := io.Pipe()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				err := h.run(ctx, io.TeeReader(in, counter{&h.taken}), out, t.TempDir())
				out.CloseWithError(err)
				in.CloseWithError(io.ErrClosedPipe)
			}()
			stop := context.AfterFunc(ctx, func() { out.CloseWithError(context.Cause(ctx)); in.CloseWithError(io.ErrClosedPipe) })
			defer stop()
			errs[i] = g.Send(ctx, Host{Name: h.name, Addr: "127.0.0.1"}, stdin, stdout, Watch{
				Fail: cancel, Progress: func(int64) {}, Timeout: patience, TimeoutErr: errors.New("silent"),
			})
			stdin.Close()
			if errs[i] != nil {
				cancel(errs[i])
			}
			<-ended
			return nil
		})
	}
	all.Wait()
	return errs
}

type counter struct{ n *atomic.Int64 }

func (c counter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

// content returns a Spool with random bytes. Half of them are written before
// it returns, the rest by a goroutine.
func content(t *testing.T, size int) (*Spool, []byte) {
	t.Helper()
	s, err := NewSpool(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	want := make([]byte, size)
	random := rand.NewChaCha8([32]byte{1})
	random.Read(want)
	if _, err := s.Write(want[:size/2]); err != nil {
		t.Fatal(err)
	}
	go func() {
		for part := range slices.Chunk(want[size/2:], 100_000) {
			if _, err := s.Write(part); err != nil {
				s.End(err)
				return
			}
		}
		s.End(nil)
	}()
	t.Cleanup(func() { s.Close() })
	return s, want
}

func newHosts(n int, network Network) (hosts []*testHost) {
	for i := range n {
		hosts = append(hosts, &testHost{name: fmt.Sprint("h", i+1), network: network})
	}
	return hosts
}

// The sender uploads the stream once for any number of hosts.
func TestSenderUploadsTheStreamOnce(t *testing.T) {
	for _, n := range []int{1, 2, 3, 7, 20} {
		spool, want := content(t, 512<<10)
		hosts, g := newHosts(n, loopback{}), NewGroup(spool, n, false, 0, 0)
		if err := errors.Join(send(t, g, hosts, time.Minute)...); err != nil {
			t.Fatalf("%d hosts: %v", n, err)
		}
		sent := int64(0)
		for _, h := range hosts {
			sent += h.taken.Load()
			if !bytes.Equal(h.got.Bytes(), want) {
				t.Errorf("%d hosts: %s got other bytes", n, h.name)
			}
		}
		if most := int64(len(want)) + 64<<10 + int64(n)<<10; sent > most {
			t.Errorf("%d hosts: %d bytes were sent for %d", n, sent, len(want))
		}
		if lost := g.FailedLinks(); len(lost) > 0 {
			t.Errorf("%d hosts: lost %v", n, lost)
		}
	}
}

// Hosts that cannot listen or dial receive the whole stream from the sender,
// and so do all hosts with direct.
func TestSenderUploadsWhatHostsCannotForward(t *testing.T) {
	refuse := func(net.Conn) error { return errors.New("no way there") }
	for name, test := range map[string]struct {
		network Network
		direct  bool
		lost    string
	}{
		"deaf":        {network: loopback{deaf: true}},
		"direct":      {network: loopback{}, direct: true},
		"unreachable": {network: loopback{dials: refuse}, lost: `could not take files from 127.0.0.1:`},
	} {
		t.Run(name, func(t *testing.T) {
			spool, want := content(t, 1<<20)
			hosts, g := newHosts(6, test.network), NewGroup(spool, 6, test.direct, 0, 0)
			if err := errors.Join(send(t, g, hosts, time.Minute)...); err != nil {
				t.Fatal(err)
			}
			for _, h := range hosts {
				if !bytes.Equal(h.got.Bytes(), want) || h.taken.Load() < int64(len(want)) {
					t.Errorf("%s got %d bytes, %d of them from the sender", h.name, h.got.Len(), h.taken.Load())
				}
			}
			lost := strings.Join(g.FailedLinks(), "\n")
			if test.lost == "" && lost != "" || !strings.Contains(lost, test.lost) {
				t.Errorf("lost: %s, want %s", lost, test.lost)
			}
		})
	}
}

// A host that fails in the middle of the stream fails alone: the sender sends
// the rest to the hosts that it has served.
func TestFailedHostDoesNotFailItsReceivers(t *testing.T) {
	for victim := range 4 {
		spool, want := content(t, 1<<20)
		hosts, g := newHosts(9, loopback{}), NewGroup(spool, 9, false, 0, 0)
		hosts[victim].fail = 128 << 10
		for i, err := range send(t, g, hosts, time.Minute) {
			switch {
			case i == victim && !errors.Is(err, errBroken):
				t.Errorf("the victim %d: %v", victim, err)
			case i != victim && (err != nil || !bytes.Equal(hosts[i].got.Bytes(), want)):
				t.Errorf("victim %d: host %d: %v, %d bytes", victim, i, err, hosts[i].got.Len())
			}
		}
	}
}

// If the stream ends with an error, no host takes it for complete.
func TestIncompleteStreamFailsAllHosts(t *testing.T) {
	spool, err := NewSpool(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer spool.Close()
	if _, err := spool.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	spool.End(errBroken)
	hosts, g := newHosts(3, loopback{}), NewGroup(spool, 3, true, 0, 0)
	for i, err := range send(t, g, hosts, time.Minute) {
		if !errors.Is(err, errBroken) {
			t.Errorf("host %d: %v", i, err)
		}
	}
}

// stuck is a Network whose Listen never returns.
type stuck struct{ loopback }

func (stuck) Listen(Route) (net.Listener, error) { select {} }

// Send fails for a host that reports nothing for a while.
func TestHostThatReportsNothingFails(t *testing.T) {
	spool, want := content(t, 1<<20)
	hosts, g := newHosts(3, loopback{deaf: true}), NewGroup(spool, 3, false, 0, 0)
	hosts[0].network = stuck{}
	// The sender asks every host except the last to open a port, so the stuck
	// one must not come last.
	errs := send2(t, g, hosts)
	if errs[0] == nil || !strings.Contains(errs[0].Error(), "silent") {
		t.Errorf("the stuck host: %v", errs[0])
	}
	for i, h := range hosts[1:] {
		if errs[i+1] != nil || !bytes.Equal(h.got.Bytes(), want) {
			t.Errorf("host %d: %v", i+1, errs[i+1])
		}
	}
}

// send2 is like send, but starts the first host before the others and does not
// wait for it.
func send2(t *testing.T, g *Group, hosts []*testHost) []error {
	errs := make([]error, len(hosts))
	in, stdin := io.Pipe()
	stdout, out := io.Pipe()
	go func() { out.CloseWithError(hosts[0].run(t.Context(), in, out, t.TempDir())) }()
	first := make(chan error)
	go func() {
		ctx, cancel := context.WithCancelCause(t.Context())
		fail := func(err error) { cancel(err); out.CloseWithError(err); in.CloseWithError(io.ErrClosedPipe) }
		first <- g.Send(ctx, Host{Name: "h1", Addr: "127.0.0.1"}, stdin, stdout, Watch{Fail: fail, Progress: func(int64) {}, Timeout: time.Second, TimeoutErr: errors.New("silent")})
	}()
	if err := g.await(t.Context(), func() bool { return g.opening == 1 }); err != nil {
		t.Fatal(err)
	}
	copy(errs[1:], send(t, g, hosts[1:], time.Minute))
	errs[0] = <-first
	return errs
}

// A peer that does not know the key receives nothing, and does not block
// others.
func TestPeerWithWrongKeyGetsNothing(t *testing.T) {
	spool, _ := content(t, 1<<20)
	p := &Receiver{network: loopback{}, route: Route{Key: Key{1}}, spool: spool, out: io.Discard}
	var err error
	if p.port, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	p.ctx, p.cancel = context.WithCancel(t.Context())
	p.running.Go(p.serve)
	defer func() { p.cancel(); p.port.Close(); p.running.Wait() }()
	conn, err := net.Dial("tcp", p.port.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(make([]byte, len(Key{}))); err != nil {
		t.Fatal(err)
	}
	conn.SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := conn.Read(make([]byte, 1)); n > 0 || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a stranger got %d bytes, %v", n, err)
	}
}

func FuzzReceive(f *testing.F) {
	route, _ := json.Marshal(Route{})
	frame := binary.LittleEndian.AppendUint32(nil, 3)
	f.Add(append(route, "\n\x03\x00\x00\x00abc\x00\x00\x00\x00"...))
	f.Add(append(append(append(route, '\n'), frame...), "abc"...))
	f.Add([]byte("{}\n\xff\xff\xff\xff\x00\x00\x00\x00"))
	f.Add([]byte("{}\n\xff\xff\xff\x7f"))
	f.Fuzz(func(t *testing.T, in []byte) {
		line, _, _ := bytes.Cut(in, []byte("\n"))
		if r := (Route{}); json.Unmarshal(line, &r) == nil && r.From != "" {
			return // such a route would make Receive dial another host
		}
		part, err := Receive(t.Context(), bufio.NewReader(bytes.NewReader(in)), io.Discard, t.TempDir(), loopback{deaf: true})
		if err != nil {
			return
		}
		defer part.Close()
		if got, _ := io.ReadAll(part); len(got) > len(in) {
			t.Errorf("%d bytes came of %d", len(got), len(in))
		}
	})
}

// Read does not return 0 bytes for a heartbeat, which a caller could take for
// the end.
func TestHeartbeatsAreNotReadAsData(t *testing.T) {
	route, err := json.Marshal(Route{})
	if err != nil {
		t.Fatal(err)
	}
	in := bytes.NewBuffer(append(route, '\n'))
	f := newFrames(in)
	for range 3 {
		if _, err := f.Write([]byte("abc")); err != nil {
			t.Fatal(err)
		}
		for _, mark := range []uint32{heartbeat, heartbeat} {
			if err := f.writeLength(mark); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := f.writeLength(0); err != nil {
		t.Fatal(err)
	}
	p, err := Receive(t.Context(), bufio.NewReader(in), io.Discard, t.TempDir(), loopback{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var got []byte
	for block := make([]byte, 10); ; {
		n, err := p.Read(block)
		if got = append(got, block[:n]...); err != nil {
			break
		}
		if n == 0 {
			t.Error("a read of nothing")
		}
	}
	if string(got) != "abcabcabc" {
		t.Errorf("%q", got)
	}
}
