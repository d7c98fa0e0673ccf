package depot

import (
	"context"
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/checkpoint"
)

// Carried returns what workers carried under a name when the chosen checkpoint
// was made, for the rows [lo, hi) of the global batch, whoever had them. It
// waits for the choice; false means that there is no such state, or no
// checkpoint.
func (d *Depot) Carried(ctx context.Context, name string, lo, hi int) (Carried, bool, error) {
	c, err := d.awaitChoice(ctx)
	if err != nil || c.manifest == nil {
		return Carried{}, false, err
	}
	i := slices.IndexFunc(c.manifest.Carried, func(s checkpoint.Carried) bool { return s.Name == name })
	if i < 0 {
		return Carried{}, false, nil
	}
	if lo < 0 || lo > hi || hi > c.manifest.Batch {
		return Carried{}, false, fmt.Errorf("checkpoint %s: rows [%d, %d) of %q: it has %d", c.manifest.ID, lo, hi, name, c.manifest.Batch)
	}
	first := c.manifest.Carried[i]
	all := Carried{Dtype: first.Dtype, Shape: slices.Clone(first.Shape)}
	all.Shape[0] = hi - lo
	err = d.library.visit(ctx, func() error {
		all.Data, err = d.carried(c, name, lo, hi)
		return err
	})
	if err != nil {
		return Carried{}, false, fmt.Errorf("checkpoint %s: carried %q: %w", c.manifest.ID, name, err)
	}
	return all, true, nil
}

// carried puts the rows together. The manifest's cover the batch, each once.
func (d *Depot) carried(c choice, name string, lo, hi int) (data []byte, err error) {
	states := slices.DeleteFunc(slices.Clone(c.manifest.Carried), func(s checkpoint.Carried) bool { return s.Name != name })
	slices.SortFunc(states, func(a, b checkpoint.Carried) int { return a.Lo - b.Lo })
	for _, s := range states {
		from, to := max(lo, s.Lo), min(hi, s.Hi)
		if from >= to {
			continue
		}
		file, err := d.library.open(c, s.File)
		if err != nil {
			return nil, err
		}
		info, ok := file.Tensor(s.Tensor)
		if !ok || info.Dtype != dtypes[s.Dtype] || !slices.Equal(info.Shape, s.Shape) {
			return nil, fmt.Errorf("tensor %q of %s is not what the manifest says", s.Tensor, s.File)
		}
		row := info.Size / int64(s.Hi-s.Lo)
		b := make([]byte, row*int64(to-from))
		if err := file.ReadAt(s.Tensor, b, row*int64(from-s.Lo)); err != nil {
			return nil, err
		}
		data = append(data, b...)
	}
	return data, nil
}
