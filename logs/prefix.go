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

// prefix is the text before a printed line: the names of task and host and a
// bar. For stderr the bar is a !, so that stderr is visible without colours.
type prefix struct {
	reset string // control sequence before the prefix that resets colours; empty if no reset is needed
	first []byte // prefix of a line's first piece
	more  []byte // prefix of a piece that continues a long line
}

// columns holds the widths and names that all prefixes share, so that their
// bars are aligned.
type columns struct {
	task, host int               // widths of the task and host columns, in bytes
	short      map[string]string // by host name: the name as printed, which may lack its domain
	hosts      []string          // copy of Options.Hosts
	noTasks    bool              // copy of Options.NoTasks: prefixes have no task names
	noPrefix   bool              // copy of Options.NoPrefix: lines have no prefix
}

// maxPadding is the greatest width that a long name gives its column, in
// bytes.
const maxPadding = 32

// newColumns computes the columns from the names of hosts and tasks in opts.
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

// shorten maps each host name to its first label (gpu01 for
// gpu01.example.com). If two hosts have the same first label, it maps all
// names to themselves.
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

// prefix returns the prefix for lines of origin o on a screen. Each task (or
// host, if tasks are not shown) has a colour. Parameter servers are faint, and
// the bar of stderr is red.
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
		p.reset = ansi.ResetStyle // A terminal needs no reset before the prefix, because appendSafe resets the colours after each line.
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

// style returns the colour of an origin, chosen by the index of its task or
// host. Neighbours have different colours, and a task has the same colour in
// every plx command. A prefix that stands for several tasks has no colour.
func (c columns) style(o origin, screen Screen) lipgloss.Style {
	index := slices.Index(c.hosts, o.host)
	if !c.noTasks {
		_, number, _ := strings.Cut(o.Task, ":")
		n, err := strconv.Atoi(number)
		if index = n; err != nil {
			index = -1
		}
	}
	return style.Task(index, screen.Sixteen).Faint(o.Task == "ps" || strings.HasPrefix(o.Task, "ps:"))
}
