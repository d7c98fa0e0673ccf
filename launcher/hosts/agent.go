package hosts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/bootstrap"
	"github.com/plx-run/plx/launcher/driver"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/launcher/transport"
)

// noAgent is the exit status of "plx agent" commands if no agent of the job
// runs on the host, or if no agent can be started.
const noAgent = 3

// NotFound is the exit status of a command that starts the agent if plx prune
// has deleted the agent's binary from the host.
const NotFound = 127

// ErrNoState means that a host has no files of the job, such as its saved
// state.
var ErrNoState = errors.New("nothing of the job is left there")

// AgentHost is a host together with the data that identifies one job's agent
// on that host.
type AgentHost struct {
	*Host
	Job    string // job id; "" for commands that concern no job
	Folder string // name of the host's directory under ~/.plx/jobs/<job>/
	Binary string // path of the agent's binary, relative to the home directory
}

// notExecuted explains the error of an agent that the host could not execute,
// for example because the home directory is mounted noexec.
func notExecuted(err error) error {
	const cannotExecute = 126 // exit status of a shell that lacks permission to execute a file
	if transport.ExitStatus(err) != cannotExecute {
		return err
	}
	return transport.WithMessage(err, bootstrap.NotExecutable(fmt.Sprintf("is the home mounted noexec? (%v)", err)))
}

// Logs runs "plx agent logs" on the host as a byte stream. The caller writes a
// logs.Request to the stream.
func (a *AgentHost) Logs(ctx context.Context) *Stream {
	return a.Stream(ctx, fmt.Sprintf(`exec "$HOME"/%s agent logs %s %s`, a.Binary, a.Job, a.Folder))
}

// Start starts the job's agent and sends spec to it. If Start fails, its error
// matches driver.ErrNoAgent. The driver then knows that there is no agent to
// reconnect to.
func (a *AgentHost) Start(ctx context.Context, spec protocol.Spec) (*protocol.Conn, error) {
	if i := a.idle.Load(); i != nil && i.other {
		a.closeIdle() // the idle agent has another plx version than the job's other agents, so it cannot serve the job
	}
	i, err := a.own(ctx, a.begin)
	if err != nil {
		return nil, NotStarted(fmt.Errorf("start agent: %w", err))
	}
	conn, err := i.calls.Detach()
	if err == nil {
		err = conn.Send(protocol.Message{Spec: &spec})
	}
	if err != nil {
		return nil, NotStarted(fmt.Errorf("start agent: %w", err))
	}
	return conn, nil
}

// withoutAgent wraps an error to record that no agent of the job runs on the
// host. It matches driver.ErrNoAgent.
type withoutAgent struct{ error }

func (e *withoutAgent) Unwrap() error        { return e.error }
func (e *withoutAgent) Is(target error) bool { return target == driver.ErrNoAgent }

// NotStarted wraps err to record that the agent did not start. The result
// matches driver.ErrNoAgent.
func NotStarted(err error) error { return &withoutAgent{err} }

// job returns the job id and directory that identify the job in calls to an
// agent.
func (a *AgentHost) job() protocol.HostJob { return protocol.HostJob{Job: a.Job, Folder: a.Folder} }

// Connect connects to the job's running agent. If no agent runs, the host
// first kills the job's remaining processes, and Connect returns a
// driver.ErrNoAgent.
func (a *AgentHost) Connect(ctx context.Context) (*protocol.Conn, error) {
	i, err := a.own(ctx, a.newIdle)
	if err != nil {
		return nil, err
	}
	err = i.call(ctx, AnswerTime, protocol.DoConnect, a.job(), nil)
	if err == nil {
		return i.calls.Detach()
	}
	a.giveBack(i, err)
	if protocol.CodeNoAgent.Is(err) {
		err = fmt.Errorf("%w: %s", driver.ErrNoAgent, transport.Unnamed(a.Name(), err))
	}
	return nil, err
}

// Reap kills all processes of the job that are left on the host.
func (a *AgentHost) Reap(ctx context.Context) error {
	if _, err := Call[struct{}](ctx, a, AnswerTime, protocol.DoReap, a.job()); err != nil {
		return fmt.Errorf("kill the processes that the agent left: %w", err)
	}
	return nil
}

// State returns the job's state, from the running agent or as the agent saved
// it last. If the host has no state of the job, the error is ErrNoState.
func (a *AgentHost) State(ctx context.Context) (protocol.State, error) {
	state, err := Call[protocol.State](ctx, a, AnswerTime, protocol.DoState, a.job())
	if protocol.CodeForgotten.Is(err) || transport.ExitStatus(err) == NotFound {
		err = ErrNoState
	}
	return state, err
}

// Visit connects to the job's agent as a visitor (a client that connects to a
// running job) and sends messages. A visitor does not renew the agent's lease;
// the driver does.
func (a *AgentHost) Visit(ctx context.Context, messages ...protocol.Message) (*protocol.Conn, error) {
	conn, err := a.Connect(ctx)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	for _, m := range append([]protocol.Message{{Attach: &protocol.Attach{}}}, messages...) {
		if err := conn.Send(m); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	return conn, nil
}

// Stream is a command that runs on a host, used as a byte stream. Write writes
// to the command's stdin, and Read reads its stdout. If the command fails,
// Read returns its error after the last byte. That error matches
// driver.ErrNoAgent if the command reports that there is no agent.
type Stream struct {
	in     *io.PipeWriter          // stdin of the command
	out    *io.PipeReader          // stdout of the command; Read returns the command's error after the last byte
	cancel context.CancelCauseFunc // cancels the command; Read then returns the cause
	done   chan struct{}           // closed when the command has ended
	ended  time.Time               // time at which the command ended; valid after done is closed
}

// Stream starts a command, which runs until it exits or Close is called.
// Canceling ctx does not end the command.
func (h *Host) Stream(ctx context.Context, command string) *Stream {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	s := &Stream{in: inW, out: outR, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		err := h.Script(ctx, command, inR, outW)
		if said, ok := errors.AsType[*ScriptError](err); ok && transport.ExitStatus(err) == noAgent {
			err = &withoutAgent{transport.WithMessage(err, strings.TrimPrefix(said.Stderr, "plx agent: "))}
		}
		s.ended = time.Now()
		outW.CloseWithError(err) // CloseWithError(nil) makes Read return io.EOF
		inR.CloseWithError(io.ErrClosedPipe)
	}()
	return s
}

func (s *Stream) Read(p []byte) (int, error)  { return s.out.Read(p) }
func (s *Stream) Write(p []byte) (int, error) { return s.in.Write(p) }

// Done returns a channel that is closed when the command has ended.
func (s *Stream) Done() <-chan struct{} { return s.done }

// Alive returns the last time at which the connection was known to work. While
// the command runs, this is now; after its end, the time of the end.
func (s *Stream) Alive() time.Time {
	select {
	case <-s.done:
		return s.ended
	default:
		return time.Now()
	}
}

// Cancel cancels the command. Read then returns the error why.
func (s *Stream) Cancel(why error) { s.cancel(why) }

// Close closes the command's stdin and the SSH channel, and waits until both
// are closed. The host decides whether the command then ends; plx's agents
// exit. The error is always nil.
func (s *Stream) Close() error {
	s.in.Close()
	s.cancel(nil)
	s.out.CloseWithError(io.ErrClosedPipe)
	<-s.done
	return nil
}

// exitTime limits how long Finish waits for a command to exit by itself.
const exitTime = 5 * time.Second

// Finish closes the command's stdin, waits until the command has exited by
// itself, and closes the stream.
func (s *Stream) Finish() error {
	s.in.Close()
	select {
	case <-s.done:
	case <-time.After(exitTime):
	}
	return s.Close()
}

var safeName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`) })

// IsSafe reports whether a name that was received from a host is safe to use
// in a path and in a shell command.
func IsSafe(name string) bool { return safeName().MatchString(name) }

// IsBlob reports whether path is the path of a file in the host's content
// cache. Such a path is safe to use in a shell command.
func IsBlob(path string) bool {
	sum, ok := strings.CutPrefix(path, envsync.BlobPath(""))
	return ok && IsSafe(sum)
}

// ReadPlan converts a HostPlan that an agent has sent to a host. It accepts an
// agent path only if it is in the host's content cache, because plx runs this
// path as a command.
func ReadPlan(p protocol.HostPlan) (hostfile.Host, error) {
	lines, err := hostfile.ParseLines([]string{p.Line})
	if err != nil {
		return hostfile.Host{}, err
	}
	line := lines[0] // ParseLines returns one host per input line, so there is exactly one
	if jobFolder(line) != p.Folder || line.Name != p.Host || !IsBlob(p.Binary) {
		return line, errors.New("the name, folder or agent path of the joining host is not valid")
	}
	return line, nil
}
