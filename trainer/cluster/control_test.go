package cluster

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

// controls returns both ends of a control channel.
func controls(t *testing.T) (agent, task *Control) {
	t.Helper()
	agent, file, err := ControlPair()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		t.Fatal(err)
	}
	task = newControl(conn)
	t.Cleanup(func() { agent.Close(); task.Close() })
	return agent, task
}

func TestControlMessagesArriveUnchanged(t *testing.T) {
	agent, task := controls(t)
	sent := []ControlMessage{
		{Kind: Hello, Version: ControlVersion}, {Kind: Heartbeat, Step: 1 << 40},
		{Kind: Failed, Cause: "it's \"broken\"\n", Peer: "worker:1 at 10.0.0.1:1"}, {Kind: Finished},
		{Kind: Heartbeat, Step: 7, From: 5}, {Kind: Finished, Step: 9, From: 3},
	}
	for _, m := range sent {
		if err := task.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	if err := agent.Send(ControlMessage{Kind: Stop}); err != nil {
		t.Fatal(err)
	}
	for _, want := range sent {
		if got, err := agent.Receive(); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
	}
	if got, err := task.Receive(); err != nil || got.Kind != Stop {
		t.Errorf("got %+v, %v; want stop", got, err)
	}
	task.Close()
	if _, err := agent.Receive(); err != io.EOF {
		t.Errorf("after the other end was closed: %v, want io.EOF", err)
	}
}

func TestControlSendFromManyGoroutines(t *testing.T) {
	agent, task := controls(t)
	const each = 200
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range each {
				if err := task.Send(ControlMessage{Kind: Heartbeat, Step: int64(i), Cause: strings.Repeat("x", 100*g)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	steps := map[int64]int{}
	for range 4 * each {
		m, err := agent.Receive()
		if err != nil {
			t.Fatal(err)
		}
		steps[m.Step]++
	}
	wg.Wait()
	for i := range int64(each) {
		if steps[i] != 4 {
			t.Errorf("step %d came %d times, want 4", i, steps[i])
		}
	}
}

func TestCloseEndsReceive(t *testing.T) {
	agent, _ := controls(t)
	got := make(chan error)
	go func() {
		_, err := agent.Receive()
		got <- err
	}()
	agent.Close()
	if err := <-got; err == nil {
		t.Error("Receive on a closed channel: no error")
	}
}

func TestControlRejectsLongMessages(t *testing.T) {
	agent, task := controls(t)
	if err := task.Send(ControlMessage{Kind: Failed, Cause: strings.Repeat("x", maxControl)}); err == nil {
		t.Error("a message over the bound was sent")
	}
	if err := task.Send(ControlMessage{Kind: Hello}); err != nil {
		t.Fatal(err)
	}
	if m, err := agent.Receive(); err != nil || m.Kind != Hello {
		t.Errorf("after a refused message: %+v, %v; want hello", m, err)
	}
}

// half is a connection that writes part of a message and then fails, like one
// whose write deadline has passed.
type half struct {
	net.Conn
	taken bytes.Buffer
	room  int
}

func (h *half) SetWriteDeadline(time.Time) error { return nil }
func (h *half) Write(p []byte) (int, error) {
	n, _ := h.taken.Write(p[:min(len(p), h.room)])
	h.room -= n
	if n < len(p) {
		return n, errors.New("no room")
	}
	return n, nil
}

func TestSendFailsAfterAPartialMessage(t *testing.T) {
	h := &half{room: 10}
	c := newControl(h)
	if err := c.Send(ControlMessage{Kind: Hello}); err == nil {
		t.Fatal("half a message was no error")
	}
	h.room = 1 << 20
	if err := c.Send(ControlMessage{Kind: Finished}); err == nil || !strings.Contains(err.Error(), "in part") {
		t.Errorf("after half a message: %v; want an error that says so", err)
	}
	if h.taken.Len() != 10 {
		t.Errorf("%d bytes went out, want the first 10", h.taken.Len())
	}
}

// receiveAll receives messages from data, as an agent does. It returns them
// and the final error.
func receiveAll(data []byte) (got []ControlMessage, err error) {
	ours, theirs := net.Pipe()
	go func() {
		theirs.Write(data) // Receive may fail before it has read everything
		theirs.Close()
	}()
	c := newControl(ours)
	defer c.Close()
	for {
		m, err := c.Receive()
		if err != nil {
			return got, err
		}
		got = append(got, m)
	}
}

func frame(body string) []byte {
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(body))), body...)
}

func TestReceiveRejectsInvalidMessages(t *testing.T) {
	cut := frame(`{"kind":"hello"}`)
	for name, c := range map[string]struct {
		data  []byte
		cause string
	}{
		"half a length":     {[]byte{1, 0}, "unexpected EOF"},
		"length only":       {cut[:4], "cut short: unexpected EOF"},
		"half a body":       {cut[:9], "cut short: unexpected EOF"},
		"a length too big":  {[]byte{1, 0, 1, 0}, "65537 bytes, at most 65536"},
		"the biggest":       {[]byte{255, 255, 255, 255}, "at most 65536"},
		"nothing":           {frame(""), "control message: unexpected end"},
		"no JSON":           {frame("hello"), "control message: invalid"},
		"another JSON type": {frame(`[1]`), "cannot unmarshal"},
	} {
		got, err := receiveAll(c.data)
		if err == nil || errors.Is(err, io.EOF) || !strings.Contains(err.Error(), c.cause) || len(got) > 0 {
			t.Errorf("%s: %v, %v; want %q", name, got, err, c.cause)
		}
	}
}

func FuzzControlReceive(f *testing.F) {
	f.Add(frame(`{"kind":"hello","version":1}`))
	f.Add(append(frame(`{"kind":"heartbeat","step":7}`), frame(`{"kind":"failed","cause":"\u0000","peer":"ps:0"}`)...))
	f.Add(frame(`{"kind":"heartbeat","step":9,"from":4,"group":1,"groups":3,"last":true,"cut":[4,0,7]}`))
	f.Add(frame(`{"kind":"finished","made":[],"cut":null,"group":-1}`))
	f.Add([]byte{255, 255, 255, 127})
	f.Fuzz(func(t *testing.T, data []byte) {
		got, _ := receiveAll(data)
		agent, task := net.Pipe()
		a, b := newControl(agent), newControl(task)
		defer a.Close()
		defer b.Close()
		for _, m := range got { // each message that was received must be valid to send
			sent := make(chan error, 1)
			go func() { sent <- a.Send(m) }()
			back, err := b.Receive()
			if sendErr := <-sent; sendErr != nil || err != nil || !reflect.DeepEqual(back, m) {
				t.Fatalf("%+v came back as %+v: %v, %v", m, back, sendErr, err)
			}
		}
	})
}
