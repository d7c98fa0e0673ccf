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

// noAgent is the exit status of the agent's commands if no agent of the job runs on the
// host, or none can be started.
const noAgent = 3

// NotFound is the exit status of AgentHost.Call if the agent's binary was pruned.
const NotFound = 127

// ErrForgotten says that a host keeps nothing of a job.
var ErrForgotten = errors.New("nothing of the job is left there")

// AgentHost is a host with the agent of one job.
type AgentHost struct {
	*Host
	Job    string // the job's id; empty for commands that concern no job
	Folder string // name of the host's folder under ~/.plx/jobs/<job>/
	Binary string // path of the agent's binary, relative to the home
}

// notExecuted explains the error of an agent that the host may not execute.
func notExecuted(err error) error {
	const cannotExecute = 126 // the exit status of a shell that may not execute a program
	if transport.ExitStatus(err) != cannotExecute {
		return err
	}
	return transport.Reworded(err, bootstrap.NotExecutable(fmt.Sprintf("is the home mounted noexec? (%v)", err)))
}

// Logs streams "plx agent logs", which reads a logs.Request from its stdin.
func (a *AgentHost) Logs(ctx context.Context) *Stream {
	return a.Stream(ctx, fmt.Sprintf(`exec "$HOME"/%s agent logs %s %s`, a.Binary, a.Job, a.Folder))
}

// Start starts the agent with its spec. Its error is a driver.ErrNoAgent: to dial an
// agent that did not start is of no use.
func (a *AgentHost) Start(ctx context.Context, spec protocol.Spec) (*protocol.Conn, error) {
	if i := a.idle.Load(); i != nil && i.other {
		a.makeRoom() // all agents of a job are of one version
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

// withoutAgent is the error of a host on which no agent of the job runs.
type withoutAgent struct{ error }

func (e *withoutAgent) Unwrap() error        { return e.error }
func (e *withoutAgent) Is(target error) bool { return target == driver.ErrNoAgent }

// NotStarted marks err as that of an agent that did not start. It is a
// driver.ErrNoAgent.
func NotStarted(err error) error { return &withoutAgent{err} }

// job names the job to the agents of its hosts.
func (a *AgentHost) job() protocol.HostJob { return protocol.HostJob{Job: a.Job, Folder: a.Folder} }

// Connect connects to the running agent. If there is none, the host has ended what it left, and
// the error is a driver.ErrNoAgent.
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

// Reap ends all processes of the job that are left on the host.
func (a *AgentHost) Reap(ctx context.Context) error {
	if _, err := Call[struct{}](ctx, a, AnswerTime, protocol.DoReap, a.job()); err != nil {
		return fmt.Errorf("end what the agent left: %w", err)
	}
	return nil
}

// State returns what the agent knows of the job, or knew last. If the host keeps nothing
// of the job, the error is ErrForgotten.
func (a *AgentHost) State(ctx context.Context) (protocol.State, error) {
	state, err := Call[protocol.State](ctx, a, AnswerTime, protocol.DoState, a.job())
	if protocol.CodeForgotten.Is(err) || transport.ExitStatus(err) == NotFound {
		err = ErrForgotten
	}
	return state, err
}

// Visit connects to the agent as a visitor, who does not renew its lease, and sends messages.
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

// Stream is a command on a host as a byte stream: written bytes are its stdin, its
// stdout is read. If the command ended with an error, Read returns it at the end. It is a
// driver.ErrNoAgent if a command of the agent could not start an agent, or found none.
type Stream struct {
	in     *io.PipeWriter          // stdin of the command
	out    *io.PipeReader          // stdout of the command, then its error
	cancel context.CancelCauseFunc // ends the command; Read then returns the cause
	done   chan struct{}           // closed when the command has ended
	ended  time.Time               // when the command ended; valid once done is closed
}

// Stream starts a command, which runs until Close. The end of ctx does not end it.
func (h *Host) Stream(ctx context.Context, command string) *Stream {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	s := &Stream{in: inW, out: outR, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		err := h.Script(ctx, command, inR, outW)
		if said, ok := errors.AsType[*ScriptError](err); ok && transport.ExitStatus(err) == noAgent {
			err = &withoutAgent{transport.Reworded(err, strings.TrimPrefix(said.Stderr, "plx agent: "))}
		}
		s.ended = time.Now()
		outW.CloseWithError(err) // nil reads as io.EOF
		inR.CloseWithError(io.ErrClosedPipe)
	}()
	return s
}

func (s *Stream) Read(p []byte) (int, error)  { return s.out.Read(p) }
func (s *Stream) Write(p []byte) (int, error) { return s.in.Write(p) }

// Done is closed when the command has ended.
func (s *Stream) Done() <-chan struct{} { return s.done }

// Alive returns when the connection was last known to be there.
func (s *Stream) Alive() time.Time {
	select {
	case <-s.done:
		return s.ended
	default:
		return time.Now()
	}
}

// Cancel gives the command up: Read returns why.
func (s *Stream) Cancel(why error) { s.cancel(why) }

// Close ends the command's stdin, closes its channel, and waits for that. What the
// command then does is up to the host: agents end. It returns nil.
func (s *Stream) Close() error {
	s.in.Close()
	s.cancel(nil)
	s.out.CloseWithError(io.ErrClosedPipe)
	<-s.done
	return nil
}

// exitTime bounds the exit of a command that has sent everything.
const exitTime = 5 * time.Second

// Finish ends the command's stdin, waits until the command has exited by itself, and
// closes the stream.
func (s *Stream) Finish() error {
	s.in.Close()
	select {
	case <-s.done:
	case <-time.After(exitTime):
	}
	return s.Close()
}

var safeName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`) })

// IsSafe reports whether a name that a host sent can be part of a path and of a shell
// command.
func IsSafe(name string) bool { return safeName().MatchString(name) }

// IsBlob reports whether path is that of a blob. Such a path is safe in a shell command.
func IsBlob(path string) bool {
	sum, ok := strings.CutPrefix(path, envsync.BlobPath(""))
	return ok && IsSafe(sum)
}

// ReadPlan reads how an agent says that a host is reached. It refuses a plan that could
// run anything but an agent, here or there.
func ReadPlan(p protocol.HostPlan) (hostfile.Host, error) {
	lines, err := hostfile.ParseLines([]string{p.Line})
	if err != nil {
		return hostfile.Host{}, err
	}
	line := lines[0] // ParseLines returns one host per line
	if jobFolder(line) != p.Folder || line.Name != p.Host || !IsBlob(p.Binary) {
		return line, errors.New("its name, folder or agent is not valid")
	}
	return line, nil
}
