// Package corrupt is what examples do with the flag --skip-corrupt.
package corrupt

import (
	"log/slog"

	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/data"
)

// Skipped counts corrupt samples if they are to be skipped, and logs each.
// Otherwise it is nil: they are errors.
func Skipped(job *trainer.Job, skip bool) *data.Skipped {
	if !skip {
		return nil
	}
	return data.NewSkipped(func(err error) { job.Logf(slog.LevelWarn, "skipped: %v", err) })
}

// Log logs how many corrupt samples this worker met, if there were any.
func Log(job *trainer.Job, s *data.Skipped) {
	if n := s.Count(); n > 0 {
		job.Logf(slog.LevelWarn, "corrupt samples that were skipped here: %d", n)
	}
}
