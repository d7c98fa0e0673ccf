// Package console prints plx's own messages: notices, progress and tables.
//
//	p := console.NewPrinter(console.Terminal{Stdout: os.Stdout, Stderr: os.Stderr})
//	p.Printf("host %s: no SSH server listens here", "gpu03")
//	defer p.Watch(func() string { return "building ./train" })()
//
// Work that takes long shows its progress (see [Printer.Watch]). Notices and
// progress go to stderr with the prefix "plx: ". The results of a command go
// to stdout. Package logs prints the output of tasks.
package console

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/logs"
	"github.com/plx-run/plx/logs/style"
)

// Terminal describes the stdout and stderr of this plx process.
type Terminal struct {
	// Stdout is for the tasks' stdout or the result of a command, Stderr for
	// the tasks' stderr and plx's notices.
	Stdout, Stderr io.Writer
	// StdoutTTY and StderrTTY are true if the output is a terminal.
	StdoutTTY, StderrTTY bool
	Dumb                 bool // true if the terminal cannot move its cursor (TERM=dumb)
	Width                int  // width of Stdout in columns; 0 means no terminal, so lines may have any length
	// StdoutColour and StderrColour are true if the output may have colours.
	StdoutColour, StderrColour bool
	Sixteen                    bool // true if the terminal has only 16 colours
	NoStatus                   bool // true if the user has turned the status line off
}

// Printer writes plx's notices to stderr, each line with the prefix "plx: ".
// Several goroutines may call its methods at once.
type Printer struct {
	colour  bool // true if stderr shows colours
	status  bool // true if stderr shows a status line
	display *logs.Display

	mu         sync.Mutex
	works      map[*work]bool // running work that Watch shows; guarded by mu
	localWorks int            // number of WatchLocal calls (progress displays of work on this machine) whose work still runs
	localEnded time.Time      // when the work of the last WatchLocal call (display of work on this machine) ended; zero before the first one
}

// NewPrinter returns a Printer that writes to the stderr of t.
func NewPrinter(t Terminal) *Printer {
	return &Printer{colour: t.StderrColour, status: t.StderrTTY && !t.Dumb && !t.NoStatus, works: map[*work]bool{}, display: logs.NewDisplay(
		logs.Screen{Writer: t.Stdout, Terminal: t.StdoutTTY, Dumb: t.Dumb, Colour: t.StdoutColour, Sixteen: t.Sixteen},
		logs.Screen{Writer: t.Stderr, Terminal: t.StderrTTY, Dumb: t.Dumb, Colour: t.StderrColour, Sixteen: t.Sixteen})}
}

// Display returns the display that the Printer writes to. While the Printer is
// in use, all output to its Terminal must go through this display.
func (p *Printer) Display() *logs.Display { return p.display }

// Printf prints one line to stderr. It ignores errors, because a failure of
// stderr cannot be reported anywhere else.
func (p *Printer) Printf(format string, args ...any) { p.Report(style.Plain, format, args...) }

// Report prints one line to stderr in the colour of level, such as style.Bad.
func (p *Printer) Report(level style.Level, format string, args ...any) {
	p.print(p.lines(level, fmt.Sprintf(format, args...)))
}

// print writes lines to stderr with a single write.
func (p *Printer) print(lines []string) {
	p.display.Write(logs.Stderr, []byte(strings.Join(lines, "\n")+"\n")) // ignore an error: it cannot be reported anywhere else
}

// lines splits text into lines and puts the "plx: " prefix and the colour of
// level on each.
func (p *Printer) lines(level style.Level, text string) []string {
	lines := visible(text)
	for i, line := range lines {
		lines[i] = p.prefix() + level.Paint(line, p.colour)
	}
	return lines
}

// prefix returns the "plx: " that begins each line of plx on stderr.
func (p *Printer) prefix() string {
	const name = "plx:"
	if p.colour {
		return style.Name.Render(name) + " "
	}
	return name + " "
}

// Lines prints lines. It merges lines that differ only in the name of a host,
// see [FoldHosts].
func (p *Printer) Lines(lines []string) {
	for _, line := range FoldHosts(lines) {
		p.Printf("%s", line)
	}
}

// Error prints err and then its hint. If err joins several errors, each of
// them gets a line with the "plx: " prefix.
func (p *Printer) Error(err error) {
	var lines []string
	for _, text := range FoldHosts(separate(err)) {
		lines = append(lines, p.lines(style.Bad, text)...)
	}
	if hint := exit.Hint(err); hint != "" {
		lines = append(lines, p.lines(style.Plain, "hint: "+hint)...)
	}
	p.print(lines)
}

// Size formats n bytes in binary units, such as "3.5 MiB".
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
