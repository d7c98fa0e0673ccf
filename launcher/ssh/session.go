package ssh

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/plx-run/plx/launcher/transport"
	gossh "golang.org/x/crypto/ssh"
)

// session is one channel that runs a command or a subsystem.
type session struct {
	gossh.Channel
	client *Client
	exit   chan error // receives how the command ended, once: nil, an *transport.ExitError or errNoStatus
	ending sync.Once
}

var errNoStatus = errors.New("the server ended the session without an exit status")

// openSession starts a session: kind is "exec" with a command or "subsystem" with its
// name. The caller must end it. If the server refuses it while others are open, openSession
// waits until one of these has ended.
func (c *Client) openSession(ctx context.Context, kind, argument string) (*session, error) {
	var since time.Time // of refusals while no session was open
	for {
		s, freed, err := c.tryOpen(ctx, kind, argument)
		var refused *gossh.OpenChannelError
		if err == nil || !errors.As(err, &refused) {
			return s, err
		}
		var again <-chan time.Time
		if freed != nil {
			since = time.Time{}
			if c.cfg.Crowded != nil {
				c.cfg.Crowded()
			}
		} else {
			if since.IsZero() {
				since = time.Now()
			}
			if !c.opened.Load() || time.Since(since) > freeing {
				return nil, fmt.Errorf("host %s: the server refuses a session (MaxSessions?): %w", c.cfg.Host, refused)
			}
			again = time.After(freeEvery)
		}
		select {
		case <-freed:
		case <-again:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-c.stop:
			return nil, c.lost()
		}
	}
}

// A server counts a session for a moment after it has ended, and may refuse others:
// the client tries again for so long, and so often.
const (
	freeing   = 5 * time.Second
	freeEvery = 20 * time.Millisecond
)

// tryOpen is openSession that does not wait for other sessions to end: the error of a refusal is an
// OpenChannelError. If others are open then, freed is not nil, and is closed once one has ended.
func (c *Client) tryOpen(ctx context.Context, kind, argument string) (s *session, freed <-chan struct{}, err error) {
	next := c.sessions.begin()
	s, err = c.startWithin(ctx, kind, argument)
	if err == nil {
		c.opened.Store(true)
		return s, nil, nil
	}
	var refused *gossh.OpenChannelError
	if !errors.As(err, &refused) {
		c.sessions.end()
		return nil, nil, c.explain(ctx, err)
	}
	if c.sessions.refused() {
		freed = next
	}
	return nil, freed, fmt.Errorf("the server allows no more sessions: %w", err)
}

// startWithin starts a session and returns early when ctx or the connection
// ends; a session that opens after that is closed at once.
func (c *Client) startWithin(ctx context.Context, kind, argument string) (*session, error) {
	var err error
	started := make(chan *session, 1) // gets nil after an error
	c.workers.start(func() {
		var s *session
		s, err = c.start(kind, argument)
		started <- s
	})
	select {
	case s := <-started:
		return s, err
	case <-ctx.Done():
	case <-c.stop:
	}
	c.workers.start(func() {
		if s := <-started; s != nil {
			_ = s.Close() // nobody waits for it any more
		}
	})
	return nil, errClientDone
}

func (c *Client) start(kind, argument string) (*session, error) {
	channel, requests, err := c.ssh.OpenChannel("session", nil)
	var rejected *gossh.OpenChannelError
	if err != nil && !errors.As(err, &rejected) {
		err = fmt.Errorf("%w: %w", errClientDone, err) // no answer but the end
	}
	if err != nil {
		return nil, err
	}
	s := &session{Channel: channel, client: c, exit: make(chan error, 1)}
	c.workers.start(func() { s.serve(requests) })
	if kind == "exec" {
		if err := s.surround(c.env, c.forwards); err != nil {
			_ = channel.Close() // the first error says more
			return nil, fmt.Errorf("%w: %w", errClientDone, err)
		}
	}
	ok, err := channel.SendRequest(kind, true, gossh.Marshal(struct{ Argument string }{argument}))
	switch {
	case err != nil:
		err = fmt.Errorf("%w: %w", errClientDone, err)
	case !ok:
		err = fmt.Errorf("host %s: the server refused to start the %s", c.cfg.Host, kind)
	}
	if err != nil {
		_ = channel.Close() // the refusal is what is reported
		return nil, err
	}
	return s, nil
}

// surround asks for variables and for the user's agent, which a server may refuse without a word,
// as ssh does.
func (s *session) surround(env []string, agent bool) error {
	var errs []error
	for _, variable := range env {
		name, value, _ := strings.Cut(variable, "=")
		_, err := s.SendRequest("env", false, gossh.Marshal(struct{ Name, Value string }{name, value}))
		errs = append(errs, err)
	}
	if agent {
		_, err := s.SendRequest("auth-agent-req@openssh.com", false, nil)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// serve receives the exit status, until the channel is closed.
func (s *session) serve(requests <-chan *gossh.Request) {
	defer s.exited(errNoStatus)
	for request := range requests {
		if err, is := parseExit(request); is {
			s.exited(err)
		}
		if request.WantReply {
			_ = request.Reply(false, nil) // fails only when the channel is closed
		}
	}
}

// exited records the exit status. A second status is noise.
func (s *session) exited(err error) {
	select {
	case s.exit <- err:
	default:
	}
}

// end closes the channel.
func (s *session) end() {
	s.ending.Do(func() {
		_ = s.Close() // io.EOF when the server closed it first
		s.client.sessions.end()
	})
}

// ExitSignal is the content of a request of type exit-signal.
type ExitSignal struct {
	Name              string // of the signal, without SIG
	CoreDumped        bool
	Message, Language string
}

// parseExit reads an exit report; is tells whether the request is one.
func parseExit(request *gossh.Request) (exit error, is bool) {
	switch request.Type {
	case "exit-status":
		var status struct{ Status uint32 }
		if err := gossh.Unmarshal(request.Payload, &status); err != nil {
			return fmt.Errorf("malformed exit status: %w", err), true
		}
		if status.Status == 0 {
			return nil, true
		}
		return &transport.ExitError{Status: int(status.Status)}, true
	case "exit-signal":
		var signal ExitSignal
		if err := gossh.Unmarshal(request.Payload, &signal); err != nil {
			return fmt.Errorf("malformed exit signal: %w", err), true
		}
		return &transport.ExitError{Status: 128 + signalNumbers[signal.Name], Signal: signal.Name}, true
	}
	return nil, false
}

// signalNumbers has the numbers that Linux gives the signals.
var signalNumbers = map[string]int{
	"HUP": 1, "INT": 2, "QUIT": 3, "ILL": 4, "TRAP": 5, "ABRT": 6, "BUS": 7, "FPE": 8, "KILL": 9,
	"USR1": 10, "SEGV": 11, "USR2": 12, "PIPE": 13, "ALRM": 14, "TERM": 15,
	"XCPU": 24, "XFSZ": 25, "SYS": 31, "SYS@openssh.com": 31,
}

// sessions counts those that are open, or for which the server was asked.
type sessions struct {
	mu    sync.Mutex
	count int
	ended chan struct{} // closed, and replaced, once one has ended
}

// begin counts a session. The channel is closed once one has ended.
func (s *sessions) begin() (ended <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	return s.ended
}

func (s *sessions) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count--
	close(s.ended)
	s.ended = make(chan struct{})
}

// refused ends a session that the server has refused, and reports whether there are others, so
// that it makes sense to wait for one of them.
func (s *sessions) refused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count--
	if s.count > 0 {
		return true
	}
	close(s.ended) // who waits for this one, which was refused too, tries again
	s.ended = make(chan struct{})
	return false
}
