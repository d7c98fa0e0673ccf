//go:build linux

package jobfolder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/plx-run/plx/internal/bounded"
	"github.com/plx-run/plx/launcher/metrics"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// metricsOf is the name of the file with what a task has reported of its training.
func metricsOf(t cluster.Task) string { return fmt.Sprintf("%s-%d", t.Role, t.Index) }

// metrics is the folder of these files, and of that of the host.
func (f Folder) metrics() string { return filepath.Join(string(f), "metrics") }

// ReadMetrics returns what WriteMetrics wrote last for a task; an empty history: nothing.
func (f Folder) ReadMetrics(t cluster.Task) (metrics.History, error) {
	return f.readHistory(metricsOf(t), t.String())
}

// WriteMetrics replaces what a task has reported, as the encoding of a History.
func (f Folder) WriteMetrics(t cluster.Task, encoded []byte) error {
	return f.writeHistory(metricsOf(t), encoded)
}

// ReadHostUse returns what WriteHostUse wrote last; an empty history: nothing.
func (f Folder) ReadHostUse() (metrics.History, error) {
	return f.readHistory(protocol.OfHost, protocol.OfHost)
}

// WriteHostUse replaces how much of the host was used, as the encoding of a History.
func (f Folder) WriteHostUse(encoded []byte) error { return f.writeHistory(protocol.OfHost, encoded) }

// Histories calls visit with each history that is kept, of the task with the name or of
// protocol.OfHost. One that cannot be read has an error.
func (f Folder) Histories(visit func(name string, h metrics.History, err error)) error {
	entries, err := os.ReadDir(f.metrics())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list the metrics: %w", err)
	}
	for _, e := range entries {
		name := e.Name()
		if name != protocol.OfHost {
			i := strings.LastIndexByte(name, '-')
			task, err := cluster.ParseTask(name[:max(0, i)] + ":" + name[i+1:])
			if err != nil {
				continue // a file that is just being written
			}
			name = task.String()
		}
		h, err := f.readHistory(e.Name(), name)
		visit(name, h, err)
	}
	return nil
}

func (f Folder) readHistory(file, whose string) (h metrics.History, err error) {
	b, err := bounded.ReadFile(filepath.Join(f.metrics(), file), metrics.MaxEncoded)
	if errors.Is(err, fs.ErrNotExist) {
		return h, nil
	}
	if err == nil {
		err = h.UnmarshalBinary(b)
	}
	if err != nil {
		return h, fmt.Errorf("read the metrics of %s: %w", whose, err)
	}
	return h, nil
}

func (f Folder) writeHistory(name string, encoded []byte) error {
	err := os.MkdirAll(f.metrics(), 0o700)
	if err == nil {
		err = replace(filepath.Join(f.metrics(), name), encoded)
	}
	if err != nil {
		return fmt.Errorf("write the metrics of %s: %w", name, err)
	}
	return nil
}

// Events is the file with what has happened to a detached job, on the host whose agent drives it.
func (f Folder) Events() string { return filepath.Join(string(f), "events.jsonl") }
