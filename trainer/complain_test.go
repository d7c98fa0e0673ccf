package trainer

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
)

// If a program that plx launched does not find a file, the hint mentions
// --copy. A program without a launcher gets no hint.
func TestMissingFilesAreHinted(t *testing.T) {
	_, err := os.Open("data/missing.csv")
	for job, want := range map[string]string{
		"j-1": "plx: worker:0: load: open data/missing.csv: no such file or directory\nplx: hint: hosts have no files of the launching machine: plx launch --copy data/missing.csv, which tasks read as missing.csv;",
		"":    "plx: worker:0: load: open data/missing.csv: no such file or directory\n",
	} {
		var said bytes.Buffer
		process{getenv: func(string) string { return job }, log: &said}.complain("worker:0", fmt.Errorf("load: %w", err))
		if !strings.HasPrefix(said.String(), want) || strings.Contains(said.String(), "hint") != (job != "") {
			t.Errorf("job %q: %q", job, said.String())
		}
	}
}
