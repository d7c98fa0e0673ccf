package console

import (
	"fmt"
	"slices"
	"strings"

	"github.com/charmbracelet/lipgloss"
	"github.com/charmbracelet/x/ansi"

	"github.com/plx-run/plx/logs/style"
)

// Table is a table without lines, as ps(1) writes one. A cell of several lines becomes one.
type Table struct {
	// Level tells what a cell of a column is to the user, by its colour. Nil: all are style.Plain.
	Level func(column, cell string) style.Level
	// Spare are columns to leave out, in this order, so that each row is one line of a
	// terminal. The first is cut short while there is room for some of it. Nil: a row may take
	// several lines.
	Spare []string
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

// Rows returns the number of rows without the head.
func (t *Table) Rows() int { return len(t.rows) - 1 }

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

// A last column that is wider than long and is to be narrower than leastLast stands below its rows, as far
// right as indent.
const leastLast, long, indent = 24, 10, 4

// hang is how far right further lines of the first column begin.
const hang = 2

// lines returns the table with lines of at most width cells, unless one word is longer; 0 means
// any width.
func (t *Table) lines(width int, colour bool) (lines []string) {
	t = t.without(width)
	widths, gap := t.fit(width)
	for i, row := range t.rows {
		lines = append(lines, t.beside(i, widths, gap, colour)...)
		if i == 0 {
			continue
		}
		for c := len(widths); c < len(row); c++ {
			text := row[c]
			if text == "" {
				continue
			}
			if c < len(row)-1 {
				text = t.rows[0][c] + " " + text
			}
			for _, line := range wrap(text, max(leastLast, width-indent)) {
				lines = append(lines, strings.Repeat(" ", indent)+t.style(i, c, colour).Render(line))
			}
		}
	}
	return lines
}

// beside returns the lines of a row with the columns that have a width.
func (t *Table) beside(row int, widths []int, gap int, colour bool) (lines []string) {
	var cells [][]string
	height := 1
	for c, width := range widths {
		cell := wrap(t.rows[row][c], width)
		if c == 0 && len(cell) > 1 { // a further line at the left edge would look like one of plx
			cell = wrap(t.rows[row][c], width-hang)
			for i := range cell[1:] {
				cell[i+1] = strings.Repeat(" ", hang) + cell[i+1]
			}
		}
		cells = append(cells, cell)
		height = max(height, len(cell))
	}
	for l := range height {
		var line strings.Builder
		blanks := 0
		for c, width := range widths {
			if l < len(cells[c]) && cells[c][l] != "" {
				text := cells[c][l]
				line.WriteString(strings.Repeat(" ", max(0, blanks)) + t.style(row, c, colour).Render(text))
				blanks = -ansi.StringWidth(text)
			}
			blanks += width + gap
		}
		lines = append(lines, line.String())
	}
	return lines
}

// without returns the table without the columns of Spare that have no room.
func (t *Table) without(width int) *Table {
	if width == 0 {
		return t
	}
	for i, head := range t.Spare {
		over := t.over(t.natural(), 1, width)
		c := slices.Index(t.rows[0], head)
		if over <= 0 || c < 0 {
			break
		}
		room := t.natural()[c] - over
		fewer := &Table{Level: t.Level, Spare: t.Spare}
		for _, row := range t.rows {
			row = slices.Clone(row)
			if i == 0 && room >= leastLast {
				row[c] = ansi.Truncate(row[c], room, "...")
			} else {
				row = slices.Delete(row, c, c+1)
			}
			fewer.rows = append(fewer.rows, row)
		}
		t = fewer
	}
	return t
}

// natural returns the widths of columns that need one line each.
func (t *Table) natural() []int { return t.widths(ansi.StringWidth) }

// least returns the widths of columns that break no word.
func (t *Table) least() []int {
	return t.widths(func(cell string) (longest int) {
		for word := range strings.FieldsSeq(cell) {
			longest = max(longest, ansi.StringWidth(word))
		}
		return longest
	})
}

func (t *Table) widths(of func(cell string) int) []int {
	widths := make([]int, len(t.rows[0]))
	for c := range widths {
		for _, row := range t.rows {
			widths[c] = max(widths[c], of(row[c]))
		}
	}
	return widths
}

// over returns by how many cells columns with gaps between them are wider than a line.
func (t *Table) over(widths []int, gap, width int) int {
	all := gap * (len(widths) - 1)
	for _, w := range widths {
		all += w
	}
	return all - width
}

// fit returns the widths of the columns and the gap between them. Columns without a width, the
// last ones, stand below their rows. A last column that is long gives way first, as it has the
// text of a reason, and the first column last, as it has names. No word is broken.
func (t *Table) fit(width int) (widths []int, gap int) {
	widths, least := t.natural(), t.least()
	for {
		if width == 0 || t.over(widths, 2, width) <= 0 {
			return widths, 2
		}
		last, over := len(widths)-1, t.over(widths, 1, width)
		if over <= 0 {
			return widths, 1
		}
		if room := widths[last] - over; last == len(least)-1 && widths[last] > long {
			if room >= max(leastLast, least[last]) {
				widths[last] = room
				return widths, 1
			}
			widths = widths[:last]
			continue
		}
		narrowed := slices.Clone(widths)
		narrow(narrowed[1:], least[1:], over)
		narrow(narrowed[:1], least, t.over(narrowed, 1, width))
		if t.over(narrowed, 1, width) <= 0 || last == 0 {
			return narrowed, 1
		}
		widths = widths[:last]
	}
}

// narrow takes cells from the widest of columns that are wider than their longest word.
func narrow(widths, least []int, over int) {
	for ; over > 0; over-- {
		widest := -1
		for c, w := range widths {
			if w > least[c] && (widest < 0 || w > widths[widest]) {
				widest = c
			}
		}
		if widest < 0 {
			return
		}
		widths[widest]--
	}
}

// wrap breaks a text between words into lines of at most width cells. A longer word is a line.
func wrap(text string, width int) (lines []string) {
	if ansi.StringWidth(text) <= width {
		return []string{text}
	}
	for word := range strings.FieldsSeq(text) {
		if last := len(lines) - 1; last >= 0 && ansi.StringWidth(lines[last])+1+ansi.StringWidth(word) <= width {
			lines[last] += " " + word
		} else {
			lines = append(lines, word)
		}
	}
	return lines
}

// style is that of a cell: that of the head, else of its level.
func (t *Table) style(row, column int, colour bool) lipgloss.Style {
	switch {
	case !colour:
		return style.None
	case row == 0:
		return style.Head
	case t.Level == nil:
		return style.None
	}
	return t.Level(t.rows[0][column], t.rows[row][column]).Style()
}
