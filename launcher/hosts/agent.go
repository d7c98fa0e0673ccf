package hosts

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/plx-run/plx/launcher/driver"
	"github.com/plx-run/plx/launcher/protocol"
)

// noAgent is the exit status of the agent's commands if no agent of the job runs on the
// host.
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

// Call runs "plx agent COMMAND" on the host.
func (a *AgentHost) Call(ctx context.Context, command string, stdin io.Reader, stdout io.Writer) error {
	return a.Script(ctx, a.shell(command), stdin, stdout)
}

// shell returns the shell script that runs a command of the agent.
func (a *AgentHost) shell(command string) string {
	return fmt.Sprintf(`exec "$HOME"/%s agent %s`, a.Binary, command)
}

// where names the job in a command of the agent.
func (a *AgentHost) where() string { return " " + a.Job + " " + a.Folder }

// Logs streams "plx agent logs", which reads a logs.Request from its stdin.
func (a *AgentHost) Logs(ctx context.Context) *Stream {
	return a.Stream(ctx, a.shell("logs"+a.where()))
}

// open speaks the protocol with a command of the agent. ctx bounds the opening only.
func (a *AgentHost) open(ctx context.Context, command string) (*protocol.Conn, error) {
	s := a.Stream(ctx, a.shell(command))
	stop := context.AfterFunc(ctx, func() { s.Close() })
	conn, err := protocol.Open(s)
	if !stop() {
		s.Close() // ctx ended: its error is the one that counts
		return nil, context.Cause(ctx)
	}
	return conn, err
}

// Start starts the agent with its spec. Its error is a driver.ErrNoAgent: to dial an
// agent that did not start is of no use.
func (a *AgentHost) Start(ctx context.Context, spec protocol.Spec) (*protocol.Conn, error) {
	conn, err := a.open(ctx, "start")
	if err == nil {
		err = conn.Send(protocol.Message{Spec: &spec})
	}
	if err != nil {
		return nil, NotStarted(fmt.Errorf("start agent: %w", err))
	}
	return conn, nil
}

// notStarted is the error of an agent that did not start.
type notStarted struct{ error }

func (e *notStarted) Unwrap() error        { return e.error }
func (e *notStarted) Is(target error) bool { return target == driver.ErrNoAgent }

// NotStarted marks err as that of an agent that did not start. It is a
// driver.ErrNoAgent.
func NotStarted(err error) error { return &notStarted{err} }

// Connect connects to the running agent. If there is none, it reaps and then returns
// a driver.ErrNoAgent.
func (a *AgentHost) Connect(ctx context.Context) (*protocol.Conn, error) {
	conn, err := a.open(ctx, "connect"+a.where())
	if ExitStatus(err) != noAgent {
		return conn, err
	}
	if err := a.Reap(ctx); err != nil {
		return nil, err // the caller tries again: something may be left
	}
	cause := "the cause is not known"
	if state, err := a.State(ctx); err == nil && state.Verdict != nil {
		cause = strings.TrimPrefix(state.Verdict.Reason, "host "+a.Name()+": ")
	}
	return nil, fmt.Errorf("%w: %s", driver.ErrNoAgent, cause)
}

// Reap ends all processes of the job that are left on the host.
func (a *AgentHost) Reap(ctx context.Context) error {
	if err := a.Call(ctx, "reap"+a.where(), nil, io.Discard); err != nil {
		return fmt.Errorf("end what the agent left: %w", err)
	}
	return nil
}

// State returns what the agent knows of the job, or knew last. If the host keeps nothing
// of the job, the error is ErrForgotten.
func (a *AgentHost) State(ctx context.Context) (state protocol.State, err error) {
	var stdout bytes.Buffer
	if err := a.Call(ctx, "state"+a.where(), nil, &stdout); err != nil {
		if code := ExitStatus(err); code == noAgent || code == NotFound {
			return state, ErrForgotten
		}
		return state, err
	}
	if err := json.Unmarshal(stdout.Bytes(), &state); err != nil {
		return state, fmt.Errorf("state of job %s: %w", a.Job, err)
	}
	return state, nil
}

// Visit connects to the agent as a visitor, who does not renew its lease.
func (a *AgentHost) Visit(ctx context.Context) (*protocol.Conn, error) {
	conn, err := a.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := conn.Send(protocol.Message{Attach: &protocol.Attach{}}); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}
