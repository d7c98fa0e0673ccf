package logs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestDir(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b")
	for _, want := range []string{"worker-0.stdout", "worker-0.stdout.2", "worker-0.stdout.3"} {
		d, err := NewDir(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"a\x00", "b\r", want} {
			if err := d.Chunk("gpu01", Chunk{Source: worker0, Data: []byte(text)}); err != nil {
				t.Fatal(err)
			}
		}
		if d.File(worker0) != filepath.Join(path, want) {
			t.Errorf("File = %s, want %s", d.File(worker0), want)
		}
		for range 2 {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := d.Chunk("gpu01", Chunk{Source: worker0}); !errors.Is(err, os.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
	for _, name := range []string{"worker-0.stdout", "worker-0.stdout.2", "worker-0.stdout.3"} {
		if b, err := os.ReadFile(filepath.Join(path, name)); string(b) != "a\x00b\r"+name {
			t.Errorf("%s has %q, %v", name, b, err)
		}
	}
}

func TestDirRejectsInvalidSources(t *testing.T) {
	d, err := NewDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Chunk("h", Chunk{Source: Source{Task: "../x"}}); err == nil {
		t.Error("a path was taken for a task")
	}
	if err := os.WriteFile(d.File(worker0), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.Chunk("h", Chunk{Source: worker0}); !errors.Is(err, os.ErrExist) {
		t.Errorf("a file that appeared: %v", err)
	}
	if err := d.Chunk("h", Chunk{Source: worker1, Data: []byte("x")}); err != nil {
		t.Errorf("another source: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := NewDir(file); err == nil {
		t.Error("a file was taken for a folder")
	}
}

func TestRunOf(t *testing.T) {
	for name, want := range map[string]int{
		"worker-0.stdout": 1, "ps-1.stderr.2": 2, "ps-1.stderr.17": 17,
		"": 0, "notes": 0, "ps-1.stderr.": 0, "ps-1.stderr.1": 0, "ps-1.stderr.x": 0, "ps-1.log.2": 0,
		"ps-1.stderr.99999999999": 0,
	} {
		if got := runOf(name); got != want {
			t.Errorf("%q: %d, want %d", name, got, want)
		}
	}
}
