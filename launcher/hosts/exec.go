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

// errAgentKilled says that the agent of a command was killed. Nothing of the command is
// left.
var errAgentKilled = errors.New("its agent on the host was killed")

// Exec runs a command of which the agent leaves nothing. orders delivers orders to it until the
// caller closes it; nil: there are none. The error is a transport.ExitError if the command did not
// end with status 0. If ctx ends first, the host ends the command.
func Exec(ctx context.Context, a *AgentHost, request protocol.ExecRequest, orders <-chan byte, stdout, stderr io.Writer) error {
	request.Mark = protocol.HostJob{Job: "exec-" + strings.ToLower(rand.Text()), Folder: a.JobFolder()}
	i, err := a.own(ctx, a.newIdle) // so that it makes no room
	if err != nil {
		return err
	}
	var done protocol.Executed
	err = i.move(ctx, protocol.DoExec, request, &done, func(ctx context.Context, to *protocol.Pending) { pass(ctx, to, orders) }, func(p protocol.Piece) error {
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

// pass passes orders on, until ctx ends.
func pass(ctx context.Context, to *protocol.Pending, orders <-chan byte) {
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

// mostOutput bounds what is kept of each output of a command, in bytes.
const mostOutput = 64 << 10

// Ask runs a command of plx's own on a host, without input, and returns the ends of its
// outputs. It takes no longer than the request's MaxTime, which must be set. live, unless
// it is nil, is given both outputs as they arrive.
func Ask(ctx context.Context, a *AgentHost, request protocol.ExecRequest, live io.Writer) (stdout, stderr string, err error) {
	request.Lease = request.MaxTime + time.Minute
	out, errs := &tail{limit: mostOutput}, &tail{limit: mostOutput}
	err = Exec(ctx, a, request, nil, also(out, live), also(errs, live))
	return out.String(), errs.String(), err
}

// also returns what writes to live too, unless that is nil.
func also(w, live io.Writer) io.Writer {
	if live == nil {
		return w
	}
	return io.MultiWriter(w, live)
}
