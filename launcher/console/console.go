// Package console prints what plx itself has to say: notices, progress and
// tables.
//
//	p := console.NewPrinter(console.Terminal{Stdout: os.Stdout, Stderr: os.Stderr})
//	p.Printf("host %s: no SSH server listens here", "gpu03")
//	defer p.Watch(func() string { return "building ./train" })()
//
// Nothing that takes long is silent: Watch (progress.go) shows it. Notices and progress go to stderr behind the prefix "plx: ", results of a
// command to stdout. Package logs prints what tasks write.
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

// Terminal describes plx's two outputs.
type Terminal struct {
	// Stdout carries the tasks' stdout, or the result of a command. Stderr
	// carries the tasks' stderr and plx's notices.
	Stdout, Stderr io.Writer
	// StdoutTTY and StderrTTY tell whether the output is a terminal.
	StdoutTTY, StderrTTY bool
	Dumb                 bool // a terminal cannot move its cursor
	Width                int  // of Stdout, in cells; 0: it is no terminal, and lines may be of any length
	// StdoutColour and StderrColour tell whether to write colours.
	StdoutColour, StderrColour bool
	Sixteen                    bool // a terminal has 16 colours only
	NoStatus                   bool // the user wants no status line
}

// Printer writes plx's notices to stderr, each line behind the prefix. Its
// methods may be called from several goroutines at once.
type Printer struct {
	colour  bool // stderr shows colours
	status  bool // stderr shows a status line
	display *logs.Display

	mu    sync.Mutex
	works map[*work]bool // of Watch, until they are done
	here  int            // how many of Here last
	free  time.Time      // when the last one of Here ended; zero: there was none
}

// NewPrinter returns a Printer for the stderr of t.
func NewPrinter(t Terminal) *Printer {
	return &Printer{colour: t.StderrColour, status: t.StderrTTY && !t.Dumb && !t.NoStatus, works: map[*work]bool{}, display: logs.NewDisplay(
		logs.Screen{Writer: t.Stdout, Terminal: t.StdoutTTY, Dumb: t.Dumb, Colour: t.StdoutColour, Sixteen: t.Sixteen},
		logs.Screen{Writer: t.Stderr, Terminal: t.StderrTTY, Dumb: t.Dumb, Colour: t.StderrColour, Sixteen: t.Sixteen})}
}

// Display returns the display that the Printer writes to. While a Printer is used, the
// outputs of its Terminal are written through the display only.
func (p *Printer) Display() *logs.Display { return p.display }

// Printf prints one line. It ignores errors: there is no other place to report
// that stderr is gone.
func (p *Printer) Printf(format string, args ...any) { p.Report(style.Plain, format, args...) }

// Report prints one line about what is good or bad.
func (p *Printer) Report(level style.Level, format string, args ...any) {
	p.print(p.lines(level, fmt.Sprintf(format, args...)))
}

// print writes lines in one piece.
func (p *Printer) print(lines []string) {
	p.display.Write(logs.Stderr, []byte(strings.Join(lines, "\n")+"\n")) // see Printf
}

// lines returns the lines of a text behind the prefix.
func (p *Printer) lines(level style.Level, text string) []string {
	lines := visible(text)
	for i, line := range lines {
		lines[i] = p.prefix() + level.Paint(line, p.colour)
	}
	return lines
}

// prefix begins every line that plx prints on stderr.
func (p *Printer) prefix() string {
	const name = "plx:"
	if p.colour {
		return style.Name.Render(name) + " "
	}
	return name + " "
}

// Lines prints every line. What it says of several hosts it prints once.
func (p *Printer) Lines(lines []string) {
	for _, line := range FoldHosts(lines) {
		p.Printf("%s", line)
	}
}

// Error prints err, each of several that it joins with the prefix, and then its hint.
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
