package protocol

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Method names what an agent does when it is asked, before it gets the Spec of a job.
type Method string

// The methods, with what they are given and what they answer.
const (
	DoSurvey     Method = "survey"     // Survey, Surveyed
	DoProbe      Method = "probe"      // Probe, GPUs
	DoCheckName  Method = "check-name" // CheckName, nothing: an error with CodeTaken if a running job has the name
	DoInterfaces Method = "interfaces" // nothing, a list of Interface
	DoReserve    Method = "reserve"    // Booking, BookingAnswer
	DoFurnish    Method = "furnish"    // Furnish, Furnished
	DoVenv       Method = "venv"       // venv.Request, venv.Answer of package envsync/venv
	DoDiscard    Method = "discard"    // HostJob, nothing: the working directory of a job that is not started is removed
	DoState      Method = "state"      // HostJob, State: what the host knows of a job, or CodeForgotten
	DoPrune      Method = "prune"      // PruneRequest, PruneAnswer
	DoReap       Method = "reap"       // HostJob, nothing: what a dead agent has left is killed
	// DoConnect is given a HostJob, and answers nothing: the next message that is no call goes to
	// the job's agent, and all that follow. Without an agent, CodeNoAgent, the agent that was asked
	// has ended what that one left.
	DoConnect Method = "connect"
)

// Call asks for a method. The agent answers each with a Reply of the same ID.
type Call struct {
	ID uint64          `json:"id"`
	Do Method          `json:"do"`
	In json.RawMessage `json:"in"`
}

// Reply answers a Call.
type Reply struct {
	ID  uint64          `json:"id"`
	Out json.RawMessage `json:"out,omitempty"`
	Err *Failure        `json:"err,omitempty"` // nil: it was done
}

// Failure is the error of a method.
type Failure struct {
	Code Code   `json:"code,omitempty"`
	Text string `json:"text"`
	Hint string `json:"hint,omitempty"` // what the user can do
}

// Code is a kind of failure that callers distinguish; empty: none.
type Code string

const (
	CodeTaken     Code = "name-taken" // a running job keeps its checkpoints under the name
	CodeNoAgent   Code = "no-agent"   // no agent of the job runs on the host; the text is how it ended
	CodeForgotten Code = "forgotten"  // nothing of the job is left on the host
)

// Is reports whether err is a failure of a kind.
func (c Code) Is(err error) bool {
	f := (*Failure)(nil)
	return errors.As(err, &f) && f.Code == c
}

func (f *Failure) Error() string { return f.Text }

// Caller asks an agent. Any number of calls may be under way; the agent answers them one after
// the other. Nothing is read from the connection while no call is under way, so that it can
// then be used for other messages.
type Caller struct {
	conn *Conn

	mu      sync.Mutex
	quiet   *sync.Cond            // no call is under way any more
	last    uint64                // ID of the newest call
	waiting map[uint64]chan Reply // by ID; who gets no Reply finds its channel closed
	over    error                 // why there are no more calls; nil: there may be
}

// NewCaller returns the Caller that owns the connection until Detach.
func NewCaller(conn *Conn) *Caller {
	c := &Caller{conn: conn, waiting: map[uint64]chan Reply{}}
	c.quiet = sync.NewCond(&c.mu)
	return c
}

// ErrDetached says that the agent answers no calls any more, since it has a job.
var ErrDetached = errors.New("the agent has a job")

// Pending is a call under way.
type Pending struct {
	caller *Caller
	do     Method
	reply  chan Reply
}

// Begin sends a call. An error of the connection is told by the Pending.
func (c *Caller) Begin(do Method, in any) (*Pending, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("encode the call %s: %w", do, err)
	}
	p := &Pending{caller: c, do: do, reply: make(chan Reply, 1)}
	c.mu.Lock()
	if c.over != nil {
		c.mu.Unlock()
		return nil, c.over
	}
	c.last++
	id := c.last
	c.waiting[id] = p.reply
	if len(c.waiting) == 1 {
		go c.read()
	}
	c.mu.Unlock()
	if err := c.conn.Send(Message{Call: &Call{ID: id, Do: do, In: body}}); err != nil {
		c.Close(fmt.Errorf("ask it: %w", err))
	}
	return p, nil
}

// read hands out answers until no call is under way.
func (c *Caller) read() {
	for {
		m, err := c.conn.Receive()
		c.mu.Lock()
		if err == nil && (m.Reply == nil || c.waiting[m.Reply.ID] == nil) {
			err = errors.New("it answers what it was not asked")
		}
		if err != nil {
			c.mu.Unlock()
			c.Close(err)
			return
		}
		c.waiting[m.Reply.ID] <- *m.Reply
		delete(c.waiting, m.Reply.ID)
		done := len(c.waiting) == 0
		if done {
			c.quiet.Broadcast()
		}
		c.mu.Unlock()
		if done {
			return
		}
	}
}

// Wait returns after the answer has been decoded into out, which may be nil. The error of the
// method is a *Failure. After the end of ctx the connection is closed, because the agent may
// still answer.
func (p *Pending) Wait(ctx context.Context, out any) error {
	var r Reply
	var ok bool
	select {
	case r, ok = <-p.reply:
	case <-ctx.Done():
		p.caller.Close(context.Cause(ctx))
		return context.Cause(ctx)
	}
	switch {
	case !ok:
		return p.caller.why()
	case r.Err != nil:
		return r.Err
	case out == nil:
		return nil
	}
	if err := json.Unmarshal(r.Out, out); err != nil {
		return fmt.Errorf("its answer to %s: %w", p.do, err)
	}
	return nil
}

func (c *Caller) why() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

// Close ends all calls with the error, and the connection.
func (c *Caller) Close(why error) {
	c.mu.Lock()
	if c.over == nil {
		c.over = why
	}
	for id, reply := range c.waiting {
		close(reply)
		delete(c.waiting, id)
	}
	c.quiet.Broadcast()
	c.mu.Unlock()
	c.conn.Close() // the error says more
}

// Detach waits until no call is under way, and returns the connection, which is the caller's
// from then on.
func (c *Caller) Detach() (*Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.waiting) > 0 {
		c.quiet.Wait()
	}
	if c.over != nil {
		return nil, c.over
	}
	c.over = ErrDetached
	return c.conn, nil
}

// Handler answers calls of a method.
type Handler func(ctx context.Context, in json.RawMessage) (out any, err error)

// Handle returns the Handler that decodes what f is given.
func Handle[In, Out any](f func(context.Context, In) (Out, error)) Handler {
	return func(ctx context.Context, raw json.RawMessage) (any, error) {
		var in In
		if err := json.Unmarshal(raw, &in); err != nil {
			return nil, fmt.Errorf("read what is asked: %w", err)
		}
		return f(ctx, in)
	}
}

// ErrSilent says that an agent has not been asked anything for a while.
var ErrSilent = errors.New("plx was not heard")

// MostSilence is how long an agent without a job waits for the next message. Then it ends, and
// gives up the GPUs that it holds: the network may be cut.
const MostSilence = time.Minute

// Serve answers calls one after the other, and returns the first other message, or ErrSilent
// if for so long none comes. The context of a Handler ends with the connection.
func Serve(ctx context.Context, conn *Conn, handlers map[Method]Handler, silence time.Duration) (Message, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	calls, end, failed := make(chan Call), make(chan Message, 1), make(chan error, 1)
	go func() { // ends with the connection, or with the last message that is read here
		for {
			m, err := conn.Receive()
			if err != nil {
				failed <- err
				cancel(err)
				return
			}
			if m.Call == nil {
				end <- m
				return
			}
			select {
			case calls <- *m.Call:
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		select {
		case call := <-calls:
			if err := conn.Send(Message{Reply: answer(ctx, call, handlers)}); err != nil {
				return Message{}, err
			}
		case m := <-end:
			return m, nil
		case err := <-failed:
			return Message{}, err
		case <-time.After(silence):
			return Message{}, fmt.Errorf("%w for %s", ErrSilent, silence)
		}
	}
}

func answer(ctx context.Context, call Call, handlers map[Method]Handler) *Reply {
	handler, known := handlers[call.Do]
	if !known {
		return &Reply{ID: call.ID, Err: &Failure{Text: fmt.Sprintf("this version of plx does not know the request %q", call.Do)}}
	}
	out, err := handler(ctx, call.In)
	if err == nil {
		body, failed := json.Marshal(out)
		if err = failed; err == nil {
			return &Reply{ID: call.ID, Out: body}
		}
	}
	failure := (*Failure)(nil)
	if !errors.As(err, &failure) {
		failure = &Failure{Text: strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), "; ")}
	}
	return &Reply{ID: call.ID, Err: failure}
}
