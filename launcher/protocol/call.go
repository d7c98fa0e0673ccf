package protocol

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Method names what an agent does when it is asked, before it gets the Spec of a job.
type Method string

// The methods, with what they are given and what they answer.
const (
	DoSurvey     Method = "survey"     // Survey, Surveyed
	DoProbe      Method = "probe"      // Probe, Answer of package gpuprobe
	DoUse        Method = "use"        // nothing, HostUse: samples since the first call
	DoCheckName  Method = "check-name" // CheckName, nothing: an error with CodeTaken if a running job has the name
	DoInterfaces Method = "interfaces" // nothing, a list of Interface
	DoFind       Method = "find"       // Find, Found
	DoReserve    Method = "reserve"    // Reserve, Reservation
	DoSeed       Method = "seed"       // Seed, the port as an int
	DoHas        Method = "has"        // Has
	DoVenv       Method = "venv"       // venv.Request of package envsync/venv, bool: it is installed
	// DoPut is given a Put, and takes contents: Orders and Pieces are the two sides of Store.Serve of
	// package envsync/tree/store. The Pieces of DoGet, which is given a Get, are a folder that was put.
	DoPut   Method = "put"
	DoGet   Method = "get"
	DoFetch Method = "fetch" // FetchRequest; what it tells comes in Pieces
	// DoExec takes an ExecRequest, and answers Executed: the command has ended, and nothing is left
	// of what it has started. Until then its output comes in Pieces, and it takes Orders.
	DoExec    Method = "exec"
	DoCheckup Method = "checkup" // Checkup, HostReport: from then on the agent serves the others
	DoMeet    Method = "meet"    // a list of Peer, a list of CheckupFailure: those that it cannot reach
	DoDiscard Method = "discard" // HostJob, nothing: the working directory of a job that is not started is removed
	DoState   Method = "state"   // HostJob, State: what the host knows of a job, or CodeForgotten
	DoKept    Method = "kept"    // WantKept, Kept, or CodeForgotten
	DoPrune   Method = "prune"   // PruneRequest, PruneAnswer
	DoReap    Method = "reap"    // HostJob, nothing: what a dead agent has left is killed
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

// Piece is a part of what a call under way prints.
type Piece struct {
	ID     uint64 `json:"id"`     // of the Call
	Stream int    `json:"stream"` // 1: standard output, 2: standard error
	Data   []byte `json:"data"`
}

// Order is further input to a call under way. Without Data it is the last one. One for a call that
// has ended is dropped.
type Order struct {
	ID   uint64 `json:"id"` // of the Call
	Data []byte `json:"data,omitempty"`
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
	CodeDamaged   Code = "damaged"    // files that the host keeps were wrong, and are to be sent again
	CodeKilled    Code = "killed"     // the process that ran a command was killed; nothing of the command is left
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
	quiet   *sync.Cond          // no call is under way any more
	used    time.Time           // when a call was last sent or answered
	last    uint64              // ID of the newest call
	waiting map[uint64]*Pending // by ID
	over    error               // why there are no more calls; nil: there may be
}

// NewCaller returns the Caller that owns the connection until Detach.
func NewCaller(conn *Conn) *Caller {
	c := &Caller{conn: conn, used: time.Now(), waiting: map[uint64]*Pending{}}
	c.quiet = sync.NewCond(&c.mu)
	return c
}

// ErrDetached says that the agent answers no calls any more, since it has a job.
var ErrDetached = errors.New("the agent has a job")

// Pending is a call under way.
type Pending struct {
	caller *Caller
	id     uint64
	do     Method
	prints func(Piece) // takes what the call prints; nil: it prints nothing
	reply  chan Reply  // closed if there is none
	failed error       // why there is none; valid once reply is closed

	ordering sync.Mutex // held while an order is sent
	over     bool       // the call is over, so that no order is sent any more; needs ordering
}

// Begin sends a call. An error of the connection is told by the Pending. prints takes the Pieces of
// a method that answers with some before its Reply, one after the other; meanwhile no other answer
// arrives. Nil: the method prints nothing.
func (c *Caller) Begin(do Method, in any, prints func(Piece)) (*Pending, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("encode the call %s: %w", do, err)
	}
	p := &Pending{caller: c, do: do, prints: prints, reply: make(chan Reply, 1)}
	c.mu.Lock()
	if c.over != nil {
		c.mu.Unlock()
		return nil, c.over
	}
	c.used = time.Now()
	c.last++
	p.id = c.last
	c.waiting[p.id] = p
	if len(c.waiting) == 1 {
		go c.read()
	}
	c.mu.Unlock()
	if err := c.conn.Send(Message{Call: &Call{ID: p.id, Do: do, In: body}}); err != nil {
		c.Close(fmt.Errorf("ask it: %w", err))
	}
	return p, nil
}

// read hands out answers until no call is under way.
func (c *Caller) read() {
	for {
		m, err := c.conn.Receive()
		c.mu.Lock()
		if err == nil && m.Piece != nil {
			if p := c.waiting[m.Piece.ID]; p != nil && p.prints != nil {
				c.mu.Unlock()
				p.prints(*m.Piece)
				continue
			}
		}
		if err == nil && (m.Reply == nil || c.waiting[m.Reply.ID] == nil) {
			err = errors.New("it answers what it was not asked")
		}
		if err != nil {
			c.mu.Unlock()
			c.Close(err)
			return
		}
		c.used = time.Now()
		c.waiting[m.Reply.ID].reply <- *m.Reply
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

// Order sends further input; empty data ends it. After Wait it sends nothing. Wait returns an error
// of the connection.
func (p *Pending) Order(data []byte) {
	p.ordering.Lock()
	defer p.ordering.Unlock()
	if !p.over {
		_ = p.caller.conn.Send(Message{Order: &Order{ID: p.id, Data: data}})
	}
}

// end waits for an order that is just being sent: the agent drops it if it has answered.
func (p *Pending) end() {
	p.ordering.Lock()
	defer p.ordering.Unlock()
	p.over = true
}

// Wait returns after the answer has been decoded into out, which may be nil. The error of the
// method is a *Failure. After the end of ctx the connection is closed, because the agent may
// still answer.
func (p *Pending) Wait(ctx context.Context, out any) error {
	defer p.end()
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
		return p.failed
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

// Idle returns for how long nothing was asked or answered. It is 0 while a call is under way.
func (c *Caller) Idle() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) > 0 {
		return 0
	}
	return time.Since(c.used)
}

// Close ends all calls with the error, and the connection.
func (c *Caller) Close(why error) {
	c.mu.Lock()
	if c.over == nil {
		c.over = why
	}
	for id, p := range c.waiting {
		p.failed = c.over
		close(p.reply)
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

// Answering is a call that the agent answers. Its further input is read from it as one stream,
// which ends with the connection.
type Answering struct {
	conn *Conn
	call Call
	*io.PipeReader
	orders *io.PipeWriter // to the PipeReader
	untie  func() bool    // undoes that the end of the connection ends the orders
}

// Send sends a part of what the call produces, which can be changed afterwards.
func (r *Answering) Send(stream int, data []byte) error {
	return r.conn.Send(Message{Piece: &Piece{ID: r.call.ID, Stream: stream, Data: data}})
}

// Write sends a part of what the call produces, as its stream 1.
func (r *Answering) Write(p []byte) (int, error) {
	for sent := 0; sent < len(p); sent += mostPiece {
		if err := r.Send(1, p[sent:min(sent+mostPiece, len(p))]); err != nil {
			return sent, err
		}
	}
	return len(p), nil
}

// mostPiece bounds the bytes that are sent at once: a renewal may wait behind them.
const mostPiece = 256 << 10

// Handler answers calls of a method.
type Handler func(ctx context.Context, call *Answering) (out any, err error)

// Handle returns the Handler that decodes what f is given.
func Handle[In, Out any](f func(context.Context, In) (Out, error)) Handler {
	return HandleStream(func(ctx context.Context, in In, _ *Answering) (Out, error) { return f(ctx, in) })
}

// HandleStream is Handle of a method that answers with Pieces, or takes Orders.
func HandleStream[In, Out any](f func(context.Context, In, *Answering) (Out, error)) Handler {
	return func(ctx context.Context, call *Answering) (any, error) {
		var in In
		if err := json.Unmarshal(call.call.In, &in); err != nil {
			return nil, fmt.Errorf("read what is asked: %w", err)
		}
		return f(ctx, in, call)
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
	r := &server{conn: conn, calls: make(chan *Answering, mostWaiting)}
	end, failed := make(chan Message, 1), make(chan error, 1)
	go func() { // ends with the connection, or with the last message that is read here
		m, err := r.receive(ctx)
		if err != nil {
			failed <- err
			if err == io.EOF {
				err = io.ErrUnexpectedEOF // who reads orders is not to take it for their end
			}
			cancel(err)
			return
		}
		end <- m
	}()
	for {
		select {
		case call := <-r.calls:
			if err := conn.Send(Message{Reply: r.answer(ctx, call, handlers)}); err != nil {
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

// mostWaiting bounds the calls of a connection that wait while one is answered.
const mostWaiting = 64

// server answers the calls of a connection.
type server struct {
	conn    *Conn
	calls   chan *Answering // that wait
	running sync.Map        // of *Answering, by ID: calls that were not answered yet
}

// receive passes calls and their orders on, and returns the first other message.
func (s *server) receive(ctx context.Context) (Message, error) {
	for {
		m, err := s.conn.Receive()
		switch {
		case err != nil || m.Call == nil && m.Order == nil:
			return m, err
		case m.Call != nil:
			run := &Answering{call: *m.Call, conn: s.conn}
			run.PipeReader, run.orders = io.Pipe()
			run.untie = context.AfterFunc(ctx, func() { run.orders.CloseWithError(context.Cause(ctx)) })
			s.running.Store(m.Call.ID, run)
			select {
			case s.calls <- run:
			default:
				return m, fmt.Errorf("more than %d calls wait for an answer", mostWaiting)
			}
		default:
			s.order(*m.Order)
		}
	}
}

// order passes an order on, unless its call has ended.
func (s *server) order(o Order) {
	run, _ := s.running.Load(o.ID)
	call, runs := run.(*Answering)
	switch {
	case !runs:
	case len(o.Data) == 0:
		call.orders.Close()
	default:
		_, _ = call.orders.Write(o.Data) // fails once the call has ended
	}
}

func (s *server) answer(ctx context.Context, call *Answering, handlers map[Method]Handler) *Reply {
	defer func() {
		s.running.Delete(call.call.ID)
		call.untie()
		call.Close() // orders that come too late are dropped
	}()
	id, do := call.call.ID, call.call.Do
	handler, known := handlers[do]
	if !known {
		return &Reply{ID: id, Err: &Failure{Text: fmt.Sprintf("this version of plx does not know the request %q", do)}}
	}
	out, err := handler(ctx, call)
	if err == nil {
		body, failed := json.Marshal(out)
		if err = failed; err == nil {
			return &Reply{ID: id, Out: body}
		}
	}
	failure := (*Failure)(nil)
	if !errors.As(err, &failure) {
		failure = &Failure{Text: strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), "; ")}
	}
	return &Reply{ID: id, Err: failure}
}
