package report

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/plx-run/plx/internal/plural"
)

// Markdown writes the runs to w as GitHub Flavored Markdown, without charts.
func Markdown(w io.Writer, runs []Run) error {
	var d document
	d.line("# %s", plain(title(runs)))
	if len(runs) > 1 {
		d.differences(differ(runs))
	}
	for i, run := range runs {
		level := "##"
		if len(runs) > 1 {
			d.line("## %s", plain(labels(runs)[i]))
			level = "###"
		}
		d.run(run, level)
	}
	_, err := w.Write(d.Bytes())
	return err
}

// document is a Markdown text under construction. All text from a run must
// pass through plain or fence, which escape it.
type document struct{ bytes.Buffer }

// put writes formatted text. A bytes.Buffer never returns an error.
func (d *document) put(format string, args ...any) { d.WriteString(fmt.Sprintf(format, args...)) }

// line writes a formatted paragraph.
func (d *document) line(format string, args ...any) { d.put(format+"\n\n", args...) }

// table writes a table with a header row.
func (d *document) table(head []string, rows [][]string) {
	cells := func(row []string) {
		for _, cell := range row {
			d.put("| %s ", plain(cell))
		}
		d.WriteString("|\n")
	}
	cells(head)
	d.WriteString(strings.Repeat("|---", len(head)) + "|\n")
	for _, row := range rows {
		cells(row)
	}
	d.WriteByte('\n')
}

// fence writes text as a code block. Its fences are longer than any sequence
// of backquotes in the text.
func (d *document) fence(text string) {
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	d.put("%s\n%s\n%s\n\n", fence, text, fence)
}

// list writes the lines as a bulleted list.
func (d *document) list(lines []string) {
	for _, line := range lines {
		d.put("- %s\n", plain(line))
	}
	if len(lines) > 0 {
		d.WriteByte('\n')
	}
}

func (d *document) differences(all *differences) {
	var rows [][]string
	for _, c := range all.Rows {
		rows = append(rows, append([]string{c.Name}, c.Values...))
	}
	d.table(append([]string{""}, all.Labels...), rows)
	if len(all.Equal) > 0 {
		d.line("Equal in all runs:")
		d.facts(all.Equal)
	}
}

func (d *document) facts(facts []Fact) {
	var rows [][]string
	for _, f := range facts {
		rows = append(rows, []string{f.Name, f.Value})
	}
	d.table([]string{"fact", "value"}, rows)
}

func (d *document) run(run Run, level string) {
	state := "**" + plain(run.State) + "**"
	if run.Verdict != "" {
		state += ": " + plain(run.Verdict)
	}
	d.line("%s", state)
	about := "job " + run.Job
	for _, part := range []struct{ name, value string }{{"created ", moment(run.Created)}, {"ended ", moment(run.Ended)}, {"", run.duration()}} {
		if part.value != "" {
			about += ", " + part.name + part.value
		}
	}
	if run.Ended.IsZero() && !run.AsOf.IsZero() {
		about += ", as of " + moment(run.AsOf)
	}
	if run.Code != nil {
		about += ", exit status " + strconv.Itoa(*run.Code)
	}
	d.line("%s", plain(about))
	d.list(run.Details)
	if len(run.Missing) > 0 {
		d.line("Not in this report:")
		d.list(run.Missing)
	}
	if run.Command != "" {
		d.fence(clean(run.Command))
	}
	d.metrics(run, level)
	if len(run.Facts) > 0 {
		d.line("%s Facts", level)
		d.facts(run.Facts)
	}
	if len(run.Plan) > 0 {
		d.line("%s Plan", level)
		d.fence(block(run.Plan))
	}
	d.events(run.Events, level)
	if len(run.Tails) > 0 {
		d.line("%s Last lines", level)
	}
	for _, t := range run.Tails {
		d.line("%s on %s:", plain(t.Task), plain(t.Host))
		d.fence(block(t.Lines))
	}
}

// metrics writes a table with the last, smallest and greatest value of each
// series.
func (d *document) metrics(run Run, level string) {
	d.line("%s Metrics", level)
	var rows [][]string
	for _, m := range metricsOf([]Run{run}) {
		c := m.chart([]Run{run}, false)
		for _, one := range c.curves {
			values := one.row(c.y)
			rows = append(rows, []string{m.title(), values.Label, values.Last, values.Least, values.Greatest})
		}
	}
	if len(rows) == 0 {
		d.line("No metrics are known. plx reads them from the lines that a training prints; the flag `--metric` of `plx launch` names further ones.")
		return
	}
	d.table([]string{"metric", "of", "last", "least", "greatest"}, rows)
}

// events writes a table of the last events.
func (d *document) events(events []Event, level string) {
	if len(events) == 0 {
		return
	}
	d.line("%s Events", level)
	if left := len(events) - maxOpen; left > 0 {
		d.line("The last %d; %s before them left out.", maxOpen, plural.Count(left, "event"))
		events = events[left:]
	}
	var rows [][]string
	for _, e := range events {
		rows = append(rows, []string{moment(e.Time), e.Kind, e.Host, e.Task, e.Text})
	}
	d.table([]string{"time", "kind", "host", "task", "what"}, rows)
}

// plain returns text from a run as one line, in which all Markdown syntax is
// escaped.
func plain(text string) string {
	var out strings.Builder
	for _, r := range clean(text) {
		if strings.ContainsRune("\\`*_{}[]<>()#|~&!$^", r) {
			out.WriteByte('\\')
		}
		out.WriteRune(r)
	}
	return out.String()
}
