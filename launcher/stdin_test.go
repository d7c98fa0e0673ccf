package launcher

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plx-run/plx/launcher/console"
)

// TestH6: what waits on standard input is noticed, and nothing of it is read.
func TestH6(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, []byte("hi\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	open := func(name string) *os.File {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() }) // only read
		return f
	}
	pipe := func(text string) (r, w *os.File) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close() }) // only read
		if _, err := w.WriteString(text); err != nil {
			t.Fatal(err)
		}
		return r, w
	}
	full, writer := pipe("hi\n")
	defer writer.Close() // nothing is left to write
	silent, waits := pipe("")
	defer waits.Close() // as above
	ended, gone := pipe("")
	gone.Close() // as above
	for name, c := range map[string]struct {
		stdin *os.File
		want  bool
	}{
		"a pipe": {full, true}, "a silent pipe": {silent, false}, "an ended pipe": {ended, false},
		"a file": {open(file), true}, "/dev/null": {open(os.DevNull), false}, "none": {nil, false},
	} {
		if got := hasInput(c.stdin); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	read := open(file)
	if _, err := read.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	if hasInput(read) {
		t.Error("a file that was read to its end has something")
	}
	var plan strings.Builder
	cfg := Config{Program: "cat", DryRun: true, Stdin: full, Terminal: console.Terminal{Stdout: &plan, Stderr: &plan}}
	cfg.LocalHosts, cfg.LocalWorkers = 1, 1
	if _, err := Launch(t.Context(), cfg, nil); err != nil || !strings.Contains(plan.String(), stdinNote) {
		t.Errorf("%v, %s", err, plan.String())
	}
	text := make([]byte, 8)
	if n, err := full.Read(text); string(text[:n]) != "hi\n" {
		t.Errorf("%q, %v: the text is gone", text[:n], err)
	}
}
