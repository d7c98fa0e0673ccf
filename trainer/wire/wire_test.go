package wire

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
)

// pair returns both ends of a connection over loopback TCP.
func pair(t testing.TB, silence time.Duration) (a, b *Conn) {
	left, right := tcp(t)
	a, b = NewConn(left, 3, silence), NewConn(right, 3, silence)
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func tcp(t testing.TB) (left, right net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if left, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if right, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { left.Close(); right.Close() })
	return left, right
}

func TestFramesArriveUnchanged(t *testing.T) {
	a, b := pair(t, patience.Limit)
	random := rand.New(rand.NewPCG(1, 2))
	var sent []Frame
	for i := range 40 {
		f := Frame{Header: Header{Kind: Push, Variable: uint32(i), Step: random.Uint64(), Offset: random.Uint64(), Epoch: 5, Part: random.Uint32()}}
		f.Payload = make([]byte, []int{0, 1, 8, 63 << 10, 1 << 20}[random.IntN(5)])
		for j := range f.Payload {
			f.Payload[j] = byte(random.Uint32())
		}
		sent = append(sent, f)
	}
	failed := make(chan error, 1)
	go func() {
		var err error
		for batch := range slices.Chunk(sent, 7) {
			err = errors.Join(err, a.Send(batch...))
		}
		failed <- err
	}()
	for _, want := range sent {
		h, err := b.Next()
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, h.Length)
		if err := b.Payload(got); err != nil {
			t.Fatal(err)
		}
		want.Header.Generation, want.Header.Length = 3, uint64(len(want.Payload))
		if h != want.Header || !bytes.Equal(got, want.Payload) {
			t.Fatalf("got %+v with %d bytes, want %+v", h, len(got), want.Header)
		}
	}
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
}

func TestHeartbeatsKeepIdleConnectionOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const silence = 600 * time.Millisecond
		left, right := net.Pipe()
		a, b := NewConn(left, 3, silence), NewConn(right, 3, silence)
		defer b.Close()
		defer a.Close()
		got := make(chan error, 2)
		for _, c := range []*Conn{a, b} {
			go func() { _, err := c.Next(); got <- err }()
		}
		select {
		case err := <-got:
			t.Fatalf("an idle connection ended: %v", err)
		case <-time.After(100 * silence):
		}
	})
}

// A Send that is blocked because the peer reads nothing must fail too, once
// the peer is silent for too long.
func TestSilentPeerUnblocksSend(t *testing.T) {
	left, _ := tcp(t)
	c := NewConn(left, 0, 200*time.Millisecond)
	defer c.Close()
	if err := c.Send(Frame{Header: Header{Kind: Push}, Payload: make([]byte, 64<<20)}); !errors.Is(err, ErrPeerTimeout) {
		t.Fatalf("got %v, want ErrPeerTimeout", err)
	}
}

func TestOtherGenerationIsRefused(t *testing.T) {
	left, right := tcp(t)
	old, now := NewConn(left, 1, patience.Limit), NewConn(right, 2, patience.Limit)
	defer old.Close()
	defer now.Close()
	if err := old.Send(Frame{Header: Header{Kind: Push}}); err != nil {
		t.Fatal(err)
	}
	if _, err := now.Next(); err == nil || !strings.Contains(err.Error(), "generation 1, this is generation 2") {
		t.Fatalf("got %v", err)
	}
}

func TestCloseIsIdempotentAndUnblocks(t *testing.T) {
	a, _ := pair(t, patience.Limit)
	got := make(chan error, 1)
	go func() { _, err := a.Next(); got <- err }()
	a.Close()
	a.Close()
	if err := <-got; err == nil {
		t.Error("Next returned a frame from a closed connection")
	}
}

func TestFloatsShareMemoryWithBytes(t *testing.T) {
	x := []float32{1, -2.5, 3e38}
	b := Bytes(x)
	if len(b) != 12 || b[3] != 0x3f || b[2] != 0x80 {
		t.Errorf("1.0 begins % x", b)
	}
	if !slices.Equal(Floats[float32](b), x) || len(Floats[float64](nil)) != 0 || Bytes[float64](nil) != nil {
		t.Error("no round trip")
	}
	if one := Bytes(x[:1]); len(one) != 4 {
		t.Errorf("one number is %d bytes", len(one))
	}
	if err := CheckHost(); err != nil {
		t.Error(err)
	}
}

func TestSteadySendDoesNotAllocate(t *testing.T) {
	a, b := pair(t, patience.Limit)
	payload, into := make([]byte, 4096), make([]byte, 4096)
	frames := []Frame{{Header: Header{Kind: Push}, Payload: payload}, {Header: Header{Kind: Push}, Payload: payload}}
	got := testing.AllocsPerRun(100, func() {
		if err := a.Send(frames...); err != nil {
			t.Fatal(err)
		}
		for range frames {
			if _, err := b.Next(); err != nil {
				t.Fatal(err)
			}
			if err := b.Payload(into); err != nil {
				t.Fatal(err)
			}
		}
	})
	if got > 0 {
		t.Errorf("%v allocations per frame pair", got)
	}
}

func FuzzHeader(f *testing.F) {
	var good [HeaderSize]byte
	Header{Kind: Push, Generation: 1, Epoch: 2, Variable: 3, Step: 4, Offset: 5, Length: 6, Part: 7}.put(good[:])
	f.Add(good[:])
	f.Add(bytes.Repeat([]byte{0xff}, HeaderSize))
	f.Add([]byte("GET / HTTP/1.1\r\nHost: 10.0.0.1:41234\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < HeaderSize {
			return
		}
		h, err := parse(b)
		if err != nil {
			return
		}
		var again [HeaderSize]byte
		h.put(again[:])
		if !bytes.Equal(again[:], b[:HeaderSize]) {
			t.Fatalf("% x came back as % x", b[:HeaderSize], again)
		}
		if strings.HasPrefix(h.Kind.String(), "kind ") {
			t.Fatalf("accepted %s", h.Kind)
		}
	})
}

// FuzzNext lets Next read an arbitrary stream of bytes. The test limits
// payload lengths, as all callers do.
func FuzzNext(f *testing.F) {
	var h [HeaderSize]byte
	Header{Kind: Push, Length: 3}.put(h[:])
	f.Add(append(h[:], "abc"...))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, stream []byte) {
		left, right := net.Pipe()
		c := NewConn(right, 0, patience.Limit)
		defer c.Close()
		go io.Copy(io.Discard, left) // discard the heartbeats of the other end
		go func() { left.Write(stream); left.Close() }()
		read := 0
		for {
			h, err := c.Next()
			if err != nil {
				return
			}
			read += HeaderSize
			if h.Length > 1<<10 {
				return
			}
			if c.Payload(make([]byte, h.Length)) != nil {
				return
			}
			if read += int(h.Length); read > len(stream) {
				t.Fatalf("read %d bytes of %d", read, len(stream))
			}
		}
	})
}
