package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/checkpoint/choose"
	"github.com/plx-run/plx/trainer/checkpoint/tensors"
	"github.com/plx-run/plx/trainer/checkpoint/transfer"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/peers"
)

// decision tells one task which checkpoint the chief has chosen to resume
// from.
type decision struct {
	event
	choice choose.Choice    // the choice; valid once event is done; without a manifest, training begins from scratch
	reader *transfer.Reader // reads the files of the chosen checkpoint; valid once event is done
}

// await waits until this task has received the chief's choice.
func (d *decision) await(ctx context.Context) (choose.Choice, error) {
	select {
	case <-d.done:
	case <-ctx.Done():
		return choose.Choice{}, fmt.Errorf("checkpoints: the chief has not chosen one: %w", context.Cause(ctx))
	}
	return d.choice, d.err
}

// learn stores the choice in message m from the chief. The goroutine that
// reads the chief's messages calls it.
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

// choose selects the checkpoint to resume from, and sends the choice to all
// tasks.
func (c *chief) choose(ctx context.Context, fits func(*checkpoint.Manifest) error) error {
	found, err := choose.Newest(ctx, folders{c.roster}, fits, c.config.logf)
	m := message{Kind: chosen, Holders: found.Holders}
	if err == nil && found.Manifest != nil {
		m.Body, err = found.Manifest.Encode()
	}
	if err != nil {
		m.Err, m.Body = string(peers.EncodeReport(err)), nil
	}
	c.roster.broadcast(m)
	c.roster.decide(len(m.Body) == 0)
	c.release()
	return err
}

// folders implements choose.Folders. It sends messages to the tasks of a
// roster (the chief's list of tasks) and asks what their checkpoint folders
// contain.
type folders struct{ roster *roster }

// Places implements choose.Folders. Tasks that share a checkpoint folder form
// a group; Places asks one task of each group.
func (f folders) Places(ctx context.Context) (places []checkpoint.Place, err error) {
	for _, group := range f.roster.here() {
		place := checkpoint.Place{Host: f.roster.config.host(group[0].task)}
		for _, m := range group {
			place.Tasks = append(place.Tasks, m.task)
		}
		answer, err := f.roster.ask(ctx, group[0], message{Kind: list}, f.roster.config.timeout(maxManifest))
		if err != nil {
			return nil, err
		}
		for _, a := range answer.Holding {
			place.Holding = append(place.Holding, a.held())
		}
		places = append(places, place)
	}
	return places, nil
}

// Verify implements choose.Folders. It asks the task given by the parameter
// `by` to read the file.
func (f folders) Verify(ctx context.Context, by cluster.Task, id string, file checkpoint.File) error {
	q := message{Kind: verify, ID: id, File: &file}
	_, err := f.roster.ask(ctx, f.roster.member(by), q, f.roster.config.timeout(file.Size))
	return err
}

// Restore reads the elements or rows of piece p from the chosen checkpoint
// into a shard, after the chief has chosen. It implements
// transition.Checkpoints.
func (s *Store) Restore(ctx context.Context, d *layout.Declaration, p layout.Piece, into transition.Restoring) error {
	c, err := s.decision.await(ctx)
	if err != nil {
		return err
	}
	if c.Manifest == nil || c.Manifest.ID != d.Checkpoint {
		return fmt.Errorf("checkpoints: the training resumes from %q, which is not what the chief has chosen", d.Checkpoint)
	}
	v, reader := d.Variables[p.Variable], s.decision.reader
	return reader.Use(ctx, func() error {
		for _, part := range c.Manifest.Parts {
			lo, hi := max(part.Offset, p.Offset), min(part.Offset+part.Count, p.Offset+p.Count)
			if part.Variable != v.Name || lo >= hi {
				continue
			}
			file, err := reader.Open(part.File)
			if err == nil {
				err = tensors.ReadPart(ctx, file, part, v, p.Variable, lo, hi, into)
			}
			if err != nil {
				return fmt.Errorf("tensor %q of %s: %w", part.Tensor, part.File, err)
			}
		}
		return nil
	})
}

// Carried returns the recurrent state with the given name from the chosen
// checkpoint, for the rows [lo, hi) of the global batch. It waits until the
// chief has chosen. This worker need not be the one that saved those rows. The
// bool is false if the checkpoint has no state of that name, or if there is no
// checkpoint.
func (s *Store) Carried(ctx context.Context, name string, lo, hi int) (tensors.Carried, bool, error) {
	c, err := s.decision.await(ctx)
	if err != nil || c.Manifest == nil {
		return tensors.Carried{}, false, err
	}
	states := slices.DeleteFunc(slices.Clone(c.Manifest.Carried), func(s checkpoint.Carried) bool { return s.Name != name })
	if len(states) == 0 {
		return tensors.Carried{}, false, nil
	}
	if lo < 0 || lo > hi || hi > c.Manifest.Batch {
		return tensors.Carried{}, false, fmt.Errorf("checkpoint %s: rows [%d, %d) of %q: it has %d", c.Manifest.ID, lo, hi, name, c.Manifest.Batch)
	}
	all := tensors.Carried{Dtype: states[0].Dtype, Shape: slices.Clone(states[0].Shape)}
	all.Shape[0] = hi - lo
	err = s.decision.reader.Use(ctx, func() error {
		all.Data, err = readCarried(s.decision.reader, states, lo, hi)
		return err
	})
	if err != nil {
		return tensors.Carried{}, false, fmt.Errorf("checkpoint %s: carried %q: %w", c.Manifest.ID, name, err)
	}
	return all, true, nil
}

// readCarried reads the rows [lo, hi) of a recurrent state from the files of
// the workers that saved them. The manifest guarantees that states of one name
// cover the batch exactly once.
func readCarried(reader *transfer.Reader, states []checkpoint.Carried, lo, hi int) (data []byte, err error) {
	slices.SortFunc(states, func(a, b checkpoint.Carried) int { return a.Lo - b.Lo })
	for _, s := range states {
		from, to := max(lo, s.Lo), min(hi, s.Hi)
		if from >= to {
			continue
		}
		file, err := reader.Open(s.File)
		if err != nil {
			return nil, err
		}
		b, err := tensors.ReadCarried(file, s, from, to)
		if err != nil {
			return nil, err
		}
		data = append(data, b...)
	}
	return data, nil
}
