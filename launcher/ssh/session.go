package ssh

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/plx-run/plx/launcher/transport"
	gossh "golang.org/x/crypto/ssh"
)

// session is one channel that runs a command or a subsystem.
type session struct {
	gossh.Channel
	client  *Client
	exit    chan error // receives how the command ended, once: nil, an *transport.ExitError or errNoStatus
	release sync.Once
}

var errNoStatus = errors.New("the server ended the session without an exit status")

// openSession waits for a slot and starts a session: kind is "exec" with a
// command or "subsystem" with its name. The caller must end it.
func (c *Client) openSession(ctx context.Context, kind, argument string) (*session, error) {
	var since time.Time // of refusals while no session was open
	for {
		if err := c.slots.acquire(ctx, c.stop, c.cfg.Crowded); err != nil {
			return nil, c.explain(ctx, err)
		}
		s, err := c.startWithin(ctx, kind, argument)
		if err == nil {
			c.opened.Store(true)
			return s, nil
		}
		var rejected *gossh.OpenChannelError
		if !errors.As(err, &rejected) {
			c.slots.release()
			return nil, c.explain(ctx, err)
		}
		if c.slots.refused() {
			since = time.Time{} // another session ends: that is waited for
			continue
		}
		if since.IsZero() {
			since = time.Now()
		}
		if !c.opened.Load() || time.Since(since) > freeing {
			return nil, fmt.Errorf("host %s: the server refuses a session (MaxSessions?): %w", c.cfg.Host, err)
		}
		select {
		case <-time.After(freeEvery):
		case <-ctx.Done(): // acquire returns the reason
		case <-c.stop:
		}
	}
}

// openNow is openSession that does not wait for other sessions to end.
func (c *Client) openNow(ctx context.Context, kind, argument string) (*session, error) {
	if !c.slots.take() {
		return nil, errCrowded
	}
	s, err := c.startWithin(ctx, kind, argument)
	if err == nil {
		return s, nil
	}
	if rejected := (*gossh.OpenChannelError)(nil); errors.As(err, &rejected) {
		c.slots.refused()
		return nil, errCrowded
	}
	c.slots.release()
	return nil, c.explain(ctx, err)
}

var errCrowded = errors.New("the server allows no more sessions")

// A server counts a session for a moment after it has ended, and may refuse others:
// the client tries again for so long, and so often.
const (
	freeing   = 5 * time.Second
	freeEvery = 20 * time.Millisecond
)

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

// end closes the channel and gives the slot back.
func (s *session) end() {
	s.release.Do(func() {
		_ = s.Close() // io.EOF when the server closed it first
		s.client.slots.release()
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

// slots limits the sessions open at once. The limit shrinks when the server
// refuses a session while others are open.
type slots struct {
	mu      sync.Mutex
	limit   int           // most sessions that may be open at once
	active  int           // number of open sessions
	changed chan struct{} // closed and replaced when a session is released
}

func newSlots(limit int) *slots {
	return &slots{limit: limit, changed: make(chan struct{})}
}

// acquire waits for a slot until ctx or done ends. It calls crowded, if that is not nil, before
// it waits.
func (s *slots) acquire(ctx context.Context, done <-chan struct{}, crowded func()) error {
	for {
		s.mu.Lock()
		if s.active < s.limit {
			s.active++
			s.mu.Unlock()
			return nil
		}
		changed := s.changed
		s.mu.Unlock()
		if crowded != nil {
			crowded()
		}
		select {
		case <-changed:
		case <-done:
			return errClientDone
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// take is acquire that does not wait.
func (s *slots) take() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.active >= s.limit {
		return false
	}
	s.active++
	return true
}

func (s *slots) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active--
	close(s.changed)
	s.changed = make(chan struct{})
}

// refused gives the slot back after the server refused the session, and reports
// whether others are open, so that waiting for one of them makes sense. The
// limit becomes their number.
func (s *slots) refused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active--
	if s.active > 0 {
		s.limit = min(s.limit, s.active)
		return true
	}
	close(s.changed) // who waits for this one, which was refused too, tries again
	s.changed = make(chan struct{})
	return false
}
