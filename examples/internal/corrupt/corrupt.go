// Package corrupt implements the flag --skip-corrupt of the examples.
package corrupt

import (
	"log/slog"

	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/data"
)

// Skipped returns a counter that logs each corrupt sample if skip is true. If
// skip is false it returns nil, and a corrupt sample is an error.
func Skipped(job *trainer.Job, skip bool) *data.Skipped {
	if !skip {
		return nil
	}
	return data.NewSkipped(func(err error) { job.Logf(slog.LevelWarn, "skipped: %v", err) })
}

// Log logs the number of corrupt samples that this worker has skipped, if
// there were any.
func Log(job *trainer.Job, s *data.Skipped) {
	if n := s.Count(); n > 0 {
		job.Logf(slog.LevelWarn, "corrupt samples that were skipped here: %d", n)
	}
}
