package depot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

const maxMessage = textSize + maxText + maxManifest

// errEnough ends a conversation in good order.
var errEnough = errors.New("all was said")

// converse sends what is posted and hears what comes until the connection or
// ctx ends, or hear returns an error. It returns why.
func converse(ctx context.Context, conn *wire.Conn, out *mailbox, hear func(message) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var sending sync.WaitGroup
	sending.Go(func() {
		cancel(out.run(ctx, func(m message) error { return sendMessage(conn, m) }))
	})
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	err := error(nil)
	for err == nil {
		var m message
		if m, err = receiveMessage(conn, maxMessage); err == nil {
			err = hear(m)
		}
	}
	if ctx.Err() != nil && !errors.Is(err, errEnough) {
		err = context.Cause(ctx) // a connection that was cut says nothing of that
	}
	cancel(err)
	sending.Wait()
	return err
}

// join connects this task to the chief's depot.
func (d *Depot) join(ctx context.Context, first message) error {
	c := d.config
	raw, err := peers.Dial(ctx, c.Peers, cluster.Chief, c.Cluster.Addr(cluster.Chief), purpose)
	if err != nil {
		return c.blame(cluster.Chief, err)
	}
	conn := wire.NewConn(raw, c.Peers.Generation, c.Silence)
	d.up.post(first)
	d.start(func(ctx context.Context) {
		defer conn.Close() // all was said, or it is cut
		err := converse(ctx, conn, d.up, func(m message) error { return d.hear(ctx, m) })
		d.parted(err)
	})
	select {
	case <-d.joined.done:
		return d.joined.err
	case <-ctx.Done():
		return c.blame(cluster.Chief, fmt.Errorf("has not heard from all other tasks: %w", context.Cause(ctx)))
	}
}

// parted is told why the chief is heard no more.
func (d *Depot) parted(err error) {
	if errors.Is(err, errEnough) {
		err = nil
	} else {
		err = d.config.blame(cluster.Chief, err)
	}
	d.gone.take(err)
	if err == nil {
		err = d.config.blame(cluster.Chief, errors.New("it has ended"))
	}
	d.joined.take(err)
	d.chosen.take(err)
	d.cancelPart(err)
}

// hear takes what the chief says. It must not take long.
func (d *Depot) hear(ctx context.Context, m message) error {
	switch m.Kind {
	case look:
		d.reply(ctx, m, func() (message, error) { return message{Tokens: d.sees(m.Tokens)}, nil })
	case joined:
		d.joined.take(m.reason())
	case fetch:
		d.reply(ctx, m, func() (message, error) { return d.manifest(m.ID) })
	case verify:
		d.reply(ctx, m, func() (message, error) { return message{}, d.verify(m) })
	case commit:
		d.reply(ctx, m, func() (message, error) { return message{}, d.commit(m) })
	case chosen:
		return d.learn(m)
	case begin:
		return d.begin(ctx, m)
	case over, abandon:
		d.finish(m)
	case retain:
		d.start(func(context.Context) { d.retain(m) })
	case bye:
		return errEnough
	default:
		return fmt.Errorf("unexpected %q message", m.Kind)
	}
	return nil
}

// reply answers a question once it is found out.
func (d *Depot) reply(ctx context.Context, question message, find func() (message, error)) {
	d.start(func(context.Context) {
		m, err := find()
		m.Kind, m.Number, m.Err = answer, question.Number, failure(err)
		d.up.post(m)
	})
}

// sees returns those tokens whose probes are in the folder.
func (d *Depot) sees(tokens []string) (seen []string) {
	for _, t := range tokens {
		if d.folder.Sees(t) {
			seen = append(seen, t)
		}
	}
	return seen
}

// retain removes old checkpoints.
func (d *Depot) retain(m message) {
	removed, err := d.folder.Retain(max(1, m.Keep), d.busy())
	if err != nil {
		d.config.logf(slog.LevelWarn, "checkpoints of %s: %v", d.self(), err)
	}
	for _, id := range removed {
		d.config.logf(slog.LevelDebug, "checkpoint %s: removed from %s, newer ones are there", id, d.config.host(d.config.Peers.Self))
	}
}
