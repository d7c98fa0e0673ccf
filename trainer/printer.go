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

// printer writes the trainer's log lines to the task's log, which is stderr
// except in tests.
type printer struct {
	level     slog.Level    // lines below this level are not written
	firstWait time.Duration // time that a worker waits before the first log line about the wait; 0 means firstWaitLog

	mu  sync.Mutex
	out io.Writer
}

// Logf writes a log line if level is at least the printer's level. Any
// goroutine may call it.
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
	fmt.Fprintf(p.out, "%s%s\n", mark, text) // a write error is ignored, because it could not be reported anywhere
}

// If a worker waits for other tasks, it logs a warning after firstWaitLog, and
// then one every waitLogInterval. The warnings are for tasks that run but
// never arrive, for example because their programs call another collective. No
// timeout detects these.
const (
	firstWaitLog    = 10 * time.Second
	waitLogInterval = time.Minute
)

// waiting begins to log at intervals that this worker waits for other tasks.
// what describes the event that the worker waits for. The caller calls stop
// when the wait is over.
func (p *printer) waiting(what func() string) (stop func()) {
	begin, done := time.Now(), make(chan struct{})
	var telling sync.WaitGroup
	telling.Go(func() {
		timer := time.NewTimer(cmp.Or(p.firstWait, firstWaitLog))
		defer timer.Stop()
		for {
			select {
			case <-done:
				return
			case <-timer.C:
				p.Logf(slog.LevelWarn, "waiting for the other tasks for %v: %s", time.Since(begin).Round(time.Second), what())
				timer.Reset(waitLogInterval)
			}
		}
	})
	return func() { close(done); telling.Wait() }
}

var levels = map[string]slog.Level{
	"debug": slog.LevelDebug, "": slog.LevelInfo, "info": slog.LevelInfo, "verbose": cluster.VerboseLevel, "warn": slog.LevelWarn, "warning": slog.LevelWarn,
	"error": slog.LevelError, "critical": slog.LevelError,
}

// parseLevel parses the value of PLX_LOG_LEVEL: the name of a level, or a
// number of Python's logging (10 debug, 20 info, 30 warning, 40 error).
func parseLevel(s string) (slog.Level, error) {
	if level, named := levels[strings.ToLower(s)]; named {
		return level, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("PLX_LOG_LEVEL=%q: want debug, verbose, info, warn, error, or a number such as 20", s)
	}
	return slog.Level((n - 20) * 2 / 5), nil // Python's levels are 10 apart, slog's are 4 apart
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
