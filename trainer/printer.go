package trainer

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
)

// printer writes the trainer's lines to a task's log.
type printer struct {
	level   slog.Level    // the printer leaves out lines below this level
	quietly time.Duration // how long a wait lasts before the first line about it; 0 means waitQuietly

	mu  sync.Mutex
	out io.Writer
}

// Logf writes a line unless level is below the printer's. Any goroutine may call
// it.
func (p *printer) Logf(level slog.Level, format string, args ...any) {
	if level < p.level {
		return
	}
	text := fmt.Sprintf(format, args...)
	mark := "plx: " + strings.ToLower(level.String()) + ": "
	switch level {
	case slog.LevelInfo:
		mark = "plx: "
	case cluster.VerboseLevel:
		mark = cluster.VerboseMark
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, "%s%s\n", mark, text) // nobody is left to be told of a broken stderr
}

// A worker waits for others for waitQuietly without a line, and then for
// waitAgain between two. Only the user can tell tasks that live but do not come,
// because their programs call something else, from lost ones.
const (
	waitQuietly = 10 * time.Second
	waitAgain   = time.Minute
)

// waiting reports, from time to time until stop is called, what this worker waits
// for.
func (p *printer) waiting(what func() string) (stop func()) {
	begin, done := time.Now(), make(chan struct{})
	var telling sync.WaitGroup
	telling.Go(func() {
		timer := time.NewTimer(cmp.Or(p.quietly, waitQuietly))
		defer timer.Stop()
		for {
			select {
			case <-done:
				return
			case <-timer.C:
				p.Logf(slog.LevelWarn, "waiting for the other tasks for %v: %s", time.Since(begin).Round(time.Second), what())
				timer.Reset(waitAgain)
			}
		}
	})
	return func() { close(done); telling.Wait() }
}

var levels = map[string]slog.Level{
	"debug": slog.LevelDebug, "": slog.LevelInfo, "info": slog.LevelInfo, "verbose": cluster.VerboseLevel, "warn": slog.LevelWarn, "warning": slog.LevelWarn,
	"error": slog.LevelError, "critical": slog.LevelError,
}

// parseLevel reads PLX_LOG_LEVEL: a name, or a number as Python's logging has
// them (10 debug, 20 info, 30 warning, 40 error).
func parseLevel(s string) (slog.Level, error) {
	if level, named := levels[strings.ToLower(s)]; named {
		return level, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("PLX_LOG_LEVEL=%q: want debug, verbose, info, warn, error, or a number such as 20", s)
	}
	return slog.Level((n - 20) * 2 / 5), nil // 10 apart there, 4 apart here
}

func size(bytes int) string {
	switch {
	case bytes < 10<<10:
		return fmt.Sprintf("%d B", bytes)
	case bytes < 10<<20:
		return fmt.Sprintf("%d KiB", bytes>>10)
	}
	return fmt.Sprintf("%d MiB", bytes>>20)
}
