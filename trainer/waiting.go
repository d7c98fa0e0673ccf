package trainer

import (
	"cmp"
	"log/slog"
	"sync"
	"time"
)

// How long a worker waits for others without a word, and between two words.
// Tasks that live but do not come, because their programs call something else,
// are told apart from lost ones by nobody but the user.
const (
	waitQuietly = 10 * time.Second
	waitAgain   = time.Minute
)

// waiting tells, from time to time until stop is called, what this worker
// waits for.
func (j *Job) waiting(what func() string) (stop func()) {
	begin, done := time.Now(), make(chan struct{})
	var telling sync.WaitGroup
	telling.Go(func() {
		timer := time.NewTimer(cmp.Or(j.quietly, waitQuietly))
		defer timer.Stop()
		for {
			select {
			case <-done:
				return
			case <-timer.C:
				j.Logf(slog.LevelWarn, "waiting for the other tasks for %v: %s", time.Since(begin).Round(time.Second), what())
				timer.Reset(waitAgain)
			}
		}
	})
	return func() { close(done); telling.Wait() }
}
