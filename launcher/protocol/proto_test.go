package protocol

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
)

func pair(t *testing.T) (*Conn, *Conn) {
	t.Helper()
	a, b := net.Pipe()
	done := make(chan *Conn)
	go func() {
		c, err := Open(b)
		if err != nil {
			t.Error(err)
		}
		done <- c
	}()
	ca, err := Open(a)
	if err != nil {
		t.Fatal(err)
	}
	cb := <-done
	t.Cleanup(func() { ca.Close(); cb.Close() })
	return ca, cb
}

func TestMessagesArriveUnchanged(t *testing.T) {
	a, b := pair(t)
	sent := []Message{
		{Spec: &Spec{Job: "j", Env: []Raw{"A=\xff\xfe,\n"}, Command: Command{Args: []Raw{"{\"x\": '1'}", "\x80"}},
			Secret: []byte{0, 1, 255}, Lease: 30 * time.Second,
			Tasks: []TaskSpec{{Task: cluster.Task{Role: cluster.PS, Index: 3}}}}},
		{Prepared: &Prepared{Open: map[cluster.Task]string{{Role: cluster.Worker, Index: 1}: "[::1]:1"}}},
		{Notice: "hello"},
	}
	go func() {
		for _, m := range sent {
			if err := a.Send(m); err != nil {
				t.Error(err)
			}
		}
		a.Close()
	}()
	for _, want := range sent {
		got, err := b.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	if _, err := b.Receive(); err != io.EOF {
		t.Errorf("after the last message: %v, want io.EOF", err)
	}
}

type script struct {
	io.Reader
	closed bool
}

func (s *script) Write(p []byte) (int, error) { return len(p), nil }
func (s *script) Close() error                { s.closed = true; return nil }

func TestStrangersAreRefused(t *testing.T) {
	for name, text := range map[string]string{
		"nothing": "", "shell": "bash: /root/x: No such file\n", "other version": "plx-agent-9\n",
	} {
		s := &script{Reader: strings.NewReader(text)}
		if _, err := Open(s); err == nil || !s.closed {
			t.Errorf("%s: err %v, closed %v", name, err, s.closed)
		}
	}
}

// FuzzReceive: what the bytes of a peer say can be said again, and means the same.
func FuzzReceive(f *testing.F) {
	f.Add([]byte("\x02\x00\x00\x00{}"))
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Add([]byte("\x00\x00\x00\x01{\"notice\":\"x\"}"))
	f.Add([]byte(raw(rawPiece, "\x01\x02\x03\x04\x05\x06\x07\x08\xff{}\x00") + raw(rawOrder, strings.Repeat("\x00", rawHead)) + framed("{}")))
	f.Add([]byte(raw(rawPiece, "short")))
	f.Add([]byte(raw(rawPiece|rawOrder, "of both kinds")))
	f.Add([]byte("\x01\x00\x00\x81"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Open(&script{Reader: io.MultiReader(strings.NewReader(magic), strings.NewReader(string(data)))})
		if err != nil {
			t.Fatal(err)
		}
		for {
			m, err := c.Receive()
			if err != nil {
				return
			}
			if m.Piece != nil && m.Piece.Stream != int(byte(m.Piece.Stream)) {
				continue // of JSON, which no plx sends
			}
			if body, kind, err := encode(m); m.Piece != nil || m.Order != nil {
				if back, again := decode(body, kind); err != nil || again != nil || !sameRaw(back, m) {
					t.Errorf("%+v became %+v: %v, %v", m, back, err, again)
				}
			}
		}
	})
}

// Addresses travel compressed, and come out as they went in. What is not their encoding, or
// would not end, is refused.
func TestAddresses(t *testing.T) {
	var tasks, foreign cluster.Spec
	for i := range 500 {
		tasks.Set(cluster.Task{Role: cluster.Worker, Index: i}, fmt.Sprintf("10.0.%d.%d:%d", i>>8, i&255, 32768+i*7919%28232))
		foreign.Set(cluster.Task{Role: cluster.PS, Index: i}, fmt.Sprintf("10.0.%d.%d:%d", i>>8, i&255, 32768+i*104729%28232))
	}
	for _, want := range []Addresses{{}, NewAddresses(cluster.Spec{}, cluster.Spec{}), NewAddresses(tasks, foreign)} {
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got Addresses
		if err := json.Unmarshal(text, &got); err != nil || !reflect.DeepEqual(got.Cluster(), want.Cluster()) || !reflect.DeepEqual(got.Foreign(), want.Foreign()) {
			t.Errorf("%.60s came out as %+.60v, %v", text, got, err)
		}
		if len(text) > 10_000 {
			t.Errorf("1000 addresses take %d bytes", len(text))
		}
	}
	var bomb bytes.Buffer
	w, err := flate.NewWriter(&bomb, flate.BestSpeed)
	if err == nil {
		_, err = io.CopyN(w, zeros{}, MaxMessage+1)
	}
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	for name, packed := range map[string][]byte{"too large": bomb.Bytes(), "not compressed": []byte("{}"), "not JSON": {0x01, 0x01, 0x00, 0xfe, 0xff, 'x'}} {
		text, err := json.Marshal(packed)
		if err != nil {
			t.Fatal(err)
		}
		var a Addresses
		if err := json.Unmarshal(text, &a); err == nil || !strings.HasPrefix(err.Error(), "addresses of the tasks: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
