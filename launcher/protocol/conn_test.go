package protocol

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
)

// receive returns the message that Receive decodes from data, which follows
// the magic string.
func receive(t *testing.T, data string) (Message, error) {
	t.Helper()
	c, err := Open(&script{Reader: strings.NewReader(magic + data)})
	if err != nil {
		t.Fatal(err)
	}
	return c.Receive()
}

func framed(body string) string {
	return string(binary.LittleEndian.AppendUint32(nil, uint32(len(body)))) + body
}

// raw returns the encoding of a Piece or Order with the given body.
func raw(kind uint32, body string) string {
	return string(binary.LittleEndian.AppendUint32(nil, kind|uint32(len(body)))) + body
}

func TestReceiveRejectsMalformedFrames(t *testing.T) {
	cut := framed(`{"notice":"x"}`)
	for name, c := range map[string]struct{ data, cause string }{
		"half a length":       {"\x01\x00", "unexpected EOF"},
		"length only":         {cut[:4], "cut short: unexpected EOF"},
		"half a body":         {cut[:9], "cut short: unexpected EOF"},
		"a length too big":    {"\x01\x00\x00\x01", "16777217 bytes, at most 16777216"},
		"the largest, alone":  {"\x00\x00\x00\x01x", "cut short: unexpected EOF"},
		"no JSON":             {framed("hello"), "message: invalid"},
		"a task of no role":   {framed(`{"exited":{"task":"chief:0"}}`), "want worker:N or ps:N"},
		"a key of no role":    {framed(`{"prepared":{"open":{"worker":"a:1"}}}`), "want worker:N or ps:N"},
		"base64 that is none": {framed(`{"spec":{"env":["%"]}}`), "base64"},

		"a piece of nothing":     {raw(rawPiece, ""), "message: unknown frame type or frame too short"},
		"an order of nothing":    {raw(rawOrder, ""), "message: unknown frame type or frame too short"},
		"a piece without stream": {raw(rawPiece, strings.Repeat("x", rawHead-1)), "message: unknown frame type or frame too short"},
		"an order, a byte short": {raw(rawOrder, strings.Repeat("x", rawHead-1)), "message: unknown frame type or frame too short"},
		"a piece and an order":   {raw(rawPiece|rawOrder, strings.Repeat("x", rawHead+1)), "message: unknown frame type or frame too short"},
		"a piece too long":       {"\x01\x00\x00\x81", "16777217 bytes, at most 16777216"},
		"an order too long":      {"\x01\x00\x00\x41", "16777217 bytes, at most 16777216"},
		"the longest of all":     {"\xff\xff\xff\xff", "1073741823 bytes, at most 16777216"},
		"half a piece":           {raw(rawPiece, strings.Repeat("x", rawHead+1))[:4+rawHead], "cut short: unexpected EOF"},
		"half an order":          {raw(rawOrder, strings.Repeat("x", rawHead+1))[:4+rawHead], "cut short: unexpected EOF"},
		"the head of a piece":    {raw(rawPiece, strings.Repeat("x", rawHead))[:4], "cut short: unexpected EOF"},
	} {
		_, err := receive(t, c.data)
		if err == nil || errors.Is(err, io.EOF) || !strings.Contains(err.Error(), c.cause) {
			t.Errorf("%s: %v; want %q", name, err, c.cause)
		}
	}
}

// A large length field without the data that should follow allocates no
// memory.
func TestForgedLengthAllocatesNothing(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := receive(t, "\x00\x00\x00\x01abc")
	runtime.ReadMemStats(&after)
	if bytes := after.TotalAlloc - before.TotalAlloc; err == nil || bytes > 4<<20 {
		t.Errorf("%v; %d bytes allocated for a message of 16 MiB of which 3 bytes came", err, bytes)
	}
}

// The data of Piece and Order messages is sent unencoded and arrives
// unchanged.
func TestRawFrames(t *testing.T) {
	a, b := pair(t)
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	largest := bytes.Repeat([]byte("\xff\x00{"), MaxMessage)[:MaxMessage-rawHead]
	contents := [][]byte{nil, {}, {0}, []byte(`{"notice":"x"}`), all, bytes.Repeat(all, 1000)}
	var sent []Message
	for i, data := range contents {
		for _, id := range []uint64{0, 1, 1 << 31, 1<<63 + uint64(i), math.MaxUint64} {
			sent = append(sent, Message{Piece: &Piece{ID: id, Stream: i, Data: data}}, Message{Order: &Order{ID: id, Data: data}})
		}
	}
	for stream := range 256 {
		sent = append(sent, Message{Piece: &Piece{ID: 7, Stream: stream, Data: all[stream:]}})
	}
	sent = append(sent, Message{Piece: &Piece{Data: largest}}, Message{Notice: "and JSON"})
	go func() {
		for _, m := range sent {
			if err := a.Send(m); err != nil {
				t.Error(err)
				a.Close() // nothing more comes
			}
		}
	}()
	for i, want := range sent {
		got, err := b.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if !sameRaw(got, want) {
			t.Fatalf("message %d: got %.200v, want %.200v", i, got, want)
		}
	}
	for _, m := range []Message{{Piece: &Piece{Data: append(largest, 0)}}, {Order: &Order{Data: append(largest, 0)}}} {
		if err := (&Conn{stream: &script{}}).Send(m); err == nil || !strings.Contains(err.Error(), "at most") {
			t.Errorf("too large: %v", err)
		}
	}
	var wire recorder
	if err := (&Conn{stream: &wire}).Send(Message{Piece: &Piece{ID: 0x0102, Stream: 2, Data: all}}); err != nil {
		t.Fatal(err)
	}
	if want := raw(rawPiece, "\x02\x01\x00\x00\x00\x00\x00\x00\x02"+string(all)); wire.String() != want {
		t.Errorf("%d bytes are %.40q..., want %d bytes %.40q...", wire.Len(), wire.String(), len(want), want)
	}
}

// sameRaw compares two messages; nil data equals empty data.
func sameRaw(a, b Message) bool {
	switch {
	case a.Piece != nil && b.Piece != nil:
		return a.Piece.ID == b.Piece.ID && a.Piece.Stream == b.Piece.Stream && bytes.Equal(a.Piece.Data, b.Piece.Data)
	case a.Order != nil && b.Order != nil:
		return a.Order.ID == b.Order.ID && bytes.Equal(a.Order.Data, b.Order.Data)
	}
	return reflect.DeepEqual(a, b)
}

// recorder keeps what is sent.
type recorder struct{ bytes.Buffer }

func (*recorder) Close() error { return nil }

func TestSendRejectsTooLargeMessages(t *testing.T) {
	a, b := pair(t)
	text := strings.Repeat("x", MaxMessage-len(`{"notice":""}`)+1)
	nobody := &Conn{stream: &script{}}
	if err := nobody.Send(Message{Notice: text}); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Fatalf("too large a message: %v", err)
	}
	env := Raw(strings.Repeat("\xff", 1<<20))
	go func() {
		for _, m := range []Message{{Notice: text[1:]}, {Spec: &Spec{Env: []Raw{env}}}} {
			if err := a.Send(m); err != nil {
				t.Error(err)
				a.Close() // nothing more comes
			}
		}
	}()
	if _, err := io.CopyN(io.Discard, b.stream, 4+MaxMessage); err != nil { // decoding it takes seconds
		t.Fatal(err)
	}
	if m, err := b.Receive(); err != nil || m.Spec == nil || m.Spec.Env[0] != env {
		t.Errorf("a large message: %v", err)
	}
}

func TestSendFromManyGoroutines(t *testing.T) {
	a, b := pair(t)
	const each = 100
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range each {
				if err := a.Send(Message{Renew: &Renew{Sent: time.Duration(g*each + i)}, Notice: strings.Repeat("x", i)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	seen := map[time.Duration]bool{}
	for range 4 * each {
		m, err := b.Receive()
		if err != nil {
			t.Fatal(err)
		}
		seen[m.Renew.Sent] = true
	}
	wg.Wait()
	if len(seen) != 4*each {
		t.Errorf("%d different messages, want %d", len(seen), 4*each)
	}
}

func TestCloseEndsReceive(t *testing.T) {
	a, _ := pair(t)
	got := make(chan error)
	go func() {
		_, err := a.Receive()
		got <- err
	}()
	a.Close()
	if err := <-got; err == nil {
		t.Error("Receive on a closed connection: no error")
	}
}

// Open waits for the peer's magic string; closing the stream makes it return.
func TestCloseEndsOpen(t *testing.T) {
	ours, theirs := net.Pipe()
	got := make(chan error)
	go func() {
		_, err := Open(ours)
		got <- err
	}()
	theirs.Close()
	if err := <-got; !errors.Is(err, errNotAgent) {
		t.Errorf("%v, want errNotAgent", err)
	}
}

func TestWorkersAreCountedWithoutServers(t *testing.T) {
	tasks := []TaskSpec{{Task: cluster.Task{Role: cluster.PS}}, {Task: cluster.Chief}, {Task: cluster.Task{Role: cluster.Worker, Index: 1}}}
	if n := Workers(tasks); n != 2 {
		t.Errorf("%d workers, want 2", n)
	}
}

func FuzzRaw(f *testing.F) {
	f.Add("")
	f.Add("PATH=/bin\n\x80\xff'\"{,}")
	f.Fuzz(func(t *testing.T, s string) {
		text, err := json.Marshal(map[string]Raw{"a": Raw(s)})
		if err != nil {
			t.Fatal(err)
		}
		var back map[string]Raw
		if err := json.Unmarshal(text, &back); err != nil || string(back["a"]) != s {
			t.Errorf("%q came back as %q: %v", s, back["a"], err)
		}
	})
}

// FuzzRoundTrip: what was understood can be said again and means the same.
func FuzzRoundTrip(f *testing.F) {
	f.Add(`{"state":{"phase":"running","tasks":{"ps:0":{"pid":7},"worker:1":null}}}`)
	f.Add(`{"prepared":{"open":{"worker:1":"[::1]:1"}}}`)
	f.Add(`{"spec":{"env":["gP8="],"secret":"AAE="},"notice":"x"}`)
	f.Fuzz(func(t *testing.T, body string) {
		m, err := receive(t, framed(body))
		if err != nil {
			return
		}
		text, err := json.Marshal(m)
		if err != nil {
			return // a task of no role: only null in its place makes one
		}
		back, err := receive(t, framed(string(text)))
		again, err2 := json.Marshal(back)
		if err != nil || err2 != nil || !reflect.DeepEqual(text, again) {
			t.Errorf("%s became %s: %v, %v", text, again, err, err2)
		}
	})
}
