package store

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/plx-run/plx/trainer/checkpoint"
)

// inventory is what this task's folder holds, as the chief asks for it.
type inventory struct {
	config   Config
	folder   *checkpoint.Folder
	removing sync.Mutex // held by retain: two at once would report a removal twice
}

// list says what the folder holds.
func (i *inventory) list() (all []announced, err error) {
	holding, err := i.folder.List()
	if err != nil {
		return nil, err
	}
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

// sees returns those tokens whose probes are in the folder.
func (i *inventory) sees(tokens []string) (seen []string) {
	for _, t := range tokens {
		if i.folder.Sees(t) {
			seen = append(seen, t)
		}
	}
	return seen
}

// manifest returns the manifest of a checkpoint in the folder.
func (i *inventory) manifest(id string) (message, error) {
	holding, err := i.folder.List()
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

// verify returns in what a file is not the one that the manifest lists.
func (i *inventory) verify(m message) error {
	if m.File == nil {
		return errors.New("no file is named")
	}
	return i.folder.Verify(m.ID, *m.File)
}

// retain removes all but the newest checkpoints, and never the one that is
// being written.
func (i *inventory) retain(keep int, busy string) {
	i.removing.Lock()
	defer i.removing.Unlock()
	removed, err := i.folder.Retain(max(1, keep), busy)
	if err != nil {
		i.config.logf(slog.LevelWarn, "checkpoints of %s: %v", i.config.self(), err)
	}
	for _, id := range removed {
		i.config.logf(slog.LevelDebug, "checkpoint %s: removed from %s, newer ones are there", id, i.config.host(i.config.Peers.Self))
	}
}
