package channel

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
)

var key = cluster.PeerKey(bytes.Repeat([]byte{7}, cluster.SecretSize), 1)

// at is one end of a pipe with TCP addresses, so that the code takes it for a
// network connection.
type at struct {
	net.Conn
	near, far string
}

func address(text string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(text), Port: 1} }

func (a at) LocalAddr() net.Addr  { return address(a.near) }
func (a at) RemoteAddr() net.Addr { return address(a.far) }

// end is the result of Dial or Accept on one side.
type end struct {
	conn net.Conn
	peer string
	err  error
}

// join calls Dial and Accept at the ends of a pipe between two IP addresses,
// and returns both results.
func join(t *testing.T, dialler, acceptor Config, from, to string) (dialled, accepted end) {
	t.Helper()
	a, b := net.Pipe()
	t.Cleanup(func() { a.Close(); b.Close() })
	done := make(chan end, 1)
	go func() {
		conn, peer, err := Accept(t.Context(), at{b, to, from}, acceptor, func(string) string { return "ps:0" })
		if err != nil {
			b.Close()
		}
		done <- end{conn, peer, err}
	}()
	conn, err := Dial(t.Context(), at{a, from, to}, dialler, "worker:1", "ps:0")
	if err != nil {
		a.Close()
	}
	return end{conn: conn, err: err}, <-done
}

func kind(c net.Conn) string {
	switch c.(type) {
	case *checksummed:
		return "checksum"
	case *tlsConn:
		return "tls"
	case at:
		return "bare"
	}
	return "none"
}

func TestProtectionOfConnections(t *testing.T) {
	plain, secret := Config{Key: key}, Config{Key: key, TLS: true}
	for _, c := range []struct {
		name              string
		dialler, acceptor Config
		from, to          string
		want              string // the expected protection, or a text in the acceptor's error
	}{
		{"two hosts", plain, plain, "10.0.0.1", "10.0.0.2", "checksum"},
		{"one host", plain, plain, "10.0.0.1", "10.0.0.1", "bare"},
		{"loopback", plain, plain, "127.0.0.1", "127.0.0.3", "bare"},
		{"one host, IPv6", plain, plain, "fd00::1", "fd00::1", "bare"},
		{"two hosts, IPv6", plain, plain, "fd00::1", "fd00::2", "checksum"},
		{"encrypted", secret, secret, "10.0.0.1", "10.0.0.2", "tls"},
		{"encrypted on one host", secret, secret, "10.0.0.1", "10.0.0.1", "bare"},
		{"the dialler does not encrypt", plain, secret, "10.0.0.1", "10.0.0.2", "worker:1 did not encrypt the connection"},
		{"the acceptor need not encrypt", secret, plain, "10.0.0.1", "10.0.0.2", "tls"},
	} {
		dialled, accepted := join(t, c.dialler, c.acceptor, c.from, c.to)
		if accepted.err != nil {
			if !strings.Contains(accepted.err.Error(), c.want) {
				t.Errorf("%s: %v", c.name, accepted.err)
			}
			continue
		}
		if dialled.err != nil || kind(dialled.conn) != c.want || kind(accepted.conn) != c.want || accepted.peer != "worker:1" {
			t.Errorf("%s: dialled %s (%v), accepted %s of %q; want %s", c.name, kind(dialled.conn), dialled.err, kind(accepted.conn), accepted.peer, c.want)
		}
		exchange(t, c.name, dialled.conn, accepted.conn)
		exchange(t, c.name, accepted.conn, dialled.conn)
	}
}

// exchange sends buffers of many lengths and compares the received bytes.
func exchange(t *testing.T, name string, from, to net.Conn) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	var buffers [][]byte
	for _, n := range []int{0, 1, 44, 3000, record - 1, record, record + 1, maxRecord, maxRecord + 1, 2*maxRecord + 5, 0, 7} {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		buffers = append(buffers, b)
	}
	want := bytes.Join(buffers, nil)
	sent := make(chan error, 1)
	go func() {
		var err error
		if v, ok := from.(interface {
			WriteBuffers(...[]byte) (int64, error)
		}); ok {
			var n int64
			if n, err = v.WriteBuffers(buffers...); err == nil && n != int64(len(want)) {
				err = errors.New("a wrong count was returned")
			}
		} else {
			_, err = from.Write(want)
		}
		sent <- err
	}()
	got := make([]byte, len(want))
	for at := 0; at < len(got); { // read in pieces of irregular lengths, as wire.Conn does
		n, err := to.Read(got[at:min(len(got), at+1+random.IntN(100_000))])
		if err != nil {
			t.Fatalf("%s: after %d of %d bytes: %v", name, at, len(got), err)
		}
		at += n
	}
	if err := <-sent; err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: the bytes that came are not those that were sent (%v)", name, err)
	}
}

// A dialler with the key of another job must fail the proof.
func TestOtherKeyIsRefused(t *testing.T) {
	other := Config{Key: cluster.PeerKey([]byte("guess"), 1), TLS: true}
	dialled, accepted := join(t, other, Config{Key: key, TLS: true}, "10.0.0.1", "10.0.0.2")
	if !errors.Is(dialled.err, cluster.ErrProof) || !errors.Is(accepted.err, cluster.ErrProof) {
		t.Errorf("dialler %v, acceptor %v", dialled.err, accepted.err)
	}
}

// An attacker relays the proof between two honest ends and then uses TLS with
// its own key. Both honest ends must refuse the connection.
func TestRelayedProofIsRefused(t *testing.T) {
	for _, dialled := range []bool{true, false} {
		a, b := net.Pipe()
		failed := make(chan error, 1)
		go func() {
			_, err := encrypt(t.Context(), a, key, dialled)
			a.Close()
			failed <- err
		}()
		c, err := encrypt(t.Context(), b, cluster.PeerKey([]byte("another"), 0), !dialled)
		if err == nil {
			_, err = c.Read(make([]byte, 1)) // in TLS 1.3 a client may get the error only at its first read
		}
		b.Close()
		if honest := <-failed; honest == nil || err == nil {
			t.Errorf("dialled %v: honest end: %v, other end: %v", dialled, honest, err)
		}
	}
}

func TestUnknownProtectionIsRefused(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	go func() {
		if cluster.Dial(t.Context(), a, key, "worker:1", "ps:0") == nil {
			a.Write([]byte{'x'}) // an error shows as a failure of Accept
		}
	}()
	_, _, err := Accept(t.Context(), b, Config{Key: key}, func(string) string { return "ps:0" })
	if err == nil || !strings.Contains(err.Error(), "unknown protection 0x78") {
		t.Errorf("got %v", err)
	}
}

// Accept must time out if a peer sends nothing after its proof, and Dial if
// the acceptor never begins the TLS handshake.
func TestSilentPeersTimeOut(t *testing.T) {
	for _, tls := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a, b := net.Pipe()
			defer a.Close()
			defer b.Close()
			go cluster.Dial(context.Background(), a, key, "worker:1", "ps:0")
			began := time.Now()
			_, _, err := Accept(context.Background(), b, Config{Key: key, TLS: tls}, func(string) string { return "ps:0" })
			if took := time.Since(began); err == nil || took > 2*setupTime {
				t.Errorf("accept ended after %v: %v", took, err)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		defer a.Close()
		defer b.Close()
		go func() {
			cluster.Accept(context.Background(), b, key, func(string) string { return "ps:0" })
			io.Copy(io.Discard, b) // read the handshake, but never reply
		}()
		began := time.Now()
		_, err := Dial(context.Background(), a, Config{Key: key, TLS: true}, "worker:1", "ps:0")
		if took := time.Since(began); err == nil || took > 2*setupTime {
			t.Errorf("dial ended after %v: %v", took, err)
		}
	})
}
