package logs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// inDir returns the file that a Dir writes for a source after it has received
// everything from Serve.
func inDir(t *testing.T, spools string, src Source) string {
	t.Helper()
	d, err := NewDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for in := NewReader(bytes.NewReader(serve(t, spools, all))); ; {
		c, err := in.Next()
		if err == io.EOF {
			break
		}
		if err = errors.Join(err, d.Chunk("h", c)); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(d.File(src))
	if err := errors.Join(err, d.Close()); err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func inFile(t *testing.T, spools, name string) string {
	t.Helper()
	f, err := OpenFile(spools, name)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(f)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A File returns the same bytes as the file of a Dir, with one or several
// generations and with or without dropped bytes.
func TestFileReadsBytesOfDir(t *testing.T) {
	dir := t.TempDir()
	for generation := range 3 {
		w := create(t, dir, worker0)
		write(t, w, fmt.Sprintf("generation %d\nno newline", generation))
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	w := limited(t, dir, worker1)
	for i := range 3 * MinLimit / 100 {
		write(t, w, fmt.Sprintf("%099d\n", i))
	}
	if names, err := Files(dir); err != nil || !slices.Equal(names, []string{worker0.file(), worker1.file()}) {
		t.Errorf("%q, %v", names, err)
	}
	if got := inFile(t, dir, worker0.file()); got != "generation 0\nno newlinegeneration 1\nno newlinegeneration 2\nno newline" {
		t.Errorf("of three generations: %q", got)
	}
	got := inFile(t, dir, worker1.file())
	if !strings.HasPrefix(got, "\nplx: ") || !strings.Contains(got, "the oldest output was dropped") || len(got) < MinLimit/2 {
		t.Errorf("%.200q..., %d bytes", got, len(got))
	}
	for _, src := range []Source{worker0, worker1} {
		if got, want := inFile(t, dir, src.file()), inDir(t, dir, src); got != want {
			t.Errorf("%s: %d bytes, and %d in a Dir", src, len(got), len(want))
		}
	}
}

// A File ends at the size that the spool had when it was opened. If segments
// are dropped while it is read, it reports the number of dropped bytes.
func TestFileOfARunningTask(t *testing.T) {
	dir := t.TempDir()
	w := limited(t, dir, worker0)
	for i := range MinLimit / 2 / 100 {
		write(t, w, fmt.Sprintf("%099d\n", i))
	}
	f, err := OpenFile(dir, worker0.file())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() // only read
	whole := make([]byte, 100)
	if _, err := io.ReadFull(f, whole); err != nil || string(whole) != fmt.Sprintf("%099d\n", 0) {
		t.Errorf("%q, %v", whole, err)
	}
	for i := range 3 * MinLimit / 100 {
		write(t, w, fmt.Sprintf("%099d\n", i))
	}
	rest, err := io.ReadAll(f)
	if _, last, found := strings.Cut(string(rest), "\nplx: "); err != nil || !found || !strings.HasSuffix(last, " bytes are missing here: the oldest output was dropped (--log-limit)\n") {
		t.Errorf("%d bytes, %v, and in the end %.200q", len(rest), err, last)
	}
}

func TestNamesOfFiles(t *testing.T) {
	if names, err := Files(filepath.Join(t.TempDir(), "none")); len(names) > 0 || err != nil {
		t.Errorf("%q, %v", names, err)
	}
	for name, want := range map[string]bool{"worker-3.stdout": true, "ps-0.stderr": true, "chief.stdout": true, "worker:3.stdout": false, "worker-3": false,
		"worker-3.stdout.2": false, "../worker-3.stdout": false, "": false, ".stdout": false, "a/worker-3.stdout": false} {
		if IsFile(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
		if _, err := OpenFile(t.TempDir(), name); err == nil {
			t.Errorf("%q was opened", name)
		}
	}
}
