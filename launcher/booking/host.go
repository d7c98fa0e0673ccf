package booking

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
)

// host is "agent gpus" on a host.
type host struct {
	agent  *hosts.AgentHost
	stream io.WriteCloser // Close ends the command
	lines  *json.Decoder
	cancel func(error)     // ends a read, which returns the error
	done   <-chan struct{} // closed when the command has ended
	socket string          // where the agent gets the locks; "": they are not held
}

const (
	answerTime  = 30 * time.Second // bounds one answer of a host
	mostAnswers = 1 << 30          // bounds what is read of a host, in bytes
)

func newHost(ctx context.Context, a *hosts.AgentHost) *host {
	s := hosts.AgentStream(ctx, a, "gpus")
	return &host{agent: a, stream: s, lines: json.NewDecoder(io.LimitReader(s, mostAnswers)), cancel: s.Cancel, done: s.Done()}
}

// Named puts the host's name before an error.
func (h *host) Named(err error) error { return h.agent.Named(err) }

// ask asks the host, in bounded time.
func (h *host) ask(ctx context.Context, question protocol.Booking) (a protocol.BookingAnswer, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTime, fmt.Errorf("no answer within %s", answerTime))
	defer cancel()
	defer context.AfterFunc(ctx, func() { h.cancel(context.Cause(ctx)) })()
	if err := json.NewEncoder(h.stream).Encode(question); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		return a, err
	}
	if err := h.lines.Decode(&a); err != nil { // also of a command that has ended
		return a, fmt.Errorf("book its GPUs: %w", err)
	}
	return a, nil
}

// move asks the host and notes where its locks are.
func (h *host) move(ctx context.Context, ask string) (a protocol.BookingAnswer, err error) {
	a, err = h.ask(ctx, protocol.Booking{Ask: ask})
	h.socket = a.Socket
	return a, err
}

// keep tells the host that the launch is still there, unless the locks were taken over.
func (h *host) keep(ctx context.Context) {
	select {
	case <-h.done:
	default:
		_, _ = h.ask(ctx, protocol.Booking{Ask: protocol.BookingTake}) // it has just ended; "agent start" tells if that is wrong
	}
}
