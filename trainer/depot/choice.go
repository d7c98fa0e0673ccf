package depot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/cluster"
)

// choice is what to go on from.
type choice struct {
	manifest *checkpoint.Manifest      // nil: nothing
	holders  map[string][]cluster.Task // by file: in whose folders it is, with the right sum
}

// Chosen waits until the chief has chosen and returns what to go on from, nil
// for nothing. The manifest is not to be changed.
func (d *Depot) Chosen(ctx context.Context) (*checkpoint.Manifest, error) {
	c, err := d.awaitChoice(ctx)
	return c.manifest, err
}

func (d *Depot) awaitChoice(ctx context.Context) (choice, error) {
	select {
	case <-d.chosen.done:
	case <-ctx.Done():
		return choice{}, fmt.Errorf("checkpoints: the chief has not chosen one: %w", context.Cause(ctx))
	}
	if d.chosen.err != nil {
		return choice{}, d.chosen.err
	}
	return d.choice, nil
}

// Restored says that this task will read no more of the chosen checkpoint.
// Tasks that hold files of it and have nothing else to do may not end before
// all workers have said so.
func (d *Depot) Restored() { d.up.post(message{Kind: restored}) }

// learn takes the chief's choice.
func (d *Depot) learn(m message) error {
	if err := m.reason(); err != nil {
		d.chosen.take(d.config.blame(cluster.Chief, err))
		return nil
	}
	var c choice
	if len(m.Body) > 0 {
		manifest, err := checkpoint.DecodeManifest(m.Body)
		if err != nil {
			return fmt.Errorf("the chosen checkpoint: %w", err)
		}
		c = choice{manifest, m.Holders}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.chosen.done:
		return errors.New("a second choice")
	default:
	}
	d.choice = c
	d.chosen.take(nil)
	return nil
}

// announce says what the folder holds.
func (d *Depot) announce() ([]announced, error) {
	holding, err := d.folder.List()
	if err != nil {
		return nil, err
	}
	var all []announced
	for _, h := range holding {
		a := announced{ID: h.ID, Damage: h.Damage, Files: h.Files}
		if h.Manifest != nil {
			b, err := h.Manifest.Encode()
			if err != nil {
				a.Damage = err.Error() // of a manifest that was read a moment ago
			} else {
				a.Manifest = sumOf(b)
			}
		}
		all = append(all, a)
	}
	return all, nil
}

func sumOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// manifest returns the manifest of a checkpoint in the folder.
func (d *Depot) manifest(id string) (message, error) {
	holding, err := d.folder.List()
	if err != nil {
		return message{}, err
	}
	for _, h := range holding {
		if h.ID == id && h.Manifest != nil {
			b, err := h.Manifest.Encode()
			return message{Body: b}, err
		}
	}
	return message{}, fmt.Errorf("checkpoint %s: its manifest is there no more", id)
}

// verify looks whether a file is what the manifest says.
func (d *Depot) verify(m message) error {
	if m.File == nil {
		return errors.New("no file is named")
	}
	return d.folder.Verify(m.ID, *m.File)
}
