package console

import (
	"fmt"
	"io"
	"strings"

	"github.com/charmbracelet/lipgloss"
	"github.com/charmbracelet/lipgloss/table"
)

// NewTable returns a table without lines, as ps(1) writes one.
func NewTable(headers ...string) *table.Table {
	return table.New().Headers(headers...).Border(lipgloss.HiddenBorder()).
		BorderTop(false).BorderBottom(false).BorderLeft(false).BorderHeader(false)
}

// WriteTable writes t without blanks at the ends of lines.
func WriteTable(w io.Writer, t *table.Table) error {
	for line := range strings.Lines(t.Render()) {
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}
