package top

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/plx-run/plx/internal/plural"
	"github.com/plx-run/plx/launcher/live"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/logs"
	"github.com/plx-run/plx/logs/style"
)

// leastWidth and leastHeight are the size of the smallest terminal that can
// show the view, in character cells.
const leastWidth, leastHeight = 40, 10

// View implements tea.Model: it returns the text of the whole screen.
func (m *model) View() string {
	if m.width == 0 {
		return "" // the terminal's size is not known yet
	}
	if m.width < leastWidth || m.height < leastHeight {
		return fmt.Sprintf("%dx%d is too small: %dx%d", m.width, m.height, leastWidth, leastHeight)
	}
	lines := []string{m.head()}
	foot := m.foot()
	room := m.height - len(lines) - 1
	switch m.pane {
	case hostPane:
		lines = append(lines, m.cut(m.hosts(), room)...)
	case taskPane:
		lines = append(lines, m.cut(m.tasks(), room)...)
	case logPane:
		lines = append(lines, m.logs(room)...)
	default:
		lines = append(lines, m.panels(room)...)
	}
	lines = lines[:min(len(lines), m.height-1)]
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	for i, line := range lines {
		lines[i] = ansi.Truncate(line, m.width, "…")
	}
	return strings.Join(append(lines, ansi.Truncate(foot, m.width, "…")), "\n")
}

// panels returns the lines of all panels, one below the other. The hosts and
// the tasks each get about a third of the height if they need it. The loss
// curve gets five lines if there is enough room. The log gets the remaining
// lines, but at least four.
func (m *model) panels(room int) (lines []string) {
	const leastLog = 4
	curve := m.curve(5)
	if room < 26 {
		curve = nil
	}
	third := max(2, (room-leastLog-len(curve))/2)
	hosts, tasks := m.hosts(), m.tasks()
	hosts = short(hosts, max(third, room-leastLog-len(curve)-len(tasks)), "1")
	tasks = short(tasks, max(third, room-leastLog-len(curve)-len(hosts)), "2")
	lines = append(append(append(lines, hosts...), tasks...), curve...)
	return append(lines, m.logs(room-len(lines))...)
}

// short cuts a panel down to room lines. The last line then names the key that
// shows the whole panel.
func short(lines []string, room int, key string) []string {
	if len(lines) <= room {
		return lines
	}
	return append(slices.Clone(lines[:room-1]), fmt.Sprintf("  and %d more: %s", len(lines)-room+1, key))
}

// cut returns the part of an enlarged panel to which the user has scrolled.
// The panel's title line does not scroll.
func (m *model) cut(lines []string, room int) []string {
	if len(lines) == 0 {
		return nil
	}
	from := min(m.scroll, max(0, len(lines)-room))
	m.scroll = from
	return append(lines[:1:1], lines[1+from:min(len(lines), from+room)]...)
}

func (m *model) paint(l style.Level, text string) string { return l.Paint(text, m.now.Colour) }

// title renders the title line of a panel.
func (m *model) title(text string) string {
	if m.now.Colour {
		return style.Head.Render(text)
	}
	return text
}

// head returns the first line of the screen: the job's name and its status.
func (m *model) head() string {
	line := m.title("plx top " + m.now.Title)
	if m.now.over != "" {
		return line + " | " + m.now.over
	}
	if m.now.Line == nil {
		return line
	}
	for _, part := range m.now.Line.Parts(m.now.Colour) {
		if ansi.StringWidth(line)+3+ansi.StringWidth(part) > m.width {
			break
		}
		line += " | " + part
	}
	return line
}

// foot returns the last line of the screen: the available keys, an input field
// or an error.
func (m *model) foot() string {
	switch {
	case m.asking == '/':
		return "search: " + m.input.View()
	case m.asking == 'f':
		return "only lines with: " + m.input.View()
	case m.wrong != "":
		return m.paint(style.Bad, m.wrong)
	}
	keys := "q quit  1 hosts  2 tasks  3 log  / search  n next  f filter  space pause"
	if m.paused != nil {
		keys = "space go on  up down scroll  / search  n next  f filter  q quit"
	}
	return keys
}

// hosts returns the lines of the panel of hosts and GPUs.
func (m *model) hosts() (lines []string) {
	lines = []string{m.title("HOSTS")}
	name := 4
	for _, h := range m.now.hosts {
		name = max(name, min(20, len(h.Name)))
	}
	if len(m.now.hosts) == 0 {
		lines = append(lines, "  no host has replied yet")
	}
	for _, h := range m.now.hosts {
		label := fmt.Sprintf("  %-*s", name, ansi.Truncate(logs.Escape(h.Name), name, "…"))
		switch {
		case h.Use == nil && h.Trouble != "":
			lines = append(lines, label+" "+m.paint(style.Bad, logs.Escape(h.Trouble)))
			continue
		case h.Use == nil:
			lines = append(lines, label+" "+m.paint(style.Doubtful, "not known"))
			continue
		}
		lines = append(lines, label+m.host(*h.Use, m.width-2-name))
		for _, g := range h.Use.GPUs {
			lines = append(lines, m.gpu(g))
		}
		if h.Use.Trouble != "" {
			lines = append(lines, "    "+m.paint(style.Doubtful, logs.Escape(h.Use.Trouble)))
		}
	}
	return lines
}

// host returns the load of a host as text of at most width character cells.
func (m *model) host(u protocol.HostUse, width int) string {
	last := protocol.Sample{GPU: -1}
	if n := len(u.Samples); n > 0 {
		last = u.Samples[n-1]
	}
	cpus := float64(max(1, u.CPUs))
	share := float64(last.CPU) / cpus
	cpu := fmt.Sprintf("  cpu %3.0f%%", 100*share)
	memory := fmt.Sprintf("  mem %3.0f%%", 100*float64(last.Memory)/float64(max(1, u.MemoryTotal)))
	net := fmt.Sprintf("  in %s out %s", rate(last.Received), rate(last.Sent))
	load := fmt.Sprintf("  load %.2f", u.Load)
	if width < len(cpu)+len(memory)+len(net)+len(load)+10 {
		load = ""
	}
	graph := min(60, width-len(cpu)-len(memory)-len(net)-len(load)-1)
	line := m.paint(level(share), cpu)
	if graph >= 5 {
		var values []float64
		for _, s := range u.Samples {
			values = append(values, float64(s.CPU)/cpus)
		}
		line += " " + spark(squeeze(values, graph), graph)
	}
	return line + memory + net + load
}

// level returns the colour for a load from 0 to 1.
func level(share float64) style.Level {
	switch {
	case share >= 0.9:
		return style.Bad
	case share >= 0.6:
		return style.Doubtful
	case share >= 0.05:
		return style.Good
	}
	return style.Plain
}

// gpu returns the line of a GPU.
func (m *model) gpu(g protocol.GPUUse) string {
	parts := []string{fmt.Sprintf("    gpu %d", g.Index)}
	if g.Percent >= 0 {
		parts = append(parts, m.paint(level(float64(g.Percent)/100), fmt.Sprintf("%3d%%", g.Percent)))
	}
	if g.MemoryTotal > 0 {
		parts = append(parts, fmt.Sprintf("%.1f/%.0f GiB", float64(max(0, g.MemoryUsed))/(1<<30), float64(g.MemoryTotal)/(1<<30)))
	}
	if g.Temperature >= 0 {
		parts = append(parts, fmt.Sprintf("%d C", g.Temperature))
	}
	if g.Power >= 0 {
		parts = append(parts, fmt.Sprintf("%.0f W", g.Power))
	}
	if g.Owner != "" {
		parts = append(parts, logs.Escape(g.Owner))
	}
	if g.Name != "" {
		parts = append(parts, logs.Escape(g.Name))
	}
	return strings.Join(parts, "  ")
}

// rate formats bytes per second in four or five characters.
func rate(n int64) string {
	value, unit := float64(n), 0
	for ; value >= 1000 && unit < 4; unit++ {
		value /= 1024
	}
	if unit > 0 && value < 10 {
		return fmt.Sprintf("%3.1f%c", value, " KMGT"[unit])
	}
	return fmt.Sprintf("%3.0f%c", value, "BKMGT"[unit])
}

// sparks are the characters of a sparkline, from low to high.
var sparks = []rune("▁▂▃▄▅▆▇█")

// spark draws values from 0 to 1 as a sparkline of the given width, with the
// newest value at the right end.
func spark(values []float64, width int) string {
	line := strings.Repeat(" ", max(0, width-len(values)))
	for _, v := range values {
		i := int(v * float64(len(sparks)))
		line += string(sparks[min(max(0, i), len(sparks)-1)])
	}
	return line
}

// tasks returns the lines of the panel of tasks. Its title line names the
// slowest task.
func (m *model) tasks() (lines []string) {
	if m.now.Line == nil {
		return nil
	}
	reported := make([]live.Task, len(m.now.tasks))
	for i, t := range m.now.tasks {
		if reported[i] = m.now.Line.Task(t.Name); t.Ended {
			reported[i].Rate = 0
		}
	}
	slow, ratio := straggler(reported)
	head := "TASKS"
	if slow >= 0 {
		t := m.now.tasks[slow]
		head = fmt.Sprintf("TASKS  slowest: %s on %s, %.1f times the median step", t.Name, t.Host, ratio)
		if t.Waits != "" {
			head += "; " + t.Waits
		}
	} else if slow = awaited(m.now.tasks, m.now.busy); slow >= 0 {
		t := m.now.tasks[slow]
		head = fmt.Sprintf("TASKS  awaited: %s on %s computes in %.0f%% of the polls, the others wait", t.Name, t.Host, 100*m.now.busy[t.Name])
	}
	lines = []string{m.title(logs.Escape(head))}
	name, host := 8, 4
	for _, t := range m.now.tasks {
		name, host = max(name, min(12, len(t.Name))), max(host, min(16, len(t.Host)))
	}
	for i, t := range m.now.tasks {
		text := fmt.Sprintf("%-*s %-*s ", name, logs.Escape(t.Name), host, ansi.Truncate(logs.Escape(t.Host), host, "…"))
		mark := "  "
		if i == slow {
			mark = m.paint(style.Doubtful, "* ")
		}
		line := mark + text + m.paint(t.Level, logs.Escape(t.State))
		if t.Age > 0 {
			line += "  " + live.Short(t.Age)
		}
		if r := reported[i]; r.Step > 0 {
			line += fmt.Sprintf("  step %.0f", r.Step)
			if r.Rate > 0 {
				line += fmt.Sprintf(" (%.3g/s)", r.Rate)
			}
		}
		if last := reported[i].Line; last != "" {
			line += "  " + logs.Escape(ansi.Strip(last))
		}
		lines = append(lines, strings.ReplaceAll(line, "\t", " "))
	}
	return lines
}

// straggler returns the index of the task with the longest step, and the ratio
// of its step time to the median. It returns -1 if fewer than two tasks have a
// known rate, or if the ratio is below 1.25.
func straggler(tasks []live.Task) (slowest int, ratio float64) {
	const alike = 1.25 // tolerance: step counts from agents are up to 5 s old
	var took []float64
	slowest = -1
	for i, t := range tasks {
		if t.Rate <= 0 {
			continue
		}
		took = append(took, 1/t.Rate)
		if slowest < 0 || t.Rate < tasks[slowest].Rate {
			slowest = i
		}
	}
	if len(took) < 2 {
		return -1, 0
	}
	slices.Sort(took)
	ratio = took[len(took)-1] / took[(len(took)-1)/2]
	if ratio < alike {
		return -1, 0
	}
	return slowest, ratio
}

// awaited returns the index of the only task that computes while the others
// wait, or -1 if there is no such task. In a job whose tasks make each step
// together, this task delays the others.
func awaited(tasks []Task, busy map[string]float64) (found int) {
	const most, least = 0.7, 0.3 // A task that computes in more than 0.7 of the polls delays tasks that compute in less than 0.3.
	found = -1
	for i, t := range tasks {
		switch share := busy[t.Name]; {
		case share > least && (share < most || found >= 0):
			return -1
		case share >= most:
			found = i
		}
	}
	if len(tasks) < 2 {
		return -1
	}
	return found
}

// curve draws the loss as a curve of the given height, including its title
// line. It returns nil if fewer than two values are known.
func (m *model) curve(height int) (lines []string) {
	if m.now.Line == nil {
		return nil
	}
	var values []float64
	for _, v := range m.now.Line.Losses() {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			values = append(values, v)
		}
	}
	if len(values) < 2 {
		return nil
	}
	const left = 10 // width of the axis labels in character cells
	columns := squeeze(values, max(1, m.width-left-1))
	low, high := slices.Min(columns), slices.Max(columns)
	head := fmt.Sprintf("LOSS  %s, least %s", number(values[len(values)-1]), number(slices.Min(values)))
	lines = []string{m.title(head)}
	span := max(high-low, math.SmallestNonzeroFloat64)
	rows := height - 1
	for row := range rows {
		label := ""
		switch row {
		case 0:
			label = number(high)
		case rows - 1:
			label = number(low)
		}
		line := fmt.Sprintf("%*s ", left, label)
		for _, v := range columns {
			filled := int((v-low)/span*float64(rows*len(sparks)-1)) - (rows-1-row)*len(sparks)
			switch {
			case filled < 0:
				line += " "
			default:
				line += string(sparks[min(filled, len(sparks)-1)])
			}
		}
		lines = append(lines, line)
	}
	return lines
}

func number(v float64) string { return fmt.Sprintf("%.4g", v) }

// squeeze reduces values to at most width numbers. Each number is the mean of
// a range of values.
func squeeze(values []float64, width int) (columns []float64) {
	if len(values) <= width {
		return values
	}
	for i := range width {
		part := values[i*len(values)/width : (i+1)*len(values)/width]
		sum := 0.0
		for _, v := range part {
			sum += v
		}
		columns = append(columns, sum/float64(len(part)))
	}
	return columns
}

// logs returns the lines of the log panel: the newest ones, or those to which
// the user has scrolled.
func (m *model) logs(room int) (lines []string) {
	if m.now.Line == nil {
		return nil
	}
	head := "LOG"
	if m.paused != nil {
		head += fmt.Sprintf("  paused, %s came meanwhile", plural.Count(max(0, len(m.now.lines)-len(m.paused)), "line"))
	}
	if m.filter != nil {
		head += "  only " + logs.Escape(strings.TrimPrefix(m.filter.String(), "(?i)"))
	}
	lines = []string{m.title(head)}
	shown := m.log()
	end := max(0, len(shown)-m.scroll)
	return append(lines, shown[max(0, end-max(0, room-1)):end]...)
}
