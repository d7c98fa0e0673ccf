package bounded

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "job.json")
	for size := range 4 {
		want := []byte("abc")[:size]
		if err := os.WriteFile(path, want, 0o600); err != nil {
			t.Fatal(err)
		}
		text, err := ReadFile(path, 2)
		if size <= 2 && (err != nil || !bytes.Equal(text, want)) {
			t.Errorf("%d bytes: %q, %v", size, text, err)
		}
		if size > 2 && (!errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), path+" has more than 2 bytes")) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	if _, err := ReadFile(path+"x", 2); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if _, err := ReadFile("/dev/zero", 1000); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a file without end: %v", err)
	}
	if text, err := ReadFile("/proc/self/stat", Words); err != nil || len(text) == 0 {
		t.Errorf("a file that tells no size: %q, %v", text, err)
	}
}

// ReadFile rejects a file of 1 GiB without allocating memory for it.
func TestLargeFileTakesNoMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<30)); err != nil {
		t.Fatal(err)
	}
	r := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			if _, err := ReadFile(path, Record); !errors.Is(err, ErrTooLarge) {
				b.Fatal(err)
			}
		}
	})
	if most := int64(64 << 10); r.AllocedBytesPerOp() > most {
		t.Errorf("%d bytes were allocated, want at most %d", r.AllocedBytesPerOp(), most)
	}
}
