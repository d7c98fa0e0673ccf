package collective

import (
	"net"
	"testing"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

func FuzzDecode(f *testing.F) {
	for _, m := range []message{
		{signature{allReduce, float32Type, 0, 1000}, 1},
		{signature{broadcast, int64Type, 3, 0}, 7},
		{signature{}, 9},
	} {
		h := m.header()
		f.Add(uint8(h.Kind), h.Epoch, h.Variable, h.Step, h.Offset, uint64(0))
		f.Add(uint8(h.Kind), h.Epoch, h.Variable, h.Step, h.Offset, uint64(chunkSize))
	}
	f.Add(uint8(wire.Push), uint32(0xffffffff), uint32(1), uint64(0), uint64(0), uint64(1<<63))
	f.Fuzz(func(t *testing.T, kind uint8, epoch, variable uint32, step, offset, length uint64) {
		h := wire.Header{Kind: wire.Kind(kind), Epoch: epoch, Variable: variable, Step: step, Offset: offset, Length: length}
		m, err := decode(h)
		if err != nil {
			return
		}
		if length > chunkSize {
			t.Fatalf("accepted %d bytes", length)
		}
		again := m.header()
		again.Length = length
		if again != h {
			t.Fatalf("%+v came back as %+v", h, again)
		}
		if m.op != 0 && m.String() == "" {
			t.Fatal("no name")
		}
	})
}

// FuzzPeer has an authenticated peer send arbitrary frames while this worker
// calls collectives. Each pair of bytes in the script is one frame: the first
// byte selects a correct frame, the second one how to damage it.
func FuzzPeer(f *testing.F) {
	f.Add([]byte{0, 0, 1, 0})
	f.Add([]byte{0, 0, 3, 0, 3, 0, 5, 0, 0, 0, 3, 0, 3, 0})
	f.Add([]byte{0, 0, 3, 0, 3, 0, 3, 0, 4, 0, 2, 0, 3, 0, 3, 0})
	f.Add([]byte{0, 0, 0, 0, 0, 0})
	f.Add([]byte{0, 0, 1, 0, 3, 7, 3, 4, 5, 0})
	f.Add([]byte{6, 0, 7, 0})
	f.Add([]byte{0, 2, 3, 40, 200, 13})
	f.Fuzz(func(t *testing.T, script []byte) {
		here, there := net.Pipe()
		g := New(Config{Peers: peers.Config{Workers: 2}, Addrs: make([]string, 2), Silence: patience.Limit})
		g.opened = true
		g.join(peers.Peer{Task: cluster.Task{Role: cluster.Worker, Index: 1}, Addr: "peer", Conn: here})
		sent := make(chan bool)
		go func() { sendScript(there, script); close(sent) }()
		x := make([]float32, fuzzed/4+8)
		guard := x[len(x)-8:]
		x = x[:len(x)-8]
		var err error
		for range 3 {
			if err == nil {
				err = g.AllReduce(t.Context(), x)
			}
		}
		if err == nil {
			t.Error("three collectives with a peer that hung up")
		}
		for _, v := range guard {
			if v != 0 {
				t.Fatal("wrote past the slice")
			}
		}
		g.Close()
		there.Close()
		<-sent
	})
}

// fuzzed is the size in bytes of the slice that FuzzPeer adds up: for each of
// two workers the data of an announcement and of two chunks.
const fuzzed = 4*chunkSize - 64

// sendScript sends at most 12 frames of the script and closes the connection.
func sendScript(conn net.Conn, script []byte) {
	c := wire.NewConn(conn, 0, patience.Limit)
	defer c.Close()
	go c.Drain()
	at, number := 0, uint64(1)
	for i := 0; i+1 < len(script) && i < 24; i += 2 {
		h, length := message{signature{allReduce, float32Type, 0, fuzzed / 4}, number}.header(), early
		switch script[i] % 8 {
		case 1, 2, 3, 4:
			h = message{number: number}.header()
			const rest = fuzzed/2 - early
			length = min(chunkSize, rest-at%rest)
			at += length
		case 5:
			number++
			continue
		case 6:
			h.Kind, length = wire.Bye, 0
		case 7:
			h.Kind, length = wire.Error, int(script[i+1])
		}
		if wrong := script[i+1]; wrong > 0 {
			field := []*uint32{&h.Epoch, &h.Variable}[wrong&1]
			at := []*uint64{&h.Step, &h.Offset}[wrong>>1&1]
			*field ^= uint32(wrong>>4) << (wrong & 15)
			*at += uint64(wrong >> 3)
			length += int(wrong & 12)
		}
		if err := c.Send(wire.Frame{Header: h, Payload: make([]byte, length)}); err != nil {
			return
		}
	}
}
