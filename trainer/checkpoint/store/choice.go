package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/checkpoint/choose"
	"github.com/plx-run/plx/trainer/checkpoint/transfer"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/peers"
)

// decision is the chief's choice, as every task gets it.
type decision struct {
	turn
	choice choose.Choice    // valid once the turn is over
	reader *transfer.Reader // of choice
}

// await waits until the chief has chosen.
func (d *decision) await(ctx context.Context) (choose.Choice, error) {
	select {
	case <-d.done:
	case <-ctx.Done():
		return choose.Choice{}, fmt.Errorf("checkpoints: the chief has not chosen one: %w", context.Cause(ctx))
	}
	return d.choice, d.err
}

// learn takes the chief's choice. The goroutine that hears the chief calls it.
func (d *decision) learn(s *Store, m message) error {
	if err := m.reason(); err != nil {
		d.take(s.config.blame(cluster.Chief, err))
		return nil
	}
	if d.over() {
		return errors.New("a second choice")
	}
	var c choose.Choice
	if len(m.Body) > 0 {
		manifest, err := checkpoint.DecodeManifest(m.Body)
		if err != nil {
			return fmt.Errorf("the chosen checkpoint: %w", err)
		}
		c = choose.Choice{Manifest: manifest, Holders: m.Holders}
	}
	d.once.Do(func() {
		d.choice, d.reader = c, s.files.Reader(c.Manifest, c.Holders)
		close(d.done)
	})
	return nil
}

// choose decides what all tasks resume from, and tells them.
func (c *chief) choose(ctx context.Context, fits func(*checkpoint.Manifest) error) error {
	found, err := choose.Newest(ctx, folders{c.roster}, fits, c.config.logf)
	m := message{Kind: chosen, Holders: found.Holders}
	if err == nil && found.Manifest != nil {
		m.Body, err = found.Manifest.Encode()
	}
	if err != nil {
		m.Err, m.Body = string(peers.EncodeReport(err)), nil
	}
	c.roster.tell(m)
	c.roster.decide(len(m.Body) == 0)
	c.saves.release()
	return err
}

// folders asks the tasks of a roster what their folders hold.
type folders struct{ roster *roster }

// Places is that of choose.Folders.
func (f folders) Places(ctx context.Context) (places []choose.Place, err error) {
	known := map[[2]string]*checkpoint.Manifest{} // by checkpoint and sum
	for _, group := range f.roster.here() {
		first := group[0]
		place := choose.Place{Host: f.roster.config.host(first.task)}
		for _, m := range group {
			place.Tasks = append(place.Tasks, m.task)
		}
		for _, a := range first.holding {
			h := checkpoint.Held{ID: a.ID, Damage: a.Damage, Files: a.Files}
			if key := [2]string{a.ID, a.Manifest}; a.Manifest != "" {
				var err error
				if known[key] == nil {
					known[key], err = f.fetch(ctx, first, a)
				}
				if err != nil {
					h.Damage = err.Error()
				}
				h.Manifest = known[key]
			}
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			place.Holding = append(place.Holding, h)
		}
		places = append(places, place)
	}
	return places, nil
}

// fetch gets a manifest from a task that has it.
func (f folders) fetch(ctx context.Context, from *member, a announced) (*checkpoint.Manifest, error) {
	m, err := f.roster.ask(ctx, from, message{Kind: fetch, ID: a.ID}, f.roster.config.patience(maxManifest))
	if err != nil {
		return nil, err
	}
	if sumOf(m.Body) != a.Manifest {
		return nil, errors.New("the manifest has changed since it was announced")
	}
	return checkpoint.DecodeManifest(m.Body)
}

// Verify is that of choose.Folders.
func (f folders) Verify(ctx context.Context, by cluster.Task, id string, file checkpoint.File) error {
	q := message{Kind: verify, ID: id, File: &file}
	_, err := f.roster.ask(ctx, f.roster.member(by), q, f.roster.config.patience(file.Size))
	return err
}
