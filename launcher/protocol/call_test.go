package protocol

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
)

// asked returns a Caller, and the agent's end of its connection.
func asked(t *testing.T) (*Caller, *Conn) {
	a, b := pair(t)
	return NewCaller(a), b
}

// Concurrent calls from many goroutines each get their own result, or their
// own error with code, text and hint.
func TestCalls(t *testing.T) {
	c, agent := asked(t)
	served := make(chan Message)
	go func() {
		m, err := Serve(t.Context(), agent, map[Method]Handler{
			"double": Handle(func(_ context.Context, n int) (int, error) { return 2 * n, nil }),
			"refuse": Handle(func(context.Context, string) (int, error) {
				return 0, fmt.Errorf("well: %w", &Failure{Code: CodeTaken, Text: "it is taken", Hint: "take another"})
			}),
			"fail": Handle(func(context.Context, string) (int, error) { return 0, errors.New("one\ntwo") }),
		}, patience.Limit)
		if err != nil {
			t.Error(err)
		}
		served <- m
	}()
	var all sync.WaitGroup
	for n := range 50 {
		all.Go(func() {
			var got int
			if err := ask(t, c, "double", n, &got); err != nil || got != 2*n {
				t.Errorf("%d: %d, %v", n, got, err)
			}
		})
	}
	all.Wait()
	for do, want := range map[Method]Failure{
		"refuse": {CodeTaken, "it is taken", "take another"},
		"fail":   {Text: "one; two"},
		"dance":  {Text: `this version of plx does not know the request "dance"`},
		"double": {Text: "decode the parameter: json: cannot unmarshal string into Go value of type int"},
	} {
		err := ask(t, c, do, "x", nil)
		if f := (*Failure)(nil); !errors.As(err, &f) || *f != want {
			t.Errorf("%s: %v", do, err)
		}
	}
	conn, err := c.Detach()
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Send(Message{Notice: "job"}); err != nil {
		t.Fatal(err)
	}
	if m := <-served; m.Notice != "job" {
		t.Errorf("%+v", m)
	}
	if _, err := c.Begin("double", 1, nil); !errors.Is(err, ErrDetached) {
		t.Errorf("%v", err)
	}
}

// ask makes a call and waits for the reply, but not forever.
func ask(t *testing.T, c *Caller, do Method, in, out any) error {
	t.Helper()
	p, err := c.Begin(do, in, nil)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience.Limit)
	defer cancel()
	return p.Wait(ctx, out)
}

// A wrong message from the agent, or a lost connection, makes all pending
// calls fail.
func TestWrongAnswersEndTheCalls(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(*Conn, Call) error
		want   string
	}{
		"of another call": {func(a *Conn, c Call) error { return a.Send(Message{Reply: &Reply{ID: c.ID + 7}}) }, "answers no pending call"},
		"twice": {func(a *Conn, c Call) error {
			return errors.Join(a.Send(Message{Reply: &Reply{ID: 1, Out: json.RawMessage("1")}}), a.Send(Message{Reply: &Reply{ID: 1, Out: json.RawMessage("1")}}))
		}, "answers no pending call"},
		"no answer at all": {func(a *Conn, _ Call) error { return a.Send(Message{Notice: "hello"}) }, "answers no pending call"},
		"pieces of a call that prints nothing": {func(a *Conn, c Call) error {
			return a.Send(Message{Piece: &Piece{ID: c.ID, Stream: 1, Data: []byte("x")}})
		}, "answers no pending call"},
		"the end": {func(a *Conn, _ Call) error { return a.Close() }, "EOF"},
		"too long": {func(a *Conn, _ Call) error {
			_, err := a.stream.Write([]byte{0xff, 0xff, 0xff, 0xff})
			return err
		}, "at most"},
		"no JSON": {func(a *Conn, _ Call) error {
			_, err := a.stream.Write([]byte{1, 0, 0, 0, '{'})
			return err
		}, "message"},
	} {
		caller, agent := asked(t)
		go func() {
			for range 2 {
				if _, err := agent.Receive(); err != nil {
					return
				}
			}
			_ = c.answer(agent, Call{ID: 2}) // the other side may have closed already
		}()
		first, err := caller.Begin("x", 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		second, err := caller.Begin("x", 2, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience.Limit)
		if err := second.Wait(ctx, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if err := first.Wait(ctx, nil); (err == nil) != (name == "twice") {
			t.Errorf("%s: the other call: %v", name, err)
		}
		cancel()
		if _, err := caller.Begin("x", 3, nil); err == nil {
			t.Errorf("%s: calls go on", name)
		}
		if _, err := caller.Detach(); err == nil {
			t.Errorf("%s: the connection is given away", name)
		}
	}
}

// If the caller stops waiting for a call, the connection is closed and the
// agent's handler is cancelled.
func TestAbandonedCallEndsItsHandler(t *testing.T) {
	c, agent := asked(t)
	begun, served := make(chan bool), make(chan error)
	go func() {
		_, err := Serve(t.Context(), agent, map[Method]Handler{"wait": Handle(func(ctx context.Context, _ int) (int, error) {
			begun <- true
			<-ctx.Done()
			return 0, context.Cause(ctx)
		})}, patience.Limit)
		served <- err
	}()
	ctx, cancel := context.WithCancelCause(t.Context())
	p, err := c.Begin("wait", 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	<-begun
	stopped := errors.New("interrupted")
	cancel(stopped)
	if err := p.Wait(ctx, nil); !errors.Is(err, stopped) {
		t.Errorf("%v", err)
	}
	if err := <-served; err == nil {
		t.Error("the agent goes on")
	}
}

// Serve returns an error if no message arrives in time, or if the connection
// is closed.
func TestServeEndsWithoutMessages(t *testing.T) {
	_, agent := asked(t)
	if _, err := Serve(t.Context(), agent, nil, time.Millisecond); !errors.Is(err, ErrPeerTimeout) || err.Error() != "no message from plx for 1ms" {
		t.Errorf("%v", err)
	}
	c, agent := asked(t)
	c.Close(errors.New("over"))
	if _, err := Serve(t.Context(), agent, nil, patience.Limit); err != io.EOF {
		t.Errorf("%v", err)
	}
}

// The error names the other version if the agent uses another protocol
// version.
func TestOpenCallsReportsAgentOfAnotherVersion(t *testing.T) {
	a, b := net.Pipe()
	go func() {
		_, err := io.WriteString(b, magic)
		if err == nil {
			_, err = io.Copy(io.Discard, b)
		}
		if err != nil {
			t.Error(err)
		}
	}()
	if _, err := OpenCalls(a); err == nil || !strings.Contains(err.Error(), "of another version of plx (plx-agent-1)") {
		t.Errorf("%v", err)
	}
}

// Order messages reach the handler and Piece messages reach the caller until
// the call is answered. Later ones are dropped.
func TestOrdersAndPieces(t *testing.T) {
	c, agent := asked(t)
	go Serve(t.Context(), agent, map[Method]Handler{
		"echo": HandleStream(func(_ context.Context, in string, call *Answering) (string, error) {
			if _, err := io.Copy(call, call.PipeReader); err != nil {
				return "", err
			}
			return in, call.Send(2, []byte("end"))
		}),
		"double": Handle(func(_ context.Context, n int) (int, error) { return 2 * n, nil }),
	}, patience.Limit)
	ctx, cancel := context.WithTimeout(t.Context(), patience.Limit)
	defer cancel()
	var printed [3]string
	p, err := c.Begin("echo", "done", func(p Piece) { printed[p.Stream] += string(p.Data) })
	if err != nil {
		t.Fatal(err)
	}
	other, err := c.Begin("double", 4, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, order := range []string{"a", "b", "c", ""} {
		p.Order([]byte(order))
	}
	var out string
	if err := p.Wait(ctx, &out); err != nil || out != "done" || printed != [3]string{"", "abc", "end"} {
		t.Errorf("%q, %v, printed %q", out, err, printed)
	}
	p.Order([]byte("late"))
	for _, q := range []*Pending{other, nil} {
		if q == nil {
			if q, err = c.Begin("double", 4, nil); err != nil {
				t.Fatal(err)
			}
		}
		var n int
		if err := q.Wait(ctx, &n); err != nil || n != 8 {
			t.Errorf("%d, %v", n, err)
		}
	}
}

// pattern returns n bytes without a short period, so that misplaced data is
// noticed.
func pattern(n int) []byte {
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data) // never fails
	return data
}

// The handler reads the data of all Order messages as one stream, whatever the
// sizes of messages and reads.
func TestHandlerReadsOrdersAsOneStream(t *testing.T) {
	sizes := []int{1, 2, 3, 1000, 4096, 1, maxPiece + 1}
	var want []byte
	for _, n := range sizes {
		want = append(want, pattern(n)...)
	}
	for name, read := range map[string]func(io.Reader) io.Reader{
		"as they come":  func(r io.Reader) io.Reader { return r },
		"byte by byte":  iotest.OneByteReader,
		"by thousands":  func(r io.Reader) io.Reader { return struct{ io.Reader }{bufio.NewReaderSize(r, 1000)} },
		"by half reads": iotest.HalfReader,
	} {
		c, agent := asked(t)
		go Serve(t.Context(), agent, map[Method]Handler{
			"sum": HandleStream(func(ctx context.Context, _ int, call *Answering) ([]byte, error) {
				got, err := io.ReadAll(read(call))
				if n, again := call.Read(make([]byte, 1)); n != 0 || again != io.EOF {
					t.Errorf("%s: after the end %d, %v", name, n, again)
				}
				return got, err
			}),
		}, patience.Limit)
		p, err := c.Begin("sum", 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		rest := want
		for _, n := range sizes {
			p.Order(rest[:n])
			rest = rest[n:]
		}
		p.Order(nil)
		ctx, cancel := context.WithTimeout(t.Context(), patience.Limit)
		var got []byte
		if err := p.Wait(ctx, &got); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes of %d, %v", name, len(got), len(want), err)
		}
		cancel()
	}
}

// A handler that is reading orders is unblocked if the connection is lost or
// its context ends. It can still read the data that arrived before.
func TestStreamOfOrdersEnds(t *testing.T) {
	over := errors.New("over")
	for name, theirs := range map[string]error{"the caller goes": io.ErrUnexpectedEOF, "the time is over": over} {
		c, agent := asked(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		begun, ended := make(chan bool), make(chan error, 1)
		go Serve(ctx, agent, map[Method]Handler{
			"read": HandleStream(func(ctx context.Context, _ int, call *Answering) (int, error) {
				if _, err := io.ReadFull(call, make([]byte, 3)); err != nil {
					t.Error(err)
				}
				begun <- true
				rest, err := io.ReadAll(call)
				if theirs != over && string(rest) != "d" {
					t.Errorf("%s: %q", name, rest)
				}
				ended <- err
				return 0, err
			}),
		}, patience.Limit)
		p, err := c.Begin("read", 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		p.Order([]byte("abcd"))
		<-begun
		if theirs == over {
			cancel(over)
		} else {
			c.Close(errors.New("the caller goes"))
		}
		select {
		case err := <-ended:
			if err != theirs {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(patience.Limit):
			t.Errorf("%s: the reader waits on", name)
		}
		cancel(nil)
	}
}

// Write splits a large output into pieces, so that a lease renewal is not
// delayed much.
func TestWriteSplitsOutputIntoPieces(t *testing.T) {
	c, agent := asked(t)
	go Serve(t.Context(), agent, map[Method]Handler{
		"write": HandleStream(func(_ context.Context, n int, call *Answering) (int, error) { return call.Write(pattern(n)) }),
	}, patience.Limit)
	ctx, cancel := context.WithTimeout(t.Context(), patience.Limit)
	defer cancel()
	for n, want := range map[int]int{0: 0, 1: 1, maxPiece - 1: 1, maxPiece: 1, maxPiece + 1: 2, 3*maxPiece + 5: 4} {
		var got []byte
		pieces := 0
		p, err := c.Begin("write", n, func(p Piece) {
			pieces++
			if got = append(got, p.Data...); len(p.Data) == 0 || len(p.Data) > maxPiece || p.Stream != 1 {
				t.Errorf("a piece of %d bytes of stream %d", len(p.Data), p.Stream)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		var wrote int
		if err := p.Wait(ctx, &wrote); err != nil || wrote != n || pieces != want || !bytes.Equal(got, pattern(n)) {
			t.Errorf("%d bytes: %d in %d pieces, want %d, said %d, %v", n, len(got), pieces, want, wrote, err)
		}
	}
	c.Close(errors.New("over"))
	call := &Answering{conn: agent}
	if n, err := call.Write(pattern(2 * maxPiece)); err == nil || n != 0 {
		t.Errorf("on a connection that has ended: %d, %v", n, err)
	}
}

// After Wait has returned, Order sends nothing, so that the connection can be
// used for other messages.
func TestOrderSendsNothingAfterWait(t *testing.T) {
	c, agent := asked(t)
	got := make(chan Message, 1)
	go func() {
		_, err := agent.Receive()
		if err == nil {
			err = agent.Send(Message{Reply: &Reply{ID: 1, Out: json.RawMessage("1")}})
		}
		m, failed := agent.Receive()
		if err := errors.Join(err, failed); err != nil {
			t.Error(err)
		}
		got <- m
	}()
	p, err := c.Begin("x", 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience.Limit)
	defer cancel()
	if err := p.Wait(ctx, nil); err != nil {
		t.Fatal(err)
	}
	conn, err := c.Detach()
	if err != nil {
		t.Fatal(err)
	}
	go func() { // an order that is sent would wait for its reader
		p.Order([]byte("late"))
		p.Order(nil)
		if err := conn.Send(Message{Notice: "job"}); err != nil {
			t.Error(err)
		}
	}()
	if m := <-got; m.Notice != "job" {
		t.Errorf("%+v", m)
	}
}
