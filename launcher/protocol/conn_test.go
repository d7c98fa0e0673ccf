package protocol

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/plx-run/plx/trainer/cluster"
)

// receive reads what a peer sends after its magic.
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

func TestReceiveRefuses(t *testing.T) {
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
	} {
		_, err := receive(t, c.data)
		if err == nil || errors.Is(err, io.EOF) || !strings.Contains(err.Error(), c.cause) {
			t.Errorf("%s: %v; want %q", name, err, c.cause)
		}
	}
}

// A length that nothing follows costs no memory.
func TestALengthAloneCostsNothing(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := receive(t, "\x00\x00\x00\x01abc")
	runtime.ReadMemStats(&after)
	if bytes := after.TotalAlloc - before.TotalAlloc; err == nil || bytes > 4<<20 {
		t.Errorf("%v; %d bytes allocated for a message of 16 MiB of which 3 bytes came", err, bytes)
	}
}

func TestSendBounds(t *testing.T) {
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
				if err := a.Send(Message{Renew: &Renew{Seq: int64(g*each + i)}, Notice: strings.Repeat("x", i)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	seen := map[int64]bool{}
	for range 4 * each {
		m, err := b.Receive()
		if err != nil {
			t.Fatal(err)
		}
		seen[m.Renew.Seq] = true
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

// Open waits for the peer's magic; whoever owns the stream ends that by closing
// it.
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
