// Package bootstraptest imitates, for tests, the output of hosts on which the
// plx binary is installed.
package bootstraptest

import (
	"fmt"
	"io"
	"strings"
)

// Runs writes to out the line that a bootstrap script prints before it
// executes plx: the script's random word after "say=", and "runs".
func Runs(script string, out io.Writer) error {
	_, rest, _ := strings.Cut(script, "say=")
	word, _, _ := strings.Cut(rest, " ")
	_, err := fmt.Fprintln(out, word, "runs")
	return err
}
