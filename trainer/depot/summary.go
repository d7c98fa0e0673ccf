package depot

import (
	"fmt"
	"time"

	"github.com/plx-run/plx/trainer/checkpoint"
)

// Summary is what saves have come to, for the chief to report.
type Summary struct {
	Saved, Failed int
	LastStep      uint64        // of the last one that was saved
	Bytes         int64         // of all files, without second copies
	LongestHeld   time.Duration // that a step stood still for its owners to copy
	Held          time.Duration // by all saves together
	Written       time.Duration // likewise, from the announcement to the last manifest
}

// Summary returns what was saved so far. It is the chief's to ask.
func (d *Depot) Summary() Summary {
	if d.chief == nil {
		return Summary{}
	}
	d.chief.mu.Lock()
	defer d.chief.mu.Unlock()
	return d.chief.summary
}

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

// line says what was saved.
func (c *chief) line(s *save, m *checkpoint.Manifest) string {
	hosts := map[string]bool{}
	for task, buddy := range s.buddies {
		hosts[c.config.host(task)] = true
		if buddy != nil {
			hosts[c.config.host(*buddy)] = true
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
