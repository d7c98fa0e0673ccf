package launcher

import (
	"fmt"
	"time"

	"github.com/schollz/progressbar/v3"
)

// meter shows how much was sent, or fetched, on a terminal. Its methods are
// called by one goroutine at a time.
type meter struct {
	t     Terminal
	voice *voice
	doing string
	bar   *progressbar.ProgressBar
	begun time.Time
	sent  map[string]int64 // by host and blob
	total map[string]int64
	hosts map[string]bool
}

func newMeter(t Terminal, v *voice, doing string) *meter {
	return &meter{t: t, voice: v, doing: doing, begun: time.Now(), sent: map[string]int64{}, total: map[string]int64{}, hosts: map[string]bool{}}
}

// moved is an envsync.Progress.
func (m *meter) moved(host, blob string, sent, total int64) {
	key := host + "\x00" + blob
	m.sent[key], m.total[key] = sent, total
	if sent > 0 {
		m.hosts[host] = true
	}
	if !m.t.StderrTTY {
		return
	}
	if m.bar == nil {
		m.bar = progressbar.NewOptions64(1, progressbar.OptionSetWriter(m.t.Stderr), progressbar.OptionShowBytes(true),
			progressbar.OptionSetWidth(30), progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionClearOnFinish(), progressbar.OptionSetDescription(prefix+m.doing))
	}
	m.bar.ChangeMax64(sum(m.total))
	m.bar.Set64(sum(m.sent)) // its error is that of a terminal that is gone
}

// clear takes the bar away.
func (m *meter) clear() {
	if m.bar != nil {
		m.bar.Finish() // as above
	}
}

// close takes the bar of a sync away and leaves one line that stays.
func (m *meter) close(err error) {
	m.clear()
	if err == nil && len(m.hosts) > 0 {
		m.voice.say("sent %s to %s in %.1fs", size(sum(m.sent)), count(len(m.hosts), "host"), time.Since(m.begun).Seconds())
	}
}

func sum(m map[string]int64) int64 {
	var n int64
	for _, v := range m {
		n += v
	}
	return n
}

// size writes a number of bytes for people.
func size(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	value, exp := float64(n)/unit, 0
	for ; value >= unit && exp < 4; exp++ {
		value /= unit
	}
	return fmt.Sprintf("%.1f %ciB", value, "KMGTP"[exp])
}

// count writes "1 host" or "3 hosts".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
