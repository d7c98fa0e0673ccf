// Package console prints what plx itself has to say: notices, progress and
// tables.
//
//	p := console.NewPrinter(console.Terminal{Stdout: os.Stdout, Stderr: os.Stderr})
//	p.Printf("host %s: no SSH server listens here", "gpu03")
//
// Notices and progress go to stderr behind the prefix "plx: ", results of a
// command to stdout. Package logs prints what tasks write.
package console

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/charmbracelet/lipgloss"
	"github.com/charmbracelet/lipgloss/table"
	"github.com/muesli/termenv"
	"github.com/schollz/progressbar/v3"

	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/logs"
)

// Terminal describes plx's two outputs.
type Terminal struct {
	// Stdout carries the tasks' stdout, or the result of a command. Stderr
	// carries the tasks' stderr and plx's notices.
	Stdout, Stderr io.Writer
	// StdoutTTY and StderrTTY tell whether the output is a terminal.
	StdoutTTY, StderrTTY bool
	// StdoutColour and StderrColour tell whether to write colours.
	StdoutColour, StderrColour bool
}

// prefix begins every line that plx prints on stderr.
const prefix = "plx:"

// Printer writes plx's notices to stderr, each line behind the prefix. Its
// methods may be called from several goroutines at once.
type Printer struct {
	style lipgloss.Style // of the prefix

	mu   sync.Mutex
	w    io.Writer     // stderr
	logs *logs.Printer // writes the lines between those of the tasks; nil: w takes them
}

// NewPrinter returns a Printer for the stderr of t.
func NewPrinter(t Terminal) *Printer {
	r := lipgloss.NewRenderer(t.Stderr)
	r.SetColorProfile(termenv.Ascii)
	if t.StderrColour {
		r.SetColorProfile(termenv.ANSI)
	}
	return &Printer{w: t.Stderr, style: r.NewStyle().Bold(true)}
}

// Printf prints one line. It ignores errors: there is no other place to report
// that stderr is gone.
func (p *Printer) Printf(format string, args ...any) {
	text := p.style.Render(prefix) + " " + fmt.Sprintf(format, args...)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.logs != nil {
		p.logs.Notice(text) // see above
		return
	}
	fmt.Fprintln(p.w, text)
}

// Lines prints every line.
func (p *Printer) Lines(lines []string) {
	for _, line := range lines {
		p.Printf("%s", line)
	}
}

// Error prints err, each line of it with the prefix, and then its hint.
func (p *Printer) Error(err error) {
	text := err.Error()
	if hint := exit.Hint(err); hint != "" {
		text += "\nhint: " + hint
	}
	p.Printf("%s", strings.ReplaceAll(text, "\n", "\n"+prefix+" "))
}

// Through makes the Printer write through the printer of the tasks' logs, so
// that no notice falls into the middle of a task's line. After nil it writes to
// stderr itself.
func (p *Printer) Through(l *logs.Printer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.logs = l
}

// Printable removes the characters with which text from a host could control a
// terminal. It keeps tabs.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' || r >= 0x7f && r < 0xa0 {
			return -1
		}
		return r
	}, text)
}

// Size formats a number of bytes, such as "3.5 MiB".
func Size(n int64) string {
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

// Count formats a number of things, such as "1 host" or "3 hosts".
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// NewTable returns a table without lines, as ps(1) writes one.
func NewTable(headers ...string) *table.Table {
	return table.New().Headers(headers...).Border(lipgloss.HiddenBorder()).
		BorderTop(false).BorderBottom(false).BorderLeft(false).BorderHeader(false)
}

// WriteTable writes t without blanks at the ends of lines.
func WriteTable(w io.Writer, t *table.Table) error {
	for line := range strings.Lines(t.Render()) {
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

// ProgressBar shows how many bytes were moved. Without a terminal it shows
// nothing. One goroutine at a time may use it.
type ProgressBar struct {
	terminal Terminal
	printer  *Printer
	doing    string                   // what plx does, such as "sending"
	bar      *progressbar.ProgressBar // nil before the first call of Moved, and without a terminal
	begun    time.Time                // when the ProgressBar was made
	moved    map[[2]string]int64      // bytes moved so far, by host and file name
	total    map[[2]string]int64      // size in bytes, by host and file name
	hosts    map[string]bool          // hosts that bytes went to
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
