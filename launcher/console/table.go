package console

import (
	"fmt"
	"slices"
	"strings"

	"github.com/charmbracelet/lipgloss"
	"github.com/charmbracelet/x/ansi"
)

// Table is a table without lines, as ps(1) writes one. A cell of several lines becomes one.
type Table struct {
	// Level tells what a cell of a column is to the user, by its colour. Nil: all are Plain.
	Level func(column, cell string) Level
	rows  [][]string // the head, then the others; all are as long
}

// NewTable returns a table with a head and no rows.
func NewTable(head ...string) *Table { return &Table{rows: [][]string{head}} }

// Row adds a row, with a cell for each column.
func (t *Table) Row(cells ...string) {
	row := make([]string, len(t.rows[0]))
	for i := range min(len(row), len(cells)) {
		row[i] = oneLine(cells[i])
	}
	t.rows = append(t.rows, row)
}

// Write writes the table to the terminal's stdout, no wider than that.
func (t *Table) Write(to Terminal) error {
	for _, line := range t.lines(to.Width, to.StdoutColour) {
		if _, err := fmt.Fprintln(to.Stdout, line); err != nil {
			return err
		}
	}
	return nil
}

// Lines returns the whole table without colours.
func (t *Table) Lines() []string { return t.lines(0, false) }

const (
	// A last column that is long and is to be narrower than leastLast stands below its
	// rows, as far right as indent. Other columns are not made narrower than leastColumn.
	leastLast, indent, leastColumn = 24, 4, 10
)

// lines returns the table with lines of at most width cells; 0 means any width.
func (t *Table) lines(width int, colour bool) (lines []string) {
	widths, gap, below := t.fit(width)
	for i, row := range t.rows {
		var cells []string
		for c, width := range widths {
			cells = append(cells, t.style(i, c, colour).Width(width).MarginRight(gap).Render(row[c]))
		}
		text := lipgloss.JoinHorizontal(lipgloss.Top, cells...)
		if last := len(row) - 1; below && i > 0 && row[last] != "" {
			text += "\n" + t.style(i, last, colour).Width(max(leastColumn, width-indent)).MarginLeft(indent).Render(row[last])
		}
		for line := range strings.SplitSeq(text, "\n") {
			lines = append(lines, strings.TrimRight(line, " "))
		}
	}
	return lines
}

// fit returns the widths of the columns, the gap between them, and whether the last one
// stands below its rows and has no width. A last column that is long gives way first, as it has the
// text of a reason, and the first column last, as it has names.
func (t *Table) fit(width int) (widths []int, gap int, below bool) {
	widths = make([]int, len(t.rows[0]))
	for c := range widths {
		for _, row := range t.rows {
			widths[c] = max(widths[c], ansi.StringWidth(row[c]))
		}
	}
	over := func(gap int) int {
		all := gap * (len(widths) - 1)
		for _, w := range widths {
			all += w
		}
		return all - width
	}
	if width == 0 || over(2) <= 0 {
		return widths, 2, false
	}
	if last := len(widths) - 1; over(1) > 0 && widths[last] > leastColumn {
		if room := widths[last] - over(1); room >= leastLast {
			widths[last] = room
			return widths, 1, false
		}
		widths, below = widths[:last], true
	}
	if over(2) <= 0 {
		return widths, 2, below
	}
	narrow(widths[1:], over(1))
	narrow(widths[:1], over(1))
	return widths, 1, below
}

// narrow takes cells from the widest of columns.
func narrow(widths []int, over int) {
	for ; over > 0 && len(widths) > 0; over-- {
		widest := slices.Index(widths, slices.Max(widths))
		if widths[widest] <= leastColumn {
			return
		}
		widths[widest]--
	}
}

// style is that of a cell: bold in the head, else the colour of its level.
func (t *Table) style(row, column int, colour bool) lipgloss.Style {
	switch {
	case !colour:
		return renderer.NewStyle()
	case row == 0:
		return renderer.NewStyle().Bold(true)
	case t.Level == nil:
		return renderer.NewStyle()
	}
	return t.Level(t.rows[0][column], t.rows[row][column]).style()
}
