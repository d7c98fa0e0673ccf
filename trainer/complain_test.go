package trainer

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
)

// A file that a launched program does not find gets a hint at --copy; one that was not
// launched by plx runs where its files are.
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
