package logs

import (
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"strconv"
	"strings"

	"github.com/charmbracelet/lipgloss"
	"github.com/muesli/termenv"
)

// prefix is what stands before the text of a line: task, host and a bar. For stderr the
// bar is a !, which shows without colour too.
type prefix struct {
	first []byte // before a line
	more  []byte // before a piece that continues a line
}

// columns are the columns of all prefixes.
type columns struct {
	task, host int               // widths in bytes
	short      map[string]string // names of hosts as they are shown
	noTasks    bool              // as in Options
}

// maxPadding bounds how wide one name makes a column, in bytes.
const maxPadding = 32

// newColumns returns the columns for the names that are known beforehand.
func newColumns(opts Options) columns {
	c := columns{short: shorten(opts.Hosts), noTasks: opts.NoTasks}
	for _, name := range opts.Tasks {
		c.task = max(c.task, min(len(name), maxPadding))
	}
	for _, name := range c.short {
		c.host = max(c.host, min(len(name), maxPadding))
	}
	return c
}

// shorten leaves the domains of hosts out, if the first labels tell the hosts apart.
func shorten(hosts []string) map[string]string {
	short, used := map[string]string{}, map[string]string{}
	for _, host := range hosts {
		label, _, _ := strings.Cut(host, ".")
		if net.ParseIP(host) != nil {
			label = host
		}
		if other, taken := used[label]; taken && other != host {
			return whole(hosts)
		}
		short[host], used[label] = label, host
	}
	return short
}

func whole(hosts []string) map[string]string {
	names := map[string]string{}
	for _, host := range hosts {
		names[host] = host
	}
	return names
}

// prefix returns the prefix of an origin on a screen: a colour for each task (or host), faint for
// servers, and a red bar for stderr.
func (c columns) prefix(o origin, screen Screen) prefix {
	name, known := c.short[o.host]
	if !known {
		name = o.host
	}
	host := string(appendSafe(nil, []byte(name), false))
	names, colour := fmt.Sprintf("%-*s ", c.host, host), host
	if !c.noTasks {
		names, colour = fmt.Sprintf("%-*s %s", c.task, o.Task, names), o.Task
	}
	r := lipgloss.NewRenderer(io.Discard)
	r.SetColorProfile(termenv.Ascii)
	reset := ""
	if screen.Colour {
		r.SetColorProfile(termenv.ANSI256)
	}
	if screen.Colour && !screen.Terminal {
		reset = sgrReset // of what the task has left switched on: on a terminal each line ends it
	}
	task := r.NewStyle().Foreground(lipgloss.Color(strconv.Itoa(int(colourOf(colour))))).Faint(o.server())
	red := r.NewStyle().Foreground(lipgloss.Color("1")).Bold(true)
	if o.Stream == Stderr {
		return prefix{[]byte(reset + task.Render(names) + red.Render("!") + " "), []byte(reset + task.Render(names) + red.Render("+") + " ")}
	}
	return prefix{[]byte(reset + task.Render(names+"|") + " "), []byte(reset + task.Render(names+"+") + " ")}
}

// UseColour decides from --color (always, never, auto or empty) and the
// environment whether an output is coloured. A mode given by hand comes before
// NO_COLOR; an unknown mode counts as auto.
func UseColour(mode string, terminal bool, getenv func(string) string) bool {
	switch mode {
	case "always":
		return true
	case "never":
		return false
	}
	return terminal && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
}

// server reports whether the task is a parameter server.
func (s Source) server() bool {
	return s.Task == "ps" || strings.HasPrefix(s.Task, "ps:")
}

// palette holds indexes of the 256-colour cube that stand out, at 3:1 or more,
// on white and on black. No red: that marks stderr.
var palette = [...]uint8{31, 64, 97, 130, 30, 133, 67, 100, 62, 65, 136, 99, 28, 103, 27, 102}

// colourOf returns the colour of a task or host: always the same for one name.
func colourOf(name string) uint8 {
	h := fnv.New32a()
	h.Write([]byte(name)) // a hash never fails
	return palette[h.Sum32()%uint32(len(palette))]
}
