package launcher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/plx-run/plx/launcher/conductor"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/launcher/ssh"
)

// noAgent is the exit status of "agent connect" where there is no agent.
const noAgent = 3

// stream is a command on a host as a byte stream. Reading returns the
// command's error where it ended with one.
type stream struct {
	in     *io.PipeWriter
	out    *io.PipeReader
	cancel context.CancelCauseFunc
	done   chan struct{}
	ended  time.Time // once done is closed
}

// openStream runs command on r until Close; the end of ctx does not end it.
func openStream(ctx context.Context, r *remote, command string) *stream {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	s := &stream{in: inW, out: outR, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		stderr := &tail{limit: 4 << 10}
		err := r.Run(ctx, command, inR, outW, stderr)
		if err != nil {
			err = explain(err, stderr.String())
		}
		s.ended = time.Now()
		outW.CloseWithError(err) // nil reads as io.EOF
		inR.CloseWithError(io.ErrClosedPipe)
	}()
	return s
}

// explain adds what the command said on stderr to its error. Who reads it
// names the host.
func explain(err error, said string) error {
	var lost *ssh.LostError
	if errors.As(err, &lost) {
		return &retold{err, "ssh: " + lost.Cause.Error()}
	}
	if said = strings.TrimSpace(said); said == "" {
		return err
	}
	return fmt.Errorf("%s (%w)", said, err)
}

func (s *stream) Read(p []byte) (int, error)  { return s.out.Read(p) }
func (s *stream) Write(p []byte) (int, error) { return s.in.Write(p) }

// alive is when the connection was last known to be there.
func (s *stream) alive() time.Time {
	select {
	case <-s.done:
		return s.ended
	default:
		return time.Now()
	}
}

// Close ends the command's input and, at once, the command. What the host
// does with a command whose channel is closed is its own affair; agents are
// built for it.
func (s *stream) Close() error {
	s.in.Close()
	s.cancel(nil)
	s.out.CloseWithError(io.ErrClosedPipe)
	<-s.done
	return nil
}

// parting is how long a command that has said its last may take to exit.
const parting = 5 * time.Second

// finish closes the stream once the command has ended by itself, so that it
// is not left running on the host.
func (s *stream) finish() error {
	s.in.Close()
	select {
	case <-s.done:
	case <-time.After(parting):
	}
	return s.Close()
}

// exitStatus is the exit status of a command that ended by itself, else -1.
func exitStatus(err error) int {
	var e interface{ ExitStatus() int }
	if errors.As(err, &e) {
		return e.ExitStatus()
	}
	return -1
}

// tail keeps the last bytes written to it.
type tail struct {
	mu    sync.Mutex
	limit int
	buf   bytes.Buffer
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf.Write(p)
	if over := t.buf.Len() - t.limit; over > 0 {
		t.buf.Next(over)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.buf.String()
}

// station is a host's agent as the launcher reaches it.
type station struct {
	*remote
	job    string
	folder string
	binary string // the agent's path on the host, relative to the home
}

func (s *station) command(words string) string {
	return fmt.Sprintf(`exec "$HOME"/%s agent %s`, s.binary, words)
}

// open speaks the protocol with a command on the host. ctx bounds the opening
// only.
func (s *station) open(ctx context.Context, words string) (*protocol.Conn, error) {
	st := openStream(ctx, s.remote, s.command(words))
	stop := context.AfterFunc(ctx, func() { st.Close() })
	conn, err := protocol.Open(st)
	if !stop() {
		st.Close() // ctx ended: its error is the one that counts
		return nil, context.Cause(ctx)
	}
	return conn, err
}

// start starts the agent with its spec. An agent that cannot start is no
// agent: dialling again is of no use.
func (s *station) start(ctx context.Context, spec protocol.Spec) (*protocol.Conn, error) {
	conn, err := s.open(ctx, "start")
	if err == nil {
		err = conn.Send(protocol.Message{Spec: &spec})
	}
	if err != nil {
		return nil, &noStart{fmt.Errorf("start agent: %w", err)}
	}
	return conn, nil
}

// noStart is the error of an agent that never was. To a conductor it is the
// same as one that is gone.
type noStart struct{ error }

func (e *noStart) Unwrap() error        { return e.error }
func (e *noStart) Is(target error) bool { return target == conductor.ErrNoAgent }

// connect reaches the running agent. Where it is gone, what it may have left
// behind is ended before ErrNoAgent is returned.
func (s *station) connect(ctx context.Context) (*protocol.Conn, error) {
	conn, err := s.open(ctx, "connect "+s.where())
	if exitStatus(err) != noAgent {
		return conn, err
	}
	if err := s.reap(ctx); err != nil {
		return nil, err // to be tried again: something may be left
	}
	return nil, fmt.Errorf("%w: %s", conductor.ErrNoAgent, s.epitaph(ctx))
}

// epitaph says why the agent is gone, as far as the host knows.
func (s *station) epitaph(ctx context.Context) string {
	state, err := s.state(ctx)
	if err != nil || state.Verdict == nil {
		return "nothing is known of its end"
	}
	return strings.TrimPrefix(state.Verdict.Reason, "host "+s.host.Name+": ")
}

// reap ends whatever of the job still runs on the host.
func (s *station) reap(ctx context.Context) error {
	var stderr tail
	stderr.limit = 4 << 10
	if err := s.Run(ctx, s.command("reap "+s.where()), nil, io.Discard, &stderr); err != nil {
		return fmt.Errorf("end what the agent left: %w", explain(err, stderr.String()))
	}
	return nil
}

func (s *station) where() string { return s.job + " " + s.folder }
