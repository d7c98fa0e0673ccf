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

// Method names a remote procedure of an agent that has no job yet. When the
// agent receives the Spec (description) of a job, it stops accepting calls.
type Method string

// The methods. Each comment names the types of the method's parameter and
// result, which are sent as JSON.
const (
	DoSurvey     Method = "survey"     // parameter Survey, result Surveyed: the facts of the host, such as its platform, and which of the given files it stores
	DoProbe      Method = "probe"      // parameter Probe, result gpuprobe.Output: the host's GPUs
	DoUse        Method = "use"        // no parameter, result HostUse: the host's CPU, memory and GPU usage, sampled since the first call
	DoCheckName  Method = "check-name" // parameter CheckName, no result; fails with CodeTaken if a running job uses the name for its checkpoints
	DoInterfaces Method = "interfaces" // no parameter, result []Interface: the host's network interfaces
	DoFind       Method = "find"       // parameter Find, result Found: looks for a program on the PATH
	DoReserve    Method = "reserve"    // parameter Reserve, result Reservation: reserves GPUs for a launch
	DoSeed       Method = "seed"       // parameter Seed, result int: the port at which the agent serves its executable
	DoHas        Method = "has"        // parameter Has, no result: fails unless the host stores the files of a folder
	DoVenv       Method = "venv"       // parameter venv.Request, result bool: whether the virtual environment is installed
	// DoPut uploads the files of a folder to the host; its parameter is a Put.
	// DoGet downloads an uploaded folder or file; its parameter is a Get. In
	// both cases, Order messages (input) and Piece messages (output) carry the
	// stream of Store.Serve in package envsync/tree/store.
	DoPut   Method = "put"
	DoGet   Method = "get"
	DoFetch Method = "fetch" // parameter FetchRequest, no result: the requested list or file arrives as Piece messages
	// DoExec runs a command; its parameter is an ExecRequest, its result an
	// Executed. While the command runs, Piece messages carry its output, and
	// Order messages control it. When the agent replies, the command and all
	// processes that it started have ended.
	DoExec    Method = "exec"
	DoCheckup Method = "checkup" // parameter Checkup, result HostReport; from then on the agent accepts connections of other agents
	DoMeet    Method = "meet"    // parameter []Peer, result []CheckupFailure: which of these agents the called agent cannot reach
	DoDiscard Method = "discard" // parameter HostJob, no result: deletes the working directory of a job that was never started
	DoState   Method = "state"   // parameter HostJob, result State; fails with CodeForgotten if the host has no record of the job
	DoKept    Method = "kept"    // parameter WantKept, result Kept: stored data about a job's run; fails with CodeForgotten if the host has no record of the job
	DoPrune   Method = "prune"   // parameter PruneRequest, result PruneAnswer: deletes files of old jobs
	DoReap    Method = "reap"    // parameter HostJob, no result: kills the processes that a dead agent of the job has left
	// DoConnect forwards this connection to the agent that runs a job; its
	// parameter is a HostJob. After the reply, every message that is not a
	// Call goes to the job's agent. If the job's agent is dead, the called
	// agent kills the processes that the job has left. The call then fails
	// with CodeNoAgent.
	DoConnect Method = "connect"
)

// Call is a remote procedure call to an agent. The agent answers each call
// with a Reply that has the same ID.
type Call struct {
	ID uint64          `json:"id"`
	Do Method          `json:"do"`
	In json.RawMessage `json:"in"`
}

// Reply answers a Call.
type Reply struct {
	ID  uint64          `json:"id"`
	Out json.RawMessage `json:"out,omitempty"`
	Err *Failure        `json:"err,omitempty"` // nil if the call succeeded
}

// Piece is a message with a part of the output of a call that the agent is
// still processing.
type Piece struct {
	ID     uint64 `json:"id"`     // ID of the Call
	Stream int    `json:"stream"` // stream number: 1 for standard output, 2 for standard error
	Data   []byte `json:"data"`
}

// Order is a message with a part of the input of a call that the agent is
// still processing. An Order without Data ends the input. The agent drops an
// Order for a call that has ended.
type Order struct {
	ID   uint64 `json:"id"` // ID of the Call
	Data []byte `json:"data,omitempty"`
}

// Failure is the error that a method returned, as sent in a Reply.
type Failure struct {
	Code Code   `json:"code,omitempty"`
	Text string `json:"text"`
	Hint string `json:"hint,omitempty"` // advice for the user on how to fix the problem; may be empty
}

// Code identifies an error that callers handle specially. It is empty for all
// other errors.
type Code string

const (
	CodeTaken     Code = "name-taken" // a running job already stores its checkpoints under this name
	CodeNoAgent   Code = "no-agent"   // no agent of the job runs on this host; Failure.Text describes how the job ended
	CodeForgotten Code = "forgotten"  // the host has no files of the job any more
	CodeDamaged   Code = "damaged"    // stored files on the host were corrupt; the caller must send them again
	CodeKilled    Code = "killed"     // the process that supervised a command was killed; no process of the command is left
)

// Is reports whether err is, or wraps, a *Failure with code c.
func (c Code) Is(err error) bool {
	f := (*Failure)(nil)
	return errors.As(err, &f) && f.Code == c
}

func (f *Failure) Error() string { return f.Text }

// Caller sends calls to an agent over a connection. Several calls may be
// pending at a time; the agent processes them in order. While no call is
// pending, Caller does not read from the connection. So after Detach, other
// code can read other messages from it.
type Caller struct {
	conn *Conn

	mu      sync.Mutex
	idle    *sync.Cond          // signalled when no call is pending any more
	used    time.Time           // time at which the last call was sent or answered
	last    uint64              // ID of the newest call
	waiting map[uint64]*Pending // pending calls, by ID
	over    error               // error that Begin returns once the Caller is closed or detached; nil until then
}

// NewCaller returns a Caller for conn. The Caller owns conn until Detach is
// called.
func NewCaller(conn *Conn) *Caller {
	c := &Caller{conn: conn, used: time.Now(), waiting: map[uint64]*Pending{}}
	c.idle = sync.NewCond(&c.mu)
	return c
}

// ErrDetached is the error of a call after Detach. From then on the connection
// carries the messages of a job, and the agent accepts no more calls.
var ErrDetached = errors.New("the agent has a job")

// Pending is a call that was sent and not yet answered.
type Pending struct {
	caller *Caller
	id     uint64
	do     Method
	output func(Piece) // receives each Piece of the call's output; nil if the method has none
	reply  chan Reply  // closed without a value if the connection fails before the reply arrives
	failed error       // why no reply arrived; valid once the channel reply is closed

	orderMu sync.Mutex // held while an Order is being sent; guards over
	over    bool       // true once the call has ended; no Order is sent after that; guarded by orderMu
}

// Begin sends a call and returns without waiting for the reply. Pending.Wait,
// not Begin, returns connection errors.
//
// Begin passes each Piece of the method's output to the function output, in
// order. While output runs, no other message is read from the connection.
// output may be nil for a method without output.
func (c *Caller) Begin(do Method, in any, output func(Piece)) (*Pending, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("encode the call %s: %w", do, err)
	}
	p := &Pending{caller: c, do: do, output: output, reply: make(chan Reply, 1)}
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
		c.Close(fmt.Errorf("send the call %s: %w", do, err))
	}
	return p, nil
}

// read receives messages and passes each to its pending call. It returns when
// no call is pending or the connection fails.
func (c *Caller) read() {
	for {
		m, err := c.conn.Receive()
		c.mu.Lock()
		if err == nil && m.Piece != nil {
			if p := c.waiting[m.Piece.ID]; p != nil && p.output != nil {
				c.mu.Unlock()
				p.output(*m.Piece)
				continue
			}
		}
		if err == nil && (m.Reply == nil || c.waiting[m.Reply.ID] == nil) {
			err = errors.New("the agent sent a message that answers no pending call")
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
			c.idle.Broadcast()
		}
		c.mu.Unlock()
		if done {
			return
		}
	}
}

// Order sends data as input to the call. Empty data marks the end of the
// input. After Wait has returned, Order does nothing. Order returns no error:
// if the connection fails, Wait returns the error.
func (p *Pending) Order(data []byte) {
	p.orderMu.Lock()
	defer p.orderMu.Unlock()
	if !p.over {
		_ = p.caller.conn.Send(Message{Order: &Order{ID: p.id, Data: data}})
	}
}

// end marks the call as ended, so that the method Order sends no more input.
// If an Order message is being sent, end waits for it. An agent that has
// already replied drops that message.
func (p *Pending) end() {
	p.orderMu.Lock()
	defer p.orderMu.Unlock()
	p.over = true
}

// Wait waits for the reply and decodes its result into out, which may be nil.
// If the method failed on the agent, the error is a *Failure. If ctx ends
// first, Wait closes the connection. Otherwise a later call would read the
// late reply.
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
		return fmt.Errorf("decode the answer to %s: %w", p.do, err)
	}
	return nil
}

// Idle returns the time since the last call was sent or answered. It returns 0
// while a call is pending.
func (c *Caller) Idle() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) > 0 {
		return 0
	}
	return time.Since(c.used)
}

// Close closes the connection and makes all pending calls fail with the error
// why.
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
	c.idle.Broadcast()
	c.mu.Unlock()
	c.conn.Close() // the error of Close is ignored: why is more informative
}

// Detach waits until no call is pending and returns the connection. The Caller
// does not use the connection after that, and later calls fail with
// ErrDetached.
func (c *Caller) Detach() (*Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.waiting) > 0 {
		c.idle.Wait()
	}
	if c.over != nil {
		return nil, c.over
	}
	c.over = ErrDetached
	return c.conn, nil
}

// Answering is the agent's side of a call that the agent is processing. Its
// Read returns the data of the call's Order messages as one stream. Read fails
// if the connection is lost.
type Answering struct {
	conn *Conn
	call Call
	*io.PipeReader
	orders        *io.PipeWriter // write end of the embedded PipeReader; receives the data of Order messages
	stopAfterFunc func() bool    // cancels the context.AfterFunc that closes orders when the connection is lost
}

// Send sends a part of the call's output on the given stream. The caller may
// reuse data after Send returns.
func (r *Answering) Send(stream int, data []byte) error {
	return r.conn.Send(Message{Piece: &Piece{ID: r.call.ID, Stream: stream, Data: data}})
}

// Write sends p as output on stream 1 (standard output), in pieces of at most
// maxPiece bytes.
func (r *Answering) Write(p []byte) (int, error) {
	for sent := 0; sent < len(p); sent += maxPiece {
		if err := r.Send(1, p[sent:min(sent+maxPiece, len(p))]); err != nil {
			return sent, err
		}
	}
	return len(p), nil
}

// maxPiece is the largest number of bytes in one Piece. A larger Piece would
// delay a Renew message (lease renewal) that is sent after it on the same
// connection.
const maxPiece = 256 << 10

// Handler implements a method on the agent. The agent sends the result to the
// caller as JSON.
type Handler func(ctx context.Context, call *Answering) (out any, err error)

// Handle returns a Handler that decodes the call's JSON parameter into an In
// and calls f.
func Handle[In, Out any](f func(context.Context, In) (Out, error)) Handler {
	return HandleStream(func(ctx context.Context, in In, _ *Answering) (Out, error) { return f(ctx, in) })
}

// HandleStream is like Handle for a method that also reads Order messages
// (input) or sends Piece messages (output).
func HandleStream[In, Out any](f func(context.Context, In, *Answering) (Out, error)) Handler {
	return func(ctx context.Context, call *Answering) (any, error) {
		var in In
		if err := json.Unmarshal(call.call.In, &in); err != nil {
			return nil, fmt.Errorf("decode the parameter: %w", err)
		}
		return f(ctx, in, call)
	}
}

// ErrPeerTimeout is the error of Serve if no message arrives in time.
var ErrPeerTimeout = errors.New("no message from plx")

// MostSilence is how long an agent without a job waits for the next message
// from the launcher. After that it assumes that the network is down, releases
// its GPU reservations and exits.
const MostSilence = time.Minute

// Serve processes calls, one after the other, until a message arrives that is
// neither a Call nor an Order (input of a call). It returns that message. If
// nothing arrives for the duration silence, it returns ErrPeerTimeout. The
// context of a Handler ends with the connection.
func Serve(ctx context.Context, conn *Conn, handlers map[Method]Handler, silence time.Duration) (Message, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &server{conn: conn, calls: make(chan *Answering, maxQueuedCalls)}
	end, failed := make(chan Message, 1), make(chan error, 1)
	go func() { // the goroutine ends when the connection fails, or when receive returns the first message that is neither a Call nor an Order
		m, err := r.receive(ctx)
		if err != nil {
			failed <- err
			if err == io.EOF {
				err = io.ErrUnexpectedEOF // a handler that reads orders must not take a lost connection for the end of the input
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
			return Message{}, fmt.Errorf("%w for %s", ErrPeerTimeout, silence)
		}
	}
}

// maxQueuedCalls is the largest number of calls on one connection that may
// wait while the agent processes another call.
const maxQueuedCalls = 64

// server is the agent's side of a connection on which a Caller sends calls.
type server struct {
	conn    *Conn
	calls   chan *Answering // queue of calls to process
	running sync.Map        // map of call ID to *Answering: the calls that have not been answered yet
}

// receive queues each Call and passes the data of each Order (input of a call)
// to its call. It returns the first message that is neither a Call nor an
// Order.
func (s *server) receive(ctx context.Context) (Message, error) {
	for {
		m, err := s.conn.Receive()
		switch {
		case err != nil || m.Call == nil && m.Order == nil:
			return m, err
		case m.Call != nil:
			run := &Answering{call: *m.Call, conn: s.conn}
			run.PipeReader, run.orders = io.Pipe()
			run.stopAfterFunc = context.AfterFunc(ctx, func() { run.orders.CloseWithError(context.Cause(ctx)) })
			s.running.Store(m.Call.ID, run)
			select {
			case s.calls <- run:
			default:
				return m, fmt.Errorf("more than %d calls wait for an answer", maxQueuedCalls)
			}
		default:
			s.order(*m.Order)
		}
	}
}

// order writes the data of o to the input stream of its call. It drops o if
// that call has ended.
func (s *server) order(o Order) {
	run, _ := s.running.Load(o.ID)
	call, runs := run.(*Answering)
	switch {
	case !runs:
	case len(o.Data) == 0:
		call.orders.Close()
	default:
		_, _ = call.orders.Write(o.Data) // the error is ignored: it means that the call has ended and the data is dropped
	}
}

func (s *server) answer(ctx context.Context, call *Answering, handlers map[Method]Handler) *Reply {
	defer func() {
		s.running.Delete(call.call.ID)
		call.stopAfterFunc()
		call.Close() // from now on, writes to the call's input stream fail instead of blocking
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
