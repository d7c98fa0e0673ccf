package conductor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/plx-run/plx/launcher/coordinator"
	"github.com/plx-run/plx/launcher/protocol"
)

// link keeps one agent connected and its lease renewed, and the one that takes
// its place.
type link struct {
	index    int
	host     Host
	lease    time.Duration
	deliver  func(coordinator.Event)
	over     chan struct{} // closed when run has ended
	finished chan struct{} // closed when the job is concluded
	greeted  bool          // Up was called for the present agent; run's alone

	mu    sync.Mutex
	out   chan protocol.Message // to the present connection's writer; nil without one
	heard time.Time             // when the agent last said anything, at first when the link was made
	met   bool                  // the agent has said something
	ended bool                  // it said last that its part of the job is over
	last  *protocol.Message     // End, once the job is concluded; sent on each connection
	err   error                 // why the agent was not seen to end
	clock stamper
	sent  time.Time // when the last renewal was sent; zero without one
	clear time.Time // when nothing runs any more of an agent that was lost
}

func newLink(index int, host Host, lease time.Duration, deliver func(coordinator.Event)) *link {
	return &link{index: index, host: host, lease: lease, deliver: deliver,
		over: make(chan struct{}), finished: make(chan struct{}), heard: time.Now()}
}

// Rhythm of a link. silence is well under the lease's default, so that a dead
// connection is replaced before the lease ends.
const (
	renewEvery = 2 * time.Second
	silence    = 20 * time.Second
)

// firstContact is the least time that an agent has to answer at all: it is only
// being started, and has no lease yet.
const firstContact = 30 * time.Second

// run keeps one agent after the other connected, until the job is over or no
// agent is to be had any more.
func (l *link) run(ctx context.Context) {
	defer close(l.over)
	for conn := (*protocol.Conn)(nil); ; {
		err := l.live(ctx, conn)
		if err == nil || ctx.Err() != nil {
			l.settle(err)
			return
		}
		l.lose(err)
		if conn = l.revive(ctx); conn == nil {
			return
		}
		l.renewed()
	}
}

// live dials, reads and dials again until the agent has ended, which is no
// error, or is lost. conn is a connection to begin with, nil for none.
func (l *link) live(ctx context.Context, conn *protocol.Conn) error {
	var said error // why the first connection was lost
	for told := false; ; conn = nil {
		connected, err := l.session(ctx, conn)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil && l.wasEnded():
			return nil
		case errors.Is(err, ErrNoAgent):
			return l.stillborn(err, said)
		case l.left() <= 0:
			return fmt.Errorf("not heard for %s: %s", l.patience(), cause(err))
		}
		if connected || !told {
			l.deliver(coordinator.Silent{Host: l.index, Cause: cause(err)})
			told = true
		}
		if said == nil {
			said = err
		}
		pause(ctx, min(l.lease/30, time.Second))
	}
}

// stillborn adds to the end of an agent that has never answered what it said
// when it could not start: on a full disk nothing else is known of it.
func (l *link) stillborn(end, said error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.met || said == nil || strings.Contains(said.Error(), strings.TrimPrefix(end.Error(), ErrNoAgent.Error()+": ")) {
		return end
	}
	return fmt.Errorf("%w; when it was started: %w", end, said)
}

func cause(err error) string {
	if err == nil {
		return "the agent closed it"
	}
	return err.Error()
}

// pause waits about d, jittered so that many hosts do not dial in step.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d/2 + rand.N(d)):
	}
}

// session is one connection: a nil error means that the agent closed it.
func (l *link) session(ctx context.Context, conn *protocol.Conn) (connected bool, err error) {
	if conn == nil {
		dialling, cancel := context.WithTimeoutCause(ctx, max(l.left(), time.Second), errNoConnection)
		defer cancel()
		if conn, err = l.host.Dial(dialling); err != nil {
			return false, err
		}
	}
	living, die := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer die()
	out := l.open()
	wg.Go(func() { write(living, conn, out) })
	wg.Go(func() { l.renew(living, conn) })
	err = l.receive(conn)
	l.close()
	switch {
	case errors.Is(err, io.EOF):
		err = nil
	case l.unheard() > l.mute():
		err = fmt.Errorf("nothing was heard for %s", l.unheard().Round(time.Second))
	}
	return true, err
}

var errNoConnection = errors.New("no connection in time")

// mute is how long a connection may carry nothing before it is replaced.
func (l *link) mute() time.Duration { return min(silence, l.patience()*2/3) }

// queued is how many messages may wait for a connection that takes none. One
// more means that it is dead.
const queued = 1024

// open makes the queue of a new connection, with what is owed on it.
func (l *link) open() <-chan protocol.Message {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out = make(chan protocol.Message, queued)
	l.out <- protocol.Message{Attach: &protocol.Attach{Conductor: true}}
	if l.last != nil {
		l.out <- *l.last
	}
	return l.out
}

func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out = nil
}

// lastWords bounds how long a connection that takes nothing more is still read.
const lastWords = 2 * time.Second

// write empties the queue onto conn, which it closes at the end. Only this
// goroutine ever waits for the network to take bytes.
func write(ctx context.Context, conn *protocol.Conn, out <-chan protocol.Message) {
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		conn.Close()
	})
	defer func() {
		if !stop() {
			<-closed
		}
	}()
	defer conn.Close()
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-out:
			if conn.Send(m) != nil {
				select { // the reader reports the loss, with what came before it
				case <-ctx.Done():
				case <-time.After(lastWords):
				}
				return
			}
		}
	}
}

func (l *link) receive(conn *protocol.Conn) error {
	defer conn.Close()
	for {
		m, err := conn.Receive()
		if err != nil {
			return err
		}
		l.hear(m)
		switch {
		case m.State != nil:
			if l.host.Up != nil && !l.greeted {
				l.host.Up()
			}
			l.greeted = true
			l.sendRenewal()
			l.deliver(coordinator.Up{Host: l.index, State: *m.State})
		case m.Renewed == nil:
			l.deliver(coordinator.Heard{Host: l.index, Message: m})
		}
	}
}

func (l *link) hear(m protocol.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard, l.met = time.Now(), true
	if m.State != nil {
		l.ended = m.State.Phase == protocol.Over
	}
}

// renew keeps the lease, and closes a connection that has gone silent. An agent
// that does not answer is not sent any more renewals: it is lost the sooner, and
// sooner is it known that nothing runs there.
func (l *link) renew(ctx context.Context, conn *protocol.Conn) {
	defer conn.Close()
	every := min(renewEvery, l.lease/6)
	tick := time.NewTicker(every)
	defer tick.Stop()
	begun, answering := time.Now(), 2*every // the first word after a long silence takes a moment
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if l.unheard() <= l.lease/3 {
			l.sendRenewal()
		}
		if l.unheard() > l.mute() && time.Since(begun) > answering {
			return
		}
	}
}

// sendRenewal queues a renewal, if there is a connection.
func (l *link) sendRenewal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out == nil {
		return
	}
	r := l.clock.stamp(time.Now())
	l.sent = time.Now()
	select {
	case l.out <- protocol.Message{Renew: &r}:
	default: // as in send
	}
}

// send queues a message, if there is a connection. Without one it is dropped:
// the coordinator sends again what still matters.
func (l *link) send(m protocol.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.out <- m:
	default: // nil or full; a full queue is a silent connection, which renew ends
	}
}

// finish makes m the last word to the agent, now and after reconnecting.
func (l *link) finish(m protocol.Message) {
	l.mu.Lock()
	first := l.last == nil
	l.last = &m
	l.mu.Unlock()
	if first {
		close(l.finished)
	}
	l.send(m)
}

// wasEnded reports whether the agent was told to end and said that it has.
func (l *link) wasEnded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last != nil && l.ended
}

func (l *link) ending() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last != nil
}

func (l *link) unheard() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.heard)
}

// patience is how long the agent may stay silent.
func (l *link) patience() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.met {
		return max(l.lease, firstContact)
	}
	return l.lease
}

// left is what is left of the patience.
func (l *link) left() time.Duration { return l.patience() - l.unheard() }

func (l *link) settle(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

// outcome is why the agent was not seen to end, nil when it was, or when it was
// lost so long ago that nothing is left of it.
func (l *link) outcome() error {
	select {
	case <-l.over:
	default:
		return errors.New("no answer in time")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.clear.IsZero() && !time.Now().Before(l.clear) {
		return nil
	}
	return l.err
}
