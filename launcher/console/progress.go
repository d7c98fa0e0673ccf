package console

import (
	"time"

	"github.com/schollz/progressbar/v3"
)

// ProgressBar shows how many bytes were moved. Without a terminal it shows
// nothing. One goroutine at a time may use it.
type ProgressBar struct {
	terminal Terminal
	printer  *Printer
	doing    string                   // such as "sending"
	bar      *progressbar.ProgressBar // nil until the first byte
	begun    time.Time
	moved    map[[2]string]int64 // bytes, by host and name
	total    map[[2]string]int64 // bytes, by host and name
	hosts    map[string]bool     // hosts that bytes went to
}

// NewProgressBar returns a bar that says what plx is doing, such as "sending".
func NewProgressBar(t Terminal, p *Printer, doing string) *ProgressBar {
	return &ProgressBar{terminal: t, printer: p, doing: doing, begun: time.Now(),
		moved: map[[2]string]int64{}, total: map[[2]string]int64{}, hosts: map[string]bool{}}
}

// Moved records how many of the total bytes of a file were moved so far. It is an
// envsync.Progress.
func (b *ProgressBar) Moved(host, name string, moved, total int64) {
	key := [2]string{host, name}
	b.moved[key], b.total[key] = moved, total
	if moved > 0 {
		b.hosts[host] = true
	}
	if !b.terminal.StderrTTY {
		return
	}
	if b.bar == nil {
		b.bar = progressbar.NewOptions64(1, progressbar.OptionSetWriter(b.terminal.Stderr), progressbar.OptionShowBytes(true),
			progressbar.OptionSetWidth(30), progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionClearOnFinish(), progressbar.OptionSetDescription(prefix+" "+b.doing))
	}
	b.bar.ChangeMax64(sum(b.total))
	b.bar.Set64(sum(b.moved)) // fails only if the terminal is gone
}

// Clear removes the bar from the terminal.
func (b *ProgressBar) Clear() {
	if b.bar != nil {
		b.bar.Finish() // fails only if the terminal is gone
	}
}

// Sent removes the bar. If err is nil and bytes were sent, it prints how many.
func (b *ProgressBar) Sent(err error) {
	b.Clear()
	if err == nil && len(b.hosts) > 0 {
		b.printer.Printf("sent %s to %s in %.1fs", Size(sum(b.moved)), Count(len(b.hosts), "host"), time.Since(b.begun).Seconds())
	}
}

func sum(bytes map[[2]string]int64) (n int64) {
	for _, v := range bytes {
		n += v
	}
	return n
}
