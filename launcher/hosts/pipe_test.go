package hosts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/launcher/transport"
)

// piped turns a function on streams into a protocol.Handler: orders become
// stdin, and writes to stdout become pieces.
func piped(do func(ctx context.Context, in string, stdin io.Reader, stdout io.Writer) error) protocol.Handler {
	return protocol.HandleStream(func(ctx context.Context, in string, call *protocol.Answering) (struct{}, error) {
		return struct{}{}, do(ctx, in, call, call)
	})
}

// moving simulates a host whose agent transfers data. The method "echo" writes
// what it reads, and "say" writes its argument. "fail" fails after that, and
// "stay" waits for the end of the connection.
func moving() *fronted {
	say := func(after func(ctx context.Context) error) protocol.Handler {
		return piped(func(ctx context.Context, in string, _ io.Reader, stdout io.Writer) error {
			if _, err := io.WriteString(stdout, in); err != nil {
				return err
			}
			return after(ctx)
		})
	}
	return &fronted{facts: factsHere, gpus: true, dies: make(chan error), pipes: map[protocol.Method]protocol.Handler{
		"echo": piped(func(_ context.Context, _ string, stdin io.Reader, stdout io.Writer) error {
			_, err := io.Copy(stdout, stdin)
			return err
		}),
		"say": say(func(context.Context) error { return nil }),
		"fail": say(func(context.Context) error {
			return &protocol.Failure{Text: "the disk is full", Hint: "remove something"}
		}),
		"stay": say(func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }),
	}}
}

func agentOf(h *Host) *AgentHost {
	return &AgentHost{Host: h, Binary: envsync.BlobPath(agentBlob.Sum)}
}

// says returns an error unless the agent serves the method "say" in time.
func says(t *testing.T, a *AgentHost) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience.Limit)
	defer cancel()
	var out bytes.Buffer
	if err := Pipe(ctx, a, "say", "hello", nil, &out); err != nil {
		return err
	}
	if out.String() != "hello" {
		return fmt.Errorf("it says %q", out.String())
	}
	return nil
}

// noise returns n pseudorandom bytes.
func noise(seed byte, n int) []byte {
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(data) // never fails
	return data
}

// told is a writer that reports its first write.
type told struct {
	io.Writer
	once  sync.Once
	first chan struct{}
}

func telling(w io.Writer) *told { return &told{Writer: w, first: make(chan struct{})} }

func (w *told) Write(p []byte) (int, error) {
	w.once.Do(func() { close(w.first) })
	return w.Writer.Write(p)
}

// within receives from c, or fails the test after a time limit.
func within[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience.Limit):
		t.Fatalf("not within %s: %s", patience.Limit, what)
	}
	return v
}

// Data flows in both directions, in the session of the idle agent that later
// starts the job. An agent that reports an error keeps running.
func TestPipe(t *testing.T) {
	f := moving()
	h := f.host(t)
	a := agentOf(h)
	ctx, cancel := context.WithTimeout(t.Context(), patience.Limit)
	defer cancel()
	for _, n := range []int{0, 1, 128 << 10, 128<<10 + 1, 1 << 20} {
		want, got := noise(1, n), bytes.Buffer{}
		if err := Pipe(ctx, a, "echo", "", bytes.NewReader(want), &got); err != nil || !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%d bytes: %d came back, %v", n, got.Len(), err)
		}
	}
	if err := Pipe(ctx, a, "echo", "", io.MultiReader(strings.NewReader("ab"), failing{}), io.Discard); err != nil {
		t.Errorf("an input that fails ends it: %v", err)
	}
	var got bytes.Buffer
	if err := Pipe(ctx, a, "say", "hello", nil, &got); err != nil || got.String() != "hello" {
		t.Errorf("without input: %q, %v", got.String(), err)
	}
	got.Reset()
	err := Pipe(ctx, a, "fail", "hello", nil, &got)
	if failure := (*protocol.Failure)(nil); !errors.As(err, &failure) || failure.Text != "the disk is full" || failure.Hint == "" || got.String() != "hello" {
		t.Errorf("%q, %v", got.String(), err)
	}
	err = Pipe(ctx, a, "dance", "", bytes.NewReader(noise(1, 1<<20)), io.Discard)
	if failure := (*protocol.Failure)(nil); !errors.As(err, &failure) || !strings.Contains(err.Error(), `does not know the request "dance"`) {
		t.Errorf("%v", err)
	}
	if !h.HasIdleAgent() || f.begun.Load() != 1 {
		t.Errorf("an agent waits: %v, %d were started", h.HasIdleAgent(), f.begun.Load())
	}
	if _, err := a.Start(ctx, protocol.Spec{}); err != nil || f.begun.Load() != 1 {
		t.Errorf("%v, %d agents", err, f.begun.Load())
	}
}

type failing struct{}

var errFailing = errors.New("it fails")

func (failing) Read([]byte) (int, error)  { return 0, errFailing }
func (failing) Write([]byte) (int, error) { return 0, errFailing }

// Several Pipe calls on one host run one after the other, with one agent.
func TestPipesRunOneAfterAnother(t *testing.T) {
	f := moving()
	var now, most atomic.Int64
	a := agentOf(f.host(t))
	ctx, cancel := context.WithTimeout(t.Context(), patience.Limit)
	defer cancel()
	var all sync.WaitGroup
	for i := range byte(8) {
		all.Go(func() {
			want, got := noise(i, 400_000), bytes.Buffer{}
			turn := &turns{Reader: bytes.NewReader(want), now: &now, most: &most}
			if err := Pipe(ctx, a, "echo", "", turn, &got); err != nil || !bytes.Equal(got.Bytes(), want) {
				t.Errorf("%d: %d bytes came back, %v", i, got.Len(), err)
			}
		})
	}
	all.Wait()
	if n := most.Load(); n != 1 {
		t.Errorf("%d at once", n)
	}
	if n := f.begun.Load(); n != 1 {
		t.Errorf("%d agents", n)
	}
}

// turns counts inputs that are being read.
type turns struct {
	io.Reader
	now, most *atomic.Int64
	begun     bool
}

func (r *turns) Read(p []byte) (int, error) {
	if !r.begun {
		r.begun = true
		r.most.Store(max(r.most.Load(), r.now.Add(1)))
	}
	n, err := r.Reader.Read(p)
	if err != nil {
		r.now.Add(-1)
	}
	return n, err
}

// If the writer fails, the call ends. The agent, which may still send data, is
// closed, and the next call starts another one.
func TestPipeReturnsWriterError(t *testing.T) {
	f := moving()
	h := f.host(t)
	a := agentOf(h)
	ctx, cancel := context.WithTimeout(t.Context(), patience.Limit)
	defer cancel()
	if err := Pipe(ctx, a, "stay", "hello", nil, failing{}); !errors.Is(err, errFailing) || h.HasIdleAgent() || f.open.Load() != 0 {
		t.Errorf("%v, %d agents wait", err, f.open.Load())
	}
	if err := says(t, a); err != nil || f.begun.Load() != 2 {
		t.Errorf("%v, %d agents", err, f.begun.Load())
	}
}

// The writer's error is returned even if the agent has sent everything and
// replies at once.
func TestPipeReturnsLastWriterError(t *testing.T) {
	a := agentOf(moving().host(t))
	ctx, cancel := context.WithTimeout(t.Context(), patience.Limit)
	defer cancel()
	for i := range 1000 {
		if err := Pipe(ctx, a, "say", "hello", nil, failing{}); !errors.Is(err, errFailing) {
			t.Fatalf("after %d: %v", i, err)
		}
	}
}

// A failed Pipe call does not affect a call that waits for its turn.
func TestPipeWorksAfterFailedPipe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := moving()
		a := agentOf(f.host(t))
		ctx, cancel := context.WithTimeout(t.Context(), patience.Limit)
		defer cancel()
		fails := make(chan struct{})
		first := telling(writerFunc(func([]byte) (int, error) {
			<-fails
			return 0, errFailing
		}))
		ended := make(chan error, 3)
		go func() { ended <- Pipe(ctx, a, "stay", "hello", nil, first) }()
		within(t, "the first piece", first.first)
		for range 2 {
			go func() { ended <- says(t, a) }()
		}
		synctest.Wait() // both other calls are waiting
		close(fails)
		failed := 0
		for range 3 {
			if err := within(t, "all have ended", ended); errors.Is(err, errFailing) {
				if failed++; failed > 1 {
					t.Error("the error of another one's writer is told")
				}
			} else if err != nil {
				t.Error(err)
			}
		}
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience.Limit); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", patience.Limit, what)
		}
	}
}

// If the agent ends during a call, or its host is lost, the call returns an
// error, and the next call starts another agent.
func TestPipeReportsLostConnection(t *testing.T) {
	lost := &transport.LostError{Host: "h1", Cause: errors.New("no route to host")}
	for name, c := range map[string]struct {
		how error
		is  func(error) bool
	}{
		"ends well":  {nil, func(err error) bool { return err != nil }},
		"is killed":  {&transport.ExitError{Status: 137}, func(err error) bool { return transport.ExitStatus(err) == 137 }},
		"is lost":    {lost, transport.IsLost},
		"half input": {lost, transport.IsLost},
	} {
		f := moving()
		h := f.host(t)
		a := agentOf(h)
		ctx, cancel := context.WithTimeout(t.Context(), patience.Limit)
		var got bytes.Buffer
		out, ended := telling(&got), make(chan error, 1)
		do, stdin := protocol.Method("stay"), io.Reader(nil)
		if name == "half input" {
			in, feed := io.Pipe()
			defer feed.Close()
			go io.WriteString(feed, "hello") // comes back
			do, stdin = "echo", in
		}
		go func() { ended <- Pipe(ctx, a, do, "hello", stdin, out) }()
		within(t, "the first piece", out.first)
		f.dies <- c.how
		if err := within(t, "the end", ended); err == nil || !c.is(err) || got.String() != "hello" || h.HasIdleAgent() || f.open.Load() != 0 {
			t.Errorf("%s: %v, %q, %d agents", name, err, got.String(), f.open.Load())
		}
		if err := says(t, a); err != nil || f.begun.Load() != 2 {
			t.Errorf("%s: then %v, %d agents", name, err, f.begun.Load())
		}
		cancel()
	}
}

// Canceling ctx ends a running call and its agent.
func TestCanceledPipeReturns(t *testing.T) {
	f := moving()
	h := f.host(t)
	a := agentOf(h)
	over := errors.New("over")
	ctx, cancel := context.WithCancelCause(t.Context())
	out, ended := telling(io.Discard), make(chan error, 1)
	go func() { ended <- Pipe(ctx, a, "stay", "hello", nil, out) }()
	within(t, "the first piece", out.first)
	cancel(over)
	if err := within(t, "the end", ended); !errors.Is(err, over) || h.HasIdleAgent() || f.open.Load() != 0 {
		t.Errorf("%v, %d agents wait", err, f.open.Load())
	}
	if err := says(t, a); err != nil || f.begun.Load() != 2 {
		t.Errorf("then %v, %d agents", err, f.begun.Load())
	}
}

// Canceling ctx also ends a call that waits for its turn, but not the running
// call.
func TestCanceledPipeStopsWaitingForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := moving()
		a := agentOf(f.host(t))
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		in, feed := io.Pipe()
		defer feed.Close()
		first, one := make(chan error, 1), telling(io.Discard)
		go func() { first <- Pipe(ctx, a, "echo", "", in, one) }()
		go io.WriteString(feed, "hello") // comes back
		within(t, "the first piece", one.first)
		over := errors.New("over")
		short, cancel := context.WithCancelCause(t.Context())
		second := make(chan error, 1)
		go func() { second <- Pipe(short, a, "say", "hello", nil, io.Discard) }()
		synctest.Wait() // until the other call waits for its turn
		cancel(over)
		select {
		case err := <-second:
			if !errors.Is(err, over) {
				t.Errorf("%v", err)
			}
		case <-time.After(patience.Limit):
			t.Error("it waits on")
		}
		feed.Close()
		if err := within(t, "the end of the first", first); err != nil || f.begun.Load() != 1 {
			t.Errorf("the first one: %v, %d agents", err, f.begun.Load())
		}
	})
}

// Pipe does not write to its writer after it has returned.
func TestPipeDoesNotWriteAfterReturn(t *testing.T) {
	for name, end := range map[string]func(*fronted, context.CancelFunc){
		"ctx ends":       func(_ *fronted, cancel context.CancelFunc) { cancel() },
		"the agent ends": func(f *fronted, _ context.CancelFunc) { f.dies <- nil },
	} {
		f := moving()
		a := agentOf(f.host(t))
		ctx, cancel := context.WithCancel(t.Context())
		var writing atomic.Bool
		out := telling(writerFunc(func(p []byte) (int, error) {
			writing.Store(true)
			defer writing.Store(false)
			waitFor(t, "the session has ended", func() bool { return f.open.Load() == 0 })
			return len(p), nil
		}))
		ended := make(chan error, 1)
		go func() {
			err := Pipe(ctx, a, "stay", "hello", nil, out)
			if writing.Load() {
				err = errors.Join(err, errors.New("its writer is still in use"))
			}
			ended <- err
		}()
		within(t, "the first piece", out.first)
		end(f, cancel)
		if err := within(t, "the end", ended); err == nil || strings.Contains(err.Error(), "in use") {
			t.Errorf("%s: %v", name, err)
		}
		waitFor(t, "the writer has ended", func() bool { return !writing.Load() })
		cancel()
	}
}

// An agent that serves a long call is not replaced, although the last request
// was long ago, neither during the call nor after it.
func TestBusyAgentIsNotReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := moving()
		h := f.host(t)
		a := agentOf(h)
		for _, asks := range []bool{true, false} { // whether another call is made meanwhile
			in, feed := io.Pipe()
			out, ended := telling(io.Discard), make(chan error, 1)
			go func() { ended <- Pipe(t.Context(), a, "echo", "", in, out) }()
			go io.WriteString(feed, "hello") // comes back
			within(t, "the first piece", out.first)
			i := h.idle.Load()
			<-time.After(idleFresh)
			if same, err := a.waiting(t.Context()); err != nil || same != i {
				t.Errorf("it was replaced: %v", err)
			}
			answered := make(chan error, 1)
			if asks {
				go func() {
					_, err := Call[protocol.State](t.Context(), a, patience.Limit, protocol.DoState, protocol.HostJob{})
					answered <- err
				}()
			}
			feed.Close()
			if err := within(t, "the end", ended); err != nil {
				t.Error(err)
			}
			if asks {
				if err := within(t, "the answer", answered); !protocol.CodeForgotten.Is(err) {
					t.Error(err)
				}
			}
			if same, err := a.waiting(t.Context()); err != nil || same != i {
				t.Errorf("after its end it was replaced: %v", err)
			}
		}
		if f.begun.Load() != 1 || f.cut.Load() != 0 {
			t.Errorf("%d agents, %d of them cut off", f.begun.Load(), f.cut.Load())
		}
	})
}

// received returns a channel with the messages that the host receives after
// the Spec of a job.
func (f *fronted) received() <-chan []protocol.Message {
	got := make(chan []protocol.Message, 1)
	f.job = func(c *protocol.Conn) {
		var all []protocol.Message
		for m, err := c.Receive(); err == nil && m.Notice != "end"; m, err = c.Receive() {
			all = append(all, m)
		}
		got <- all
	}
	return got
}

// late is an input whose data arrives after the end of the call.
type late struct {
	begin chan struct{} // closed to let the data arrive
	came  chan struct{} // closed when all data was read
	reads int
}

func (l *late) Read(p []byte) (int, error) {
	l.reads++
	switch l.reads {
	case 1:
		<-l.begin
		return copy(p, "late"), nil
	case 2:
		return copy(p, "later"), nil
	}
	close(l.came)
	return 0, io.EOF
}

// A job is started after a Pipe call whose input ends later: none of the input
// is sent among the job's messages.
func TestLatePipeInputIsNotSentToJob(t *testing.T) {
	f := moving()
	got := f.received()
	a := agentOf(f.host(t))
	in := &late{begin: make(chan struct{}), came: make(chan struct{})}
	if err := Pipe(t.Context(), a, "say", "hello", in, io.Discard); err != nil {
		t.Fatal(err)
	}
	conn, err := a.Start(t.Context(), protocol.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	close(in.begin)
	within(t, "the end of the input", in.came)
	if err := conn.Send(protocol.Message{Notice: "end"}); err != nil {
		t.Fatal(err)
	}
	if all := within(t, "the job's messages", got); len(all) > 0 || f.specs.Load() != 1 || f.begun.Load() != 1 {
		t.Errorf("%d jobs, which got %+v", f.specs.Load(), all)
	}
}

// endlessInput returns data until over is set.
type endlessInput struct{ over atomic.Bool }

func (e *endlessInput) Read(p []byte) (int, error) {
	if e.over.Load() {
		return 0, io.EOF
	}
	return len(p), nil
}

// The agent may also reply while the input of a Pipe call is still being sent.
func TestEarlyReplyEndsPipeInput(t *testing.T) {
	for range 20 {
		f := moving()
		got := f.received()
		a := agentOf(f.host(t))
		in := &endlessInput{}
		t.Cleanup(func() { in.over.Store(true) })
		ctx, cancel := context.WithTimeout(t.Context(), patience.Limit)
		if err := Pipe(ctx, a, "say", "hello", in, io.Discard); err != nil {
			t.Fatal(err)
		}
		conn, err := a.Start(ctx, protocol.Spec{})
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			err = errors.Join(err, conn.Send(protocol.Message{Renew: &protocol.Renew{}}))
		}
		if err := errors.Join(err, conn.Send(protocol.Message{Notice: "end"})); err != nil {
			t.Fatal(err)
		}
		all := within(t, "the job's messages", got)
		for _, m := range all {
			if m.Renew == nil {
				t.Fatalf("an order of %d bytes came after the Spec", len(m.Order.Data))
			}
		}
		in.over.Store(true)
		cancel()
	}
}
