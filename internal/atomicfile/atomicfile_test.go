package atomicfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestWriteFileReplacesContentAndMode(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	path := filepath.Join(t.TempDir(), "state.json")
	for _, mode := range []os.FileMode{0o644, 0o600} {
		want := "content of " + mode.String()
		if err := WriteFile(path, []byte(want), mode); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil || string(text) != want {
			t.Errorf("%q, %v, want %q", text, err, want)
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != mode {
			t.Errorf("%v, %v, want mode %v", info.Mode(), err, mode)
		}
	}
	want(t, filepath.Dir(path), "state.json")
}

func TestReadersSeeWholeFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := Write(path, 0o600, func(w io.Writer) error {
		if _, err := io.WriteString(w, "n"); err != nil {
			return err
		}
		if text, err := os.ReadFile(path); err != nil || string(text) != "old" {
			t.Errorf("while it is written: %q, %v", text, err)
		}
		_, err := io.WriteString(w, "ew")
		return err
	})
	if text, failed := os.ReadFile(path); err != nil || failed != nil || string(text) != "new" {
		t.Errorf("%q, %v, %v", text, err, failed)
	}
}

func TestErrorsKeepOldFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state.json")
	if err := WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	full := errors.New("disk full")
	if err := Write(path, 0o644, func(w io.Writer) error {
		_, err := io.WriteString(w, "half")
		return errors.Join(err, full)
	}); !errors.Is(err, full) {
		t.Errorf("%v, want %v", err, full)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "old" {
		t.Errorf("%q, %v, want the old content", text, err)
	}
	folder := filepath.Join(dir, "folder")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(folder, nil, 0o600); err == nil {
		t.Error("a file replaced a folder")
	}
	if err := WriteFile(filepath.Join(dir, "missing", "state.json"), nil, 0o600); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
	want(t, dir, "folder state.json")
}

// want fails the test unless dir contains exactly these names.
func want(t *testing.T, dir, names string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != names || err != nil {
		t.Errorf("%q, %v in the folder, want %s", got, err, names)
	}
}
