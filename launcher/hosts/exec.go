package hosts

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/launcher/transport"
)

// errAgentKilled means that the agent that ran a command was killed, and that
// the command's processes were killed too.
var errAgentKilled = errors.New("its agent on the host was killed")

// Exec runs a command on the host under an agent. The agent kills all
// processes of the command at its end. Exec passes the bytes of the channel
// orders to the agent, such as a signal for the command; a nil channel passes
// none. If the command's exit status is not 0, the error is a
// transport.ExitError. Canceling ctx ends the command.
func Exec(ctx context.Context, a *AgentHost, request protocol.ExecRequest, orders <-chan byte, stdout, stderr io.Writer) error {
	request.Mark = protocol.HostJob{Job: "exec-" + strings.ToLower(rand.Text()), Folder: a.JobFolder()}
	i, err := a.own(ctx, a.newIdle) // own takes the agent out of h.idle, so that closeIdle cannot end it while the command runs
	if err != nil {
		return err
	}
	var done protocol.Executed
	err = i.move(ctx, protocol.DoExec, request, &done, func(ctx context.Context, to *protocol.Pending) { forward(ctx, to, orders) }, func(p protocol.Piece) error {
		to := stdout
		if p.Stream == 2 {
			to = stderr
		}
		if _, err := to.Write(p.Data); err != nil {
			return fmt.Errorf("write output: %w", err)
		}
		return nil
	})
	a.giveBack(i, err)
	switch {
	case protocol.CodeKilled.Is(err):
		return errAgentKilled
	case transport.Killed(err):
		_, uncleared := Call[struct{}](context.WithoutCancel(ctx), a, AnswerTime, protocol.DoReap, request.Mark)
		return errors.Join(errAgentKilled, uncleared)
	case err == nil && done.Status != 0:
		return &transport.ExitError{Status: done.Status}
	}
	return err
}

// forward sends each byte from orders to the agent that runs a command, until
// ctx is done.
func forward(ctx context.Context, to *protocol.Pending, orders <-chan byte) {
	for {
		select {
		case order, open := <-orders:
			if !open {
				to.Order(nil)
				return
			}
			to.Order([]byte{order})
		case <-ctx.Done():
			return
		}
	}
}

// mostOutput is the number of bytes that Ask returns of a command's stdout,
// and of its stderr.
const mostOutput = 64 << 10

// Ask runs one of plx's own commands on a host, without stdin, and returns the
// last bytes of its stdout and stderr. The command runs at most
// request.MaxTime, which must be set. If live is not nil, both outputs are
// also written to live as they arrive.
func Ask(ctx context.Context, a *AgentHost, request protocol.ExecRequest, live io.Writer) (stdout, stderr string, err error) {
	request.Lease = request.MaxTime + time.Minute
	out, errs := &tail{limit: mostOutput}, &tail{limit: mostOutput}
	err = Exec(ctx, a, request, nil, also(out, live), also(errs, live))
	return out.String(), errs.String(), err
}

// also returns a Writer that writes to both w and live. If live is nil, it
// returns w.
func also(w, live io.Writer) io.Writer {
	if live == nil {
		return w
	}
	return io.MultiWriter(w, live)
}
