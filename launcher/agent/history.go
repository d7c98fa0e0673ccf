//go:build linux

package agent

import (
	"errors"
	"io/fs"
	"slices"

	"github.com/plx-run/plx/internal/bounded"
	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/event"
	"github.com/plx-run/plx/launcher/metrics"
	"github.com/plx-run/plx/launcher/protocol"
)

// storedHistory returns what this host has stored about the progress of a job: its
// event log and the metrics of its tasks, in at most want.Bytes bytes.
func storedHistory(want protocol.WantKept) (k protocol.Kept, err error) {
	f, err := jobfolder.Of(want.Job, want.Folder)
	if err != nil {
		return k, err
	}
	if _, err := readState(f); err != nil && !errors.Is(err, jobfolder.ErrDamaged) {
		return k, err
	}
	if want.Events {
		k.Events, err = bounded.ReadFile(f.Events(), event.MaxFile)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			k.Damaged = append(k.Damaged, "the events: "+err.Error())
		}
	}
	all := map[string]*metrics.History{}
	err = f.Histories(func(name string, h metrics.History, err error) {
		switch {
		case err != nil:
			k.Damaged = append(k.Damaged, err.Error())
		default:
			all[name] = &h
		}
	})
	limit := min(want.Bytes, protocol.MaxKept) / max(1, len(all))
	k.Histories = map[string][]byte{}
	for name, h := range all {
		k.Histories[name] = h.Within(limit)
	}
	slices.Sort(k.Damaged)
	return k, err
}
