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

// metricsOf returns the name of a task's metrics file.
func metricsOf(t cluster.Task) string { return fmt.Sprintf("%s-%d", t.Role, t.Index) }

// metrics returns the folder of the metrics files, one for each task and one
// for the host.
func (f Folder) metrics() string { return filepath.Join(string(f), "metrics") }

// ReadMetrics returns the metrics that WriteMetrics has saved for a task. It
// returns an empty history if none were saved.
func (f Folder) ReadMetrics(t cluster.Task) (metrics.History, error) {
	return f.readHistory(metricsOf(t), t.String())
}

// WriteMetrics saves the metrics of a task, replacing earlier ones. encoded is
// an encoded metrics.History.
func (f Folder) WriteMetrics(t cluster.Task, encoded []byte) error {
	return f.writeHistory(metricsOf(t), encoded)
}

// ReadHostUse returns the history of CPU, memory and GPU use that WriteHostUse
// has saved. It returns an empty history if none was saved.
func (f Folder) ReadHostUse() (metrics.History, error) {
	return f.readHistory(protocol.OfHost, protocol.OfHost)
}

// WriteHostUse saves the history of the host's CPU, memory and GPU use.
// encoded is an encoded metrics.History.
func (f Folder) WriteHostUse(encoded []byte) error { return f.writeHistory(protocol.OfHost, encoded) }

// Histories calls visit for each saved history of metrics. name is a task's
// name, or protocol.OfHost for the host's own history. err is not nil if the
// file cannot be read.
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
				continue // a temporary file of an unfinished write
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

// Events returns the path of a detached job's event log. Only the host whose
// agent drives (controls) the job has that file.
func (f Folder) Events() string { return filepath.Join(string(f), "events.jsonl") }
