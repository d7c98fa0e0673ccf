//go:build linux

package jobfolder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/plx-run/plx/internal/bounded"
	"github.com/plx-run/plx/launcher/metrics"
	"github.com/plx-run/plx/trainer/cluster"
)

// metrics is the file with what a task has reported of its training.
func (f Folder) metrics(t cluster.Task) string {
	return filepath.Join(string(f), "metrics", fmt.Sprintf("%s-%d", t.Role, t.Index))
}

// ReadMetrics returns what WriteMetrics wrote last for a task; an empty history: nothing.
func (f Folder) ReadMetrics(t cluster.Task) (h metrics.History, err error) {
	b, err := bounded.ReadFile(f.metrics(t), metrics.MaxEncoded)
	if errors.Is(err, fs.ErrNotExist) {
		return h, nil
	}
	if err == nil {
		err = h.UnmarshalBinary(b)
	}
	if err != nil {
		return h, fmt.Errorf("read the metrics of %s: %w", t, err)
	}
	return h, nil
}

// WriteMetrics replaces what a task has reported, as the encoding of a History.
func (f Folder) WriteMetrics(t cluster.Task, encoded []byte) error {
	path := f.metrics(t)
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = replace(path, encoded)
	}
	if err != nil {
		return fmt.Errorf("write the metrics of %s: %w", t, err)
	}
	return nil
}
