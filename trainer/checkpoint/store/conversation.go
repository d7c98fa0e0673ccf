package store

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

// errEnough ends a conversation in good order.
var errEnough = errors.New("all was said")

// converse sends what is posted and hears what comes until the session or ctx
// ends, or hear returns an error. It returns why.
func converse(ctx context.Context, s *peers.Session, out *mailbox, hear func(message) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var sending sync.WaitGroup
	sending.Go(func() {
		cancel(out.run(ctx, func(m message) error { return s.SendJSON(wire.Message, m, maxMessage) }))
	})
	defer s.CloseWith(ctx)()
	err := error(nil)
	for err == nil {
		var m message
		if err = s.NextJSON(wire.Message, &m, maxMessage); err == nil {
			err = hear(m)
		}
	}
	if ctx.Err() != nil && !errors.Is(err, errEnough) {
		err = context.Cause(ctx) // a session that was closed does not know why
	}
	cancel(err)
	sending.Wait()
	return err
}

// join connects this task to the chief's store and waits until all tasks are
// there.
func (s *Store) join(ctx context.Context, first message) error {
	c := s.config
	session, err := peers.Open(ctx, c.Peers, cluster.Chief, c.Cluster.Addr(cluster.Chief), purpose, c.Silence)
	if err != nil {
		return c.blame(cluster.Chief, err)
	}
	s.up.post(first)
	s.life.Go(func(ctx context.Context) {
		defer session.Close() // of no more use
		s.parted(converse(ctx, session, s.up, func(m message) error { return s.hear(ctx, m) }))
	})
	select {
	case <-s.joined.done:
		return s.joined.err
	case <-ctx.Done():
		return c.blame(cluster.Chief, fmt.Errorf("has not heard from all other tasks: %w", context.Cause(ctx)))
	}
}

// parted takes why the chief is heard no more.
func (s *Store) parted(err error) {
	if errors.Is(err, errEnough) {
		err = nil
	} else {
		err = s.config.blame(cluster.Chief, err)
	}
	s.gone.take(err)
	if err == nil {
		err = s.config.blame(cluster.Chief, errors.New("it has ended"))
	}
	s.joined.take(err)
	s.decision.take(err)
	s.parts.cancel(err)
}

// hear takes a message of the chief. It must not take long.
func (s *Store) hear(ctx context.Context, m message) error {
	switch m.Kind {
	case look:
		s.reply(m, func() (message, error) { return message{Tokens: s.inventory.sees(m.Tokens)}, nil })
	case joined:
		s.joined.take(m.reason())
	case fetch:
		s.reply(m, func() (message, error) { return s.inventory.manifest(m.ID) })
	case verify:
		s.reply(m, func() (message, error) { return message{}, s.inventory.verify(m) })
	case commit:
		s.reply(m, func() (message, error) { return message{}, s.parts.commit(m) })
	case chosen:
		return s.decision.learn(s, m)
	case begin:
		return s.parts.begin(ctx, m)
	case over, abandon:
		s.parts.finish(m)
	case retain:
		s.life.Go(func(context.Context) { s.inventory.retain(m.Keep, s.parts.busy()) })
	case bye:
		return errEnough
	default:
		return fmt.Errorf("unexpected %q message", m.Kind)
	}
	return nil
}

// reply answers a question once find has found the answer.
func (s *Store) reply(question message, find func() (message, error)) {
	s.life.Go(func(context.Context) {
		m, err := find()
		m.Kind, m.Number, m.Err = answer, question.Number, failure(err)
		s.up.post(m)
	})
}
