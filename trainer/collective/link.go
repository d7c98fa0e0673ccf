package collective

import (
	"errors"
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

// link is the session with one other worker.
type link struct {
	*peers.Session
	group *Group
	rank  int

	// Guarded by the group's mu. A peer is one exchange ahead of this worker at
	// most, as it cannot end one that this worker has not announced.
	said  signature // of the last announcement
	heard uint64    // its number; zero: the peer has announced nothing
	early []byte    // data that came with it
	rest  []byte    // where data that has not begun to come will go; nil: no more will come
	left  bool      // the peer has said goodbye
}

// read takes what the peer sends until the connection ends or the group
// breaks.
func (l *link) read() {
	defer l.Drain()
	for {
		h, err := l.Next()
		if errors.Is(err, peers.ErrGoodbye) {
			l.parted()
			return
		}
		if err == nil {
			err = l.take(h)
		}
		if err != nil {
			l.group.fail(l.Blame(err))
			return
		}
	}
}

func (l *link) take(h wire.Header) error {
	m, err := decode(h)
	switch {
	case err != nil:
		return err
	case m.op != 0:
		if err := l.checkNext(m); err != nil {
			return err
		}
		l.early = slices.Grow(l.early[:0], int(h.Length))[:h.Length]
		if err := l.Payload(l.early); err != nil {
			return err
		}
		return l.announced(m)
	default:
		return l.data(h)
	}
}

// checkNext refuses an announcement that is not of the peer's next exchange. After
// the peer's last exchange has begun here, nobody uses early any more.
func (l *link) checkNext(m message) error {
	g := l.group
	g.mu.Lock()
	defer g.mu.Unlock()
	if m.number != l.heard+1 || m.number > g.begun+1 {
		return fmt.Errorf("announces exchange %d after %d, worker:%d is in its %d", m.number, l.heard, g.config.Rank, g.begun)
	}
	return nil
}

// announced takes the peer's announcement of its next exchange, whose data is
// in early.
func (l *link) announced(m message) error {
	g := l.group
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		return g.err
	}
	l.said, l.heard = m.signature, m.number
	if e := g.current; e != nil && e.number == l.heard {
		return e.hear(l)
	}
	return nil
}

// fill takes the data that came with the announcement: the beginning of what
// goes into memory.
func (l *link) fill(memory []byte) error {
	if want := min(early, len(memory)); len(l.early) != want {
		return l.Blame(fmt.Errorf("%s: announced with %d bytes, want %d", l.said, len(l.early), want))
	}
	l.rest = memory[copy(memory, l.early):]
	return nil
}

// data takes all that the peer sends in the current exchange; h is the header
// of the first frame.
func (l *link) data(h wire.Header) error {
	g := l.group
	g.mu.Lock()
	e := g.current
	switch {
	case g.err != nil:
		g.mu.Unlock()
		return g.err
	case e == nil || l.heard != e.number || len(l.rest) == 0:
		g.mu.Unlock()
		return fmt.Errorf("data of exchange %d, which worker:%d does not expect", h.Step, g.config.Rank)
	}
	rest := l.rest
	l.rest = nil
	e.users.Add(1) // no user is added once g.err is set
	g.mu.Unlock()
	defer e.users.Done()
	if err := e.receive(l, rest, h); err != nil {
		return err
	}
	e.finish()
	return nil
}

// parted takes the peer's goodbye and answers it.
func (l *link) parted() {
	g := l.group
	g.mu.Lock()
	l.left = true
	if e := g.current; e != nil && e.needs(l) {
		g.broken(l.leaver(e.signature))
	}
	g.mu.Unlock()
	l.Bye() // the peer hangs up whether it hears this or not
}

// leaver says that the peer has left before a collective.
func (l *link) leaver(s signature) error {
	return l.Blame(fmt.Errorf("has left, it takes no part in %s: every worker must call the same collectives", s))
}
