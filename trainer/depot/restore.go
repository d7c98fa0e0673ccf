package depot

import (
	"context"
	"fmt"

	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/owner"
)

// Restore puts what the chosen checkpoint has of a piece. It waits for the
// choice. It is the hook of owner.ServerConfig and owner.ClientConfig.
func (d *Depot) Restore(ctx context.Context, decl *owner.Declaration, p owner.Piece, into owner.Restoring) error {
	c, err := d.awaitChoice(ctx)
	if err != nil {
		return err
	}
	if c.manifest == nil || c.manifest.ID != decl.Checkpoint {
		return fmt.Errorf("checkpoints: the training goes on from %q, which is not what the chief has chosen", decl.Checkpoint)
	}
	v := decl.Variables[p.Variable]
	return d.library.visit(ctx, func() error {
		for _, part := range c.manifest.Parts {
			lo, hi := max(part.Offset, p.Offset), min(part.Offset+part.Count, p.Offset+p.Count)
			if part.Variable != v.Name || lo >= hi {
				continue
			}
			if err := d.restorePart(ctx, c, part, v, p.Variable, lo, hi, into); err != nil {
				return fmt.Errorf("tensor %q of %s: %w", part.Tensor, part.File, err)
			}
		}
		return nil
	})
}

// restorePart puts the units [lo, hi) of a part.
func (d *Depot) restorePart(ctx context.Context, c choice, part checkpoint.Part, v owner.Variable, variable, lo, hi int, into owner.Restoring) error {
	file, err := d.library.open(c, part.File)
	if err != nil {
		return err
	}
	e := extract{file: file, part: part, unit: v.Dtype.Size(), portion: portionSize}
	if part.Rows >= 0 {
		e.unit *= width(v)
	}
	if err := e.check(); err != nil {
		return err
	}
	return e.put(ctx, variable, lo, hi, into)
}
