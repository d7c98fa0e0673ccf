package store

import (
	"fmt"
	"time"

	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/cluster"
)

// Summary is the outcome of all saves, for the chief to report.
type Summary struct {
	Saved       int           // saves that succeeded
	Failed      int           // saves that failed
	LastStep    uint64        // step of the last save that succeeded
	Bytes       int64         // of all files, without second copies
	LongestHeld time.Duration // longest time that a step stood still while shard holders copied
	Held        time.Duration // the same time, added over all saves
	Written     time.Duration // from the announcement to the last manifest, added over all saves
}

func (s *Summary) failed() { s.Failed++ }

func (s *Summary) add(of *save, m *checkpoint.Manifest) {
	s.Saved++
	s.LastStep = m.Step
	s.Bytes += bytesIn(m)
	s.Held += of.held
	s.LongestHeld = max(s.LongestHeld, of.held)
	s.Written += time.Since(of.began)
}

func bytesIn(m *checkpoint.Manifest) (n int64) {
	for _, f := range m.Files {
		n += f.Size
	}
	return n
}

// line says what was saved; host names the host of a task.
func (s *save) line(m *checkpoint.Manifest, host func(cluster.Task) string) string {
	hosts := map[string]bool{}
	for task, buddy := range s.buddies {
		hosts[host(task)] = true
		if buddy != nil {
			hosts[host(*buddy)] = true
		}
	}
	return fmt.Sprintf("checkpoint of step %d: %s in %s on %s, steps held for %s, written in %s", m.Step, size(bytesIn(m)),
		count(len(m.Files), "file"), count(len(hosts), "host"), short(s.held), short(time.Since(s.began)))
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// size is bytes in words.
func size(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d bytes", n)
	}
	x, unit := float64(n)/(1<<10), 0
	units := []string{"KiB", "MiB", "GiB", "TiB"}
	for ; x >= 999.95 && unit < len(units)-1; unit++ {
		x /= 1 << 10
	}
	return fmt.Sprintf("%.1f %s", x, units[unit])
}

// short is a time in words.
func short(t time.Duration) string {
	ms := t.Seconds() * 1000
	switch {
	case ms < 9.95:
		return fmt.Sprintf("%.1f ms", ms)
	case ms < 999.5:
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.1f s", t.Seconds())
}
