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

// session is one SSH channel that runs a command or a subsystem such as sftp.
type session struct {
	gossh.Channel
	client *Client
	exit   chan error // receives the result once: nil for exit status 0, a *transport.ExitError, or errNoStatus
	ending sync.Once
}

var errNoStatus = errors.New("the server ended the session without an exit status")

// openSession starts a session. kind is "exec" and argument a command, or kind
// is "subsystem" and argument the subsystem's name. The caller must call end.
// If the server refuses the session while others are open, openSession waits
// until another session has ended and retries.
func (c *Client) openSession(ctx context.Context, kind, argument string) (*session, error) {
	var since time.Time // time at which the server first refused the session although no other session was open; zero if it has not
	for {
		s, freed, err := c.tryOpen(ctx, kind, argument)
		var refused *gossh.OpenChannelError
		if err == nil || !errors.As(err, &refused) {
			return s, err
		}
		var again <-chan time.Time
		if freed != nil {
			since = time.Time{}
			if c.cfg.OnSessionRefused != nil {
				c.cfg.OnSessionRefused()
			}
		} else {
			if since.IsZero() {
				since = time.Now()
			}
			if !c.opened.Load() || time.Since(since) > sessionRetryTime {
				return nil, fmt.Errorf("host %s: the server refuses a session (MaxSessions?): %w", c.cfg.Host, refused)
			}
			again = time.After(sessionRetryEvery)
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

// A server may refuse a new session for a moment after the last one has ended.
// The client then retries every sessionRetryEvery, for at most sessionRetryTime.
const (
	sessionRetryTime  = 5 * time.Second
	sessionRetryEvery = 20 * time.Millisecond
)

// tryOpen starts a session like openSession, but does not wait for other
// sessions to end. If the server refuses the session, the error wraps an
// OpenChannelError. If the connection has other sessions at that time, the
// channel freed is closed when one of them ends. Without other sessions, freed
// is nil.
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

// startWithin starts a session. If ctx or the connection ends first,
// startWithin returns at once. It then closes the session as soon as the
// session opens.
func (c *Client) startWithin(ctx context.Context, kind, argument string) (*session, error) {
	var err error
	started := make(chan *session, 1) // receives nil if the session could not start
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
			_ = s.Close() // startWithin has returned, so no caller uses this session
		}
	})
	return nil, errClientDone
}

func (c *Client) start(kind, argument string) (*session, error) {
	channel, requests, err := c.ssh.OpenChannel("session", nil)
	var rejected *gossh.OpenChannelError
	if err != nil && !errors.As(err, &rejected) {
		err = fmt.Errorf("%w: %w", errClientDone, err) // Any other error means that the connection has ended.
	}
	if err != nil {
		return nil, err
	}
	s := &session{Channel: channel, client: c, exit: make(chan error, 1)}
	c.workers.start(func() { s.serve(requests) })
	if kind == "exec" {
		if err := s.requestEnvironment(c.env, c.forwards); err != nil {
			_ = channel.Close() // err, the error of the failed request, is returned instead
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
		_ = channel.Close() // the server's refusal is returned instead
		return nil, err
	}
	return s, nil
}

// requestEnvironment requests the environment variables and, if agent is set, forwarding
// of the user's SSH agent. Like ssh it asks for no reply, so a refusal by the
// server goes unnoticed.
func (s *session) requestEnvironment(env []string, agent bool) error {
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

// serve handles the server's requests on the channel, such as the exit status,
// until the channel is closed.
func (s *session) serve(requests <-chan *gossh.Request) {
	defer s.exited(errNoStatus)
	for request := range requests {
		if err, is := parseExit(request); is {
			s.exited(err)
		}
		if request.WantReply {
			_ = request.Reply(false, nil) // an error means that the channel is closed
		}
	}
}

// exited records the exit status of the command. It ignores further statuses.
func (s *session) exited(err error) {
	select {
	case s.exit <- err:
	default:
	}
}

// end closes the channel.
func (s *session) end() {
	s.ending.Do(func() {
		_ = s.Close() // returns io.EOF if the server has closed the channel
		s.client.sessions.end()
	})
}

// ExitSignal is the payload of the SSH channel request "exit-signal".
type ExitSignal struct {
	Name              string // name of the signal without SIG, such as KILL
	CoreDumped        bool
	Message, Language string
}

// parseExit returns the exit error that the request reports. The result is
// says whether the request reports an exit status or a signal at all.
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

// signalNumbers maps signal names without SIG to Linux's signal numbers.
var signalNumbers = map[string]int{
	"HUP": 1, "INT": 2, "QUIT": 3, "ILL": 4, "TRAP": 5, "ABRT": 6, "BUS": 7, "FPE": 8, "KILL": 9,
	"USR1": 10, "SEGV": 11, "USR2": 12, "PIPE": 13, "ALRM": 14, "TERM": 15,
	"XCPU": 24, "XFSZ": 25, "SYS": 31, "SYS@openssh.com": 31,
}

// sessions counts the sessions of a connection that are open or being opened.
type sessions struct {
	mu    sync.Mutex
	count int
	ended chan struct{} // closed and replaced by a new channel whenever a session ends
}

// begin adds one to the number of sessions. It returns a channel that is
// closed when any session ends.
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

// refused subtracts a session that the server has refused. It reports whether
// other sessions exist, for whose end the caller can wait.
func (s *sessions) refused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count--
	if s.count > 0 {
		return true
	}
	close(s.ended) // Wake callers that wait for a session to end: no session is left that could end.
	s.ended = make(chan struct{})
	return false
}
