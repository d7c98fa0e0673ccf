package cluster

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var (
	secret = bytes.Repeat([]byte{7}, SecretSize)
	key    = PeerKey(secret, 1)
)

// outcome is the result of a proof on one side.
type outcome struct {
	peer string
	err  error
}

func dial(conn net.Conn, key Key, self, peer string) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		err := Dial(context.Background(), conn, key, self, peer)
		if err != nil {
			conn.Close()
		}
		done <- outcome{peer, err}
	}()
	return done
}

// named returns a function for Accept: the task's name is self for every
// dialler.
func named(self string) func(string) string { return func(string) string { return self } }

func accept(conn net.Conn, key Key, self string) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		peer, err := Accept(context.Background(), conn, key, named(self))
		if err != nil {
			conn.Close()
		}
		done <- outcome{peer, err}
	}()
	return done
}

func TestProofNeedsKeyAndNames(t *testing.T) {
	longest := strings.Repeat("x", maxName)
	for _, c := range []struct {
		name                     string
		dialKey, acceptKey       Key
		self, peer, acceptorName string
		good                     bool
	}{
		{"same secret", key, key, "worker:1", "ps:0", "ps:0", true},
		{"longest names", key, key, longest, longest, longest, true},
		{"no name", key, key, "", "ps:0", "ps:0", true},
		{"other secret", PeerKey([]byte("guess"), 1), key, "worker:1", "ps:0", "ps:0", false},
		{"no secret", PeerKey(nil, 1), key, "worker:1", "ps:0", "ps:0", false},
		{"generation before", PeerKey(secret, 0), key, "worker:1", "ps:0", "ps:0", false},
		{"generation after", key, PeerKey(secret, 0), "worker:1", "ps:0", "ps:0", false},
		{"another task at the address", key, key, "worker:1", "ps:0", "ps:1", false},
		{"itself at the address", key, key, "worker:1", "ps:0", "worker:1", false},
		{"names run together", key, key, "worker:1ps", ":0", "ps:0", false},
	} {
		a, b := net.Pipe()
		dialled, accepted := dial(a, c.dialKey, c.self, c.peer), accept(b, c.acceptKey, c.acceptorName)
		d, got := <-dialled, <-accepted
		if c.good != (d.err == nil) || c.good != (got.err == nil) || c.good && got.peer != c.self {
			t.Errorf("%s: dialler %v, acceptor %+v; want success: %v", c.name, d.err, got, c.good)
		}
		if !c.good && (!errors.Is(d.err, ErrProof) || !errors.Is(got.err, ErrProof)) {
			t.Errorf("%s: dialler %v, acceptor %v; want ErrProof on both sides", c.name, d.err, got.err)
		}
		a.Close()
		b.Close()
	}
	if err := Dial(context.Background(), closedConn(t), key, longest+"x", "ps:0"); err == nil || !strings.Contains(err.Error(), "name longer") {
		t.Errorf("a name too long: %v", err)
	}
}

// closedConn returns a connection whose other end is closed.
func closedConn(t *testing.T) net.Conn {
	a, b := net.Pipe()
	b.Close()
	t.Cleanup(func() { a.Close() })
	return a
}

// After the proof the connection must be usable: it has no deadline, and no
// byte is lost.
func TestConnectionIsUsableAfterProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		defer a.Close()
		defer b.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		accepted := accept(b, key, "ps:0")
		if err := Dial(ctx, a, key, "worker:0", "ps:0"); err != nil {
			t.Fatal(err)
		}
		if got := <-accepted; got.err != nil {
			t.Fatal(got.err)
		}
		cancel() // cancels the context of the proof only
		time.Sleep(2 * proofTime)
		go io.WriteString(a, "step")
		got := make([]byte, 4)
		if _, err := io.ReadFull(b, got); err != nil || string(got) != "step" {
			t.Errorf("%q, %v", got, err)
		}
	})
}

func TestProofWithSilentPeerTimesOut(t *testing.T) {
	calls := map[string]func(context.Context, net.Conn) error{
		"dial": func(ctx context.Context, c net.Conn) error { return Dial(ctx, c, key, "worker:0", "ps:0") },
		"accept": func(ctx context.Context, c net.Conn) error {
			_, err := Accept(ctx, c, key, named("ps:0"))
			return err
		},
	}
	for name, call := range calls {
		for limit, want := range map[time.Duration]time.Duration{0: proofTime, time.Second: time.Second, time.Hour: proofTime} {
			for _, reads := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					ours, theirs := net.Pipe()
					defer theirs.Close()
					if reads {
						go io.Copy(io.Discard, theirs)
					}
					ctx, cancel := context.Background(), func() {}
					if limit > 0 {
						ctx, cancel = context.WithTimeout(ctx, limit)
					}
					defer cancel()
					begun := time.Now()
					if err := call(ctx, ours); err == nil {
						t.Errorf("%s: proved by silence", name)
					}
					if took := time.Since(begun); took != want {
						t.Errorf("%s with a limit of %v, peer reads: %v: took %v, want %v", name, limit, reads, took, want)
					}
					ours.Close()
				})
			}
		}
	}
}

func TestCancelEndsAProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer ours.Close()
		defer theirs.Close()
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(3*time.Second, cancel)
		begun := time.Now()
		if _, err := Accept(ctx, ours, key, named("ps:0")); err == nil || time.Since(begun) != 3*time.Second {
			t.Errorf("%v after %v, want an error after 3s", err, time.Since(begun))
		}
	})
}

// recorder records all bytes that are read from and written to a connection.
type recorder struct {
	net.Conn
	read, written bytes.Buffer
}

func (r *recorder) Read(p []byte) (int, error) {
	n, err := r.Conn.Read(p)
	r.read.Write(p[:n])
	return n, err
}

func (r *recorder) Write(p []byte) (int, error) {
	r.written.Write(p)
	return r.Conn.Write(p)
}

// Two pairs of names that give the same bytes when joined must have different
// proofs.
func TestProofCoversNameBoundaries(t *testing.T) {
	var key Key
	var c, s [nonceSize]byte
	if bytes.Equal(tag(key, "dial", "ab", "c", c, s), tag(key, "dial", "a", "bc", c, s)) {
		t.Error("the proof of ab to c is that of a to bc")
	}
}

func TestReplayedProofIsRefused(t *testing.T) {
	a, b := net.Pipe()
	recorded := &recorder{Conn: a}
	accepted := accept(b, key, "ps:0")
	if err := Dial(context.Background(), recorded, key, "worker:0", "ps:0"); err != nil {
		t.Fatal(err)
	}
	if got := <-accepted; got.err != nil {
		t.Fatal(got.err)
	}
	// Send the recorded bytes of the dialler to the acceptor again.
	conn, stranger := net.Pipe()
	refused := accept(conn, key, "ps:0")
	go io.Copy(io.Discard, stranger)
	stranger.Write(recorded.written.Bytes())
	if got := <-refused; !errors.Is(got.err, ErrProof) {
		t.Errorf("the dialler's words played again: %+v, want ErrProof", got)
	}
	// Send the recorded bytes of the acceptor to the dialler again.
	conn, stranger = net.Pipe()
	dialled := dial(conn, key, "worker:0", "ps:0")
	go io.Copy(io.Discard, stranger)
	stranger.Write(recorded.read.Bytes())
	if got := <-dialled; !errors.Is(got.err, ErrProof) {
		t.Errorf("the acceptor's words played again: %+v, want ErrProof", got)
	}
}

func TestEchoedProofIsRefused(t *testing.T) {
	conn, mirror := net.Pipe()
	dialled := dial(conn, key, "worker:0", "ps:0")
	go func() {
		var kept bytes.Buffer
		buf := make([]byte, 4096)
		for {
			n, err := mirror.Read(buf)
			if err != nil {
				return
			}
			kept.Write(buf[:n])
			go mirror.Write(append([]byte(nil), buf[:n]...)) // written on a goroutine of its own, so that the loop continues to read
		}
	}()
	if got := <-dialled; !errors.Is(got.err, ErrProof) {
		t.Errorf("its own words: %+v, want ErrProof", got)
	}
	mirror.Close()
}

// An attacker in the middle runs two proofs at the same time, and replies in
// one with what it received in the other.
func TestReflectedProofIsRefused(t *testing.T) {
	t.Run("two acceptors", func(t *testing.T) {
		// worker:0 and worker:1 both accept. The attacker, who has no secret,
		// claims to each to be the other one, and passes the challenge of one
		// to the other.
		left, l := net.Pipe()
		right, r := net.Pipe()
		a, b := accept(l, key, "worker:0"), accept(r, key, "worker:1")
		go left.Write(claim("worker:1", "worker:0"))
		go right.Write(claim("worker:0", "worker:1"))
		s0, s1 := read(t, left, nonceSize), read(t, right, nonceSize)
		left.Write(s1)
		right.Write(s0)
		if n, err := io.Copy(io.Discard, left); n > 0 {
			t.Errorf("worker:0 said %d bytes more, %v", n, err)
		}
		if got := <-a; !errors.Is(got.err, ErrProof) && !errors.Is(got.err, io.ErrClosedPipe) {
			t.Errorf("worker:0: %+v", got)
		}
		right.Close()
		if got := <-b; got.err == nil {
			t.Errorf("worker:1: %+v", got)
		}
	})
	t.Run("a dialler's proof to itself", func(t *testing.T) {
		// worker:0 dials ps:0 but reaches the attacker, who forwards all bytes
		// to worker:0's own listener and back.
		d, man1 := net.Pipe()
		man2, l := net.Pipe()
		dialled, accepted := dial(d, key, "worker:0", "ps:0"), accept(l, key, "worker:0")
		go func() { io.Copy(man2, man1); man2.Close() }()
		go func() { io.Copy(man1, man2); man1.Close() }()
		if got := <-accepted; !errors.Is(got.err, ErrProof) {
			t.Errorf("acceptor: %+v, want ErrProof", got)
		}
		if got := <-dialled; !errors.Is(got.err, ErrProof) {
			t.Errorf("dialler: %+v, want ErrProof", got)
		}
	})
	t.Run("a dialler's proof as an acceptor's", func(t *testing.T) {
		// Two tasks dial each other. The attacker exchanges their proofs.
		a, left := net.Pipe()
		b, right := net.Pipe()
		d0, d1 := dial(a, key, "worker:0", "worker:1"), dial(b, key, "worker:1", "worker:0")
		h0, h1 := read(t, left, len(claim("worker:0", "worker:1"))), read(t, right, len(claim("worker:1", "worker:0")))
		left.Write(h1[len(h1)-nonceSize:])
		right.Write(h0[len(h0)-nonceSize:])
		p0, p1 := read(t, left, len(Key{})), read(t, right, len(Key{}))
		left.Write(p1)
		right.Write(p0)
		for _, got := range []outcome{<-d0, <-d1} {
			if !errors.Is(got.err, ErrProof) {
				t.Errorf("%+v, want ErrProof", got)
			}
		}
	})
}

// claim returns a dialler's first message, with a nonce of zeros.
func claim(self, peer string) []byte {
	b := append([]byte(proofMagic), byte(len(self)))
	b = append(append(b, self...), byte(len(peer)))
	return append(append(b, peer...), make([]byte, nonceSize)...)
}

func read(t *testing.T, r io.Reader, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		t.Fatal(err)
	}
	return b
}

func FuzzAccept(f *testing.F) {
	f.Add(claim("worker:0", "ps:0"), make([]byte, 32))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), []byte{})
	f.Add([]byte(proofMagic+"\xff"), bytes.Repeat([]byte("A"), 700))
	f.Add([]byte(proofMagic), []byte{0, 0})
	f.Fuzz(func(t *testing.T, first, then []byte) {
		ours, theirs := net.Pipe()
		written := make(chan int, 1)
		go func() {
			n, _ := theirs.Write(first)
			m, _ := theirs.Write(then)
			theirs.Close()
			written <- n + m
		}()
		go io.Copy(io.Discard, theirs)
		if peer, err := Accept(context.Background(), ours, key, named("ps:0")); err == nil {
			t.Errorf("%q proved the secret to be %q", first, peer)
		}
		ours.Close()
		if n := <-written; n > 600 {
			t.Errorf("%d bytes of a stranger were read", n)
		}
	})
}

func FuzzDial(f *testing.F) {
	f.Add(make([]byte, 64))
	f.Add([]byte(nil))
	f.Add([]byte("SSH-2.0-OpenSSH_9.2p1 Debian\r\n"))
	f.Fuzz(func(t *testing.T, answer []byte) {
		ours, theirs := net.Pipe()
		go func() {
			theirs.Write(answer)
			theirs.Close()
		}()
		go io.Copy(io.Discard, theirs)
		if err := Dial(context.Background(), ours, key, "worker:0", "ps:0"); err == nil {
			t.Errorf("%q proved the secret", answer)
		}
		ours.Close()
	})
}
