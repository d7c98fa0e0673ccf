package logs

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/charmbracelet/lipgloss"
	"github.com/charmbracelet/x/ansi"

	"github.com/plx-run/plx/logs/style"
)

// prefix is what stands before the text of a line: task, host and a bar. For stderr the
// bar is a !, which shows without colour too.
type prefix struct {
	reset string // before everything: ends the colours that a task has left switched on
	first []byte // before a line
	more  []byte // before a piece that continues a line
}

// columns are the columns of all prefixes.
type columns struct {
	task, host int               // widths in bytes
	short      map[string]string // names of hosts as they are shown
	hosts      []string          // as in Options
	noTasks    bool              // as in Options
	noPrefix   bool              // as in Options
}

// maxPadding bounds how wide one name makes a column, in bytes.
const maxPadding = 32

// newColumns returns the columns for the names that are known beforehand.
func newColumns(opts Options) columns {
	c := columns{short: shorten(opts.Hosts), hosts: opts.Hosts, noTasks: opts.NoTasks, noPrefix: opts.NoPrefix}
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
func (c columns) prefix(o origin, screen Screen) (p prefix) {
	name, known := c.short[o.host]
	if !known {
		name = o.host
	}
	names := fmt.Sprintf("%-*s ", c.host, Escape(name))
	if !c.noTasks {
		names = fmt.Sprintf("%-*s %s", c.task, Escape(o.Task), names)
	}
	task, problem := style.None, style.None
	if screen.Colour {
		task, problem = c.style(o, screen), style.Problem
	}
	if screen.Colour && !screen.Terminal {
		p.reset = ansi.ResetStyle // on a terminal each line ends it
	}
	if c.noPrefix {
		return p
	}
	if o.Stream == Stderr {
		p.first, p.more = []byte(task.Render(names)+problem.Render("!")+" "), []byte(task.Render(names)+problem.Render("+")+" ")
		return p
	}
	p.first, p.more = []byte(task.Render(names+"|")+" "), []byte(task.Render(names+"+")+" ")
	return p
}

// style returns the colour of an origin: by the index of its task, or of its host, so that
// neighbours differ, and one task is the same in every command. What stands for several
// tasks has none.
func (c columns) style(o origin, screen Screen) lipgloss.Style {
	index := slices.Index(c.hosts, o.host)
	if !c.noTasks {
		_, number, _ := strings.Cut(o.Task, ":")
		n, err := strconv.Atoi(number)
		if index = n; err != nil {
			index = -1
		}
	}
	return style.Task(index, screen.Sixteen).Faint(o.Task == "ps" || strings.HasPrefix(o.Task, "ps:")) // parameter servers are faint
}
