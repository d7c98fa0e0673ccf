package launcher

import (
	"fmt"
	"io"
	"strings"

	"github.com/charmbracelet/lipgloss"
	"github.com/charmbracelet/lipgloss/table"
)

// newTable is a table without lines, as ps(1) writes one.
func newTable(headers ...string) *table.Table {
	return table.New().Headers(headers...).Border(lipgloss.HiddenBorder()).
		BorderTop(false).BorderBottom(false).BorderLeft(false).BorderHeader(false)
}

// writeTable writes t without the blanks that fill its last column.
func writeTable(w io.Writer, t *table.Table) error {
	for line := range strings.Lines(t.Render()) {
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}
