package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/checkpoint/tensors"
	"github.com/plx-run/plx/trainer/checkpoint/transfer"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/layout"
)

// Restore puts what the chosen checkpoint has of a piece. It waits for the
// choice. It is the hook of exchange.ServerConfig and exchange.ClientConfig.
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

// Carried returns what workers carried under a name when the chosen checkpoint
// was made, for the rows [lo, hi) of the global batch, whichever workers had
// them. It waits for the choice. false means that there is no such state, or no
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

// readCarried puts the rows together. The manifest's states of one name cover
// the batch, each row once.
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
