package console

import (
	"fmt"
	"slices"
	"strings"

	"github.com/charmbracelet/lipgloss"
	"github.com/charmbracelet/x/ansi"

	"github.com/plx-run/plx/logs/style"
)

// Table is a table without border lines, like the output of ps. Newlines
// within a cell become "; ".
type Table struct {
	// Level returns the level of a cell, which decides its colour. If it is
	// nil, all cells are style.Plain.
	Level func(column, cell string) style.Level
	// Spare names columns to leave out, in this order, if a row does not fit
	// into one terminal line. If enough room remains for part of the first of
	// these columns, it is shortened instead. If Spare is nil, a row may take
	// several lines.
	Spare []string
	rows  [][]string // the head and then the rows, all with the same number of cells
}

// NewTable returns a table that has only a head.
func NewTable(head ...string) *Table { return &Table{rows: [][]string{head}} }

// Row adds a row. cells has the text of each column.
func (t *Table) Row(cells ...string) {
	row := make([]string, len(t.rows[0]))
	for i := range min(len(row), len(cells)) {
		row[i] = oneLine(cells[i])
	}
	t.rows = append(t.rows, row)
}

// Rows returns the number of rows, not counting the head.
func (t *Table) Rows() int { return len(t.rows) - 1 }

// Write prints the table to stdout, with lines no wider than the terminal.
func (t *Table) Write(to Terminal) error {
	for _, line := range t.lines(to.Width, to.StdoutColour) {
		if _, err := fmt.Fprintln(to.Stdout, line); err != nil {
			return err
		}
	}
	return nil
}

// Lines returns the lines of the whole table without colours, in any width.
func (t *Table) Lines() []string { return t.lines(0, false) }

// longColumn, leastLast and indent are numbers of terminal columns. The
// table's last column moves to a line below its row if it is wider than
// longColumn and would get less than leastLast. The new line is indented by
// indent.
const leastLast, longColumn, indent = 24, 10, 4

// hangIndent is the indent of the second and further lines of the first column, in
// terminal columns.
const hangIndent = 2

// lines returns the table as lines of at most width terminal columns. A line
// is wider only if a single word is. A width of 0 means no limit.
func (t *Table) lines(width int, colour bool) (lines []string) {
	t = t.dropSpare(width)
	widths, gap := t.fit(width)
	for i, row := range t.rows {
		lines = append(lines, t.rowLines(i, widths, gap, colour)...)
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

// rowLines returns the lines of one row. It puts the columns for which widths
// has a width side by side.
func (t *Table) rowLines(row int, widths []int, gap int, colour bool) (lines []string) {
	var cells [][]string
	height := 1
	for c, width := range widths {
		cell := wrap(t.rows[row][c], width)
		if c == 0 && len(cell) > 1 { // indent further lines: at the left edge they would look like new rows
			cell = wrap(t.rows[row][c], width-hangIndent)
			for i := range cell[1:] {
				cell[i+1] = strings.Repeat(" ", hangIndent) + cell[i+1]
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

// dropSpare returns the table without those columns of Spare for which width has
// no room.
func (t *Table) dropSpare(width int) *Table {
	if width == 0 {
		return t
	}
	for i, head := range t.Spare {
		excess := t.excess(t.natural(), 1, width)
		c := slices.Index(t.rows[0], head)
		if excess <= 0 || c < 0 {
			break
		}
		room := t.natural()[c] - excess
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

// natural returns the column widths at which every cell fits on one line.
func (t *Table) natural() []int { return t.widths(ansi.StringWidth) }

// minWidths returns the smallest column widths at which no word is split.
func (t *Table) minWidths() []int {
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

// excess returns by how many terminal columns a row is wider than width. gap is
// the space between two columns of the table.
func (t *Table) excess(widths []int, gap, width int) int {
	all := gap * (len(widths) - 1)
	for _, w := range widths {
		all += w
	}
	return all - width
}

// fit returns the column widths and the gap between columns for lines of the
// given width. Columns at the end that get no width move to a line below their
// row. A long last column shrinks first, because it usually has a description.
// The first column shrinks last, because it has names. No word is split.
func (t *Table) fit(width int) (widths []int, gap int) {
	widths, minWidths := t.natural(), t.minWidths()
	for {
		if width == 0 || t.excess(widths, 2, width) <= 0 {
			return widths, 2
		}
		last, excess := len(widths)-1, t.excess(widths, 1, width)
		if excess <= 0 {
			return widths, 1
		}
		if room := widths[last] - excess; last == len(minWidths)-1 && widths[last] > longColumn {
			if room >= max(leastLast, minWidths[last]) {
				widths[last] = room
				return widths, 1
			}
			widths = widths[:last]
			continue
		}
		narrowed := slices.Clone(widths)
		narrow(narrowed[1:], minWidths[1:], excess)
		narrow(narrowed[:1], minWidths, t.excess(narrowed, 1, width))
		if t.excess(narrowed, 1, width) <= 0 || last == 0 {
			return narrowed, 1
		}
		widths = widths[:last]
	}
}

// narrow reduces widths by excess in total, one by one at the column that is
// widest. No column becomes narrower than its longest word.
func narrow(widths, minWidths []int, excess int) {
	for ; excess > 0; excess-- {
		widest := -1
		for c, w := range widths {
			if w > minWidths[c] && (widest < 0 || w > widths[widest]) {
				widest = c
			}
		}
		if widest < 0 {
			return
		}
		widths[widest]--
	}
}

// wrap splits text at blanks into lines of at most width terminal columns. A
// word that is wider gets its own line.
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

// style returns the style of a cell. Row 0 is the head and has a style of its
// own; other cells have the style of their level.
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
