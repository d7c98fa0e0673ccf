package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/plx-run/plx/trainer/lifetime"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

// chief is the chief's side of the store: it hears all tasks, this one among
// them, and decides.
type chief struct {
	config     Config
	life       *lifetime.Lifetime
	roster     *roster
	saves      *saves
	dismissing sync.Once
}

func newChief(c Config, life *lifetime.Lifetime, hook func(string) error) *chief {
	r := newRoster(c)
	return &chief{config: c, life: life, roster: r, saves: &saves{config: c, life: life, roster: r, hook: hook}}
}

// gather waits for all tasks and finds out which share a folder. s is this
// task's own store; it says hello first.
func (c *chief) gather(ctx context.Context, s *Store, first message) error {
	self, err := c.roster.enter(c.config.Peers.Self, first)
	if err != nil {
		return err
	}
	c.life.Go(func(ctx context.Context) {
		self.out.run(ctx, func(m message) error { return s.hear(ctx, m) }) // ends with the store
	})
	c.life.Go(func(ctx context.Context) {
		s.up.run(ctx, func(m message) error { return c.hear(self, m) }) // ends with the store
	})
	if c.config.Listener != nil {
		c.config.Listener.Handle(purpose, c.meet)
	}
	if err = c.roster.assemble(ctx); err == nil {
		err = c.roster.find(ctx)
	}
	opening := message{Kind: joined}
	if err != nil {
		opening.Err = string(peers.EncodeReport(err))
	}
	c.roster.tell(opening)
	return err
}

// meet serves a task's connection to its end.
func (c *chief) meet(p peers.Peer) {
	if !c.life.Do(func(ctx context.Context) { c.serve(ctx, p) }) {
		p.Conn.Close() // this task is ending
	}
}

func (c *chief) serve(ctx context.Context, p peers.Peer) {
	s := peers.NewSession(p, c.config.Peers.Generation, c.config.Silence)
	defer s.Close() // of no more use
	from, err := c.greet(ctx, s)
	if err != nil {
		c.config.logf(slog.LevelWarn, "checkpoints: refused %s from %s: %v", p.Task, p.Addr, err)
		return
	}
	c.parted(from, converse(ctx, s, from.out, func(m message) error { return c.hear(from, m) }))
}

// greet waits for a task's first message.
func (c *chief) greet(ctx context.Context, s *peers.Session) (*member, error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.Silence)
	defer cancel()
	stop := s.CloseWith(ctx)
	defer stop()
	var m message
	if err := s.NextJSON(wire.Message, &m, maxMessage); err != nil {
		return nil, err
	}
	return c.roster.enter(s.Task, m)
}

// parted takes why a task is heard no more.
func (c *chief) parted(m *member, err error) {
	if m.dismissed.Load() {
		err = nil
	} else {
		err = c.config.blame(m.task, err)
		c.config.logf(slog.LevelDebug, "checkpoints: %v", err)
	}
	m.gone.take(err)
	if err != nil {
		c.saves.lost(m.task, err)
	}
	c.roster.note()
	c.saves.release()
}

// hear takes a message of a task. It must not take long.
func (c *chief) hear(from *member, m message) error {
	switch m.Kind {
	case answer:
		from.answer(m)
	case reported:
		if m.Report == nil {
			return errors.New("a report without one")
		}
		c.saves.take(from.task, m.ID, m.Report)
	case restored:
		from.restored.Store(true)
		c.saves.release()
	case leave:
		from.leaving.Store(true)
		c.saves.release()
	default:
		return fmt.Errorf("unexpected %q message", m.Kind)
	}
	return nil
}

// dismiss lets all tasks go, because the chief is ending, and waits in bounded
// time until they have hung up.
func (c *chief) dismiss() {
	c.saves.abandon()
	for _, m := range c.roster.present() {
		m.dismiss()
	}
	timer := time.NewTimer(farewell)
	defer timer.Stop()
	for _, m := range c.roster.all() { // also those that were dismissed before
		if m.task == c.config.Peers.Self {
			continue
		}
		select {
		case <-m.gone.done: // it has hung up
		case <-timer.C:
			return
		}
	}
}
