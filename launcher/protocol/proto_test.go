package protocol

import (
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

func FuzzReceive(f *testing.F) {
	f.Add([]byte("\x02\x00\x00\x00{}"))
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Add([]byte("\x00\x00\x00\x01{\"notice\":\"x\"}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Open(&script{Reader: io.MultiReader(strings.NewReader(magic), strings.NewReader(string(data)))})
		if err != nil {
			t.Fatal(err)
		}
		for {
			if _, err := c.Receive(); err != nil {
				return
			}
		}
	})
}
