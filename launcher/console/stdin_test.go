package console

import (
	"os"
	"path/filepath"
	"testing"
)

// HasInput reports data that is available on standard input, and reads none of
// it.
func TestHasInput(t *testing.T) {
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
		if got := HasInput(c.stdin); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	read := open(file)
	if _, err := read.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	if HasInput(read) {
		t.Error("a file that was read to its end has something")
	}
	text := make([]byte, 8)
	if n, err := full.Read(text); string(text[:n]) != "hi\n" {
		t.Errorf("%q, %v: the text is gone", text[:n], err)
	}
}
