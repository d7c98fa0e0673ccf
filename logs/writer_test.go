package logs

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestSourceFiles(t *testing.T) {
	good := map[string]Source{
		"worker-3.stdout": {"worker:3", Stdout},
		"ps-0.stderr":     {"ps:0", Stderr},
		"agent.stderr":    {"agent", Stderr},
	}
	for name, src := range good {
		if got, ok := sourceOf(name); !ok || got != src || src.file() != name {
			t.Errorf("%q: %v %v, want %v", name, got, ok, src)
		}
	}
	for _, name := range []string{
		"", ".stdout", "worker-3", "worker-3.stdout.index", "worker-.stdout", "worker-3-4.stdout",
		"3.stdout", "Worker-3.stdout", "wörker-3.stdout", "worker-x.stdout", "worker:3.log",
		strings.Repeat("w", maxTask+1) + ".stdout",
	} {
		if src, ok := sourceOf(name); ok {
			t.Errorf("%q names %v", name, src)
		}
	}
}

func FuzzSourceOf(f *testing.F) {
	f.Add("worker-3.stdout")
	f.Add("../../etc-1.stderr")
	f.Fuzz(func(t *testing.T, name string) {
		src, ok := sourceOf(name)
		if !ok {
			return
		}
		if src.check() != nil || filepath.Base(src.file()) != src.file() {
			t.Errorf("%q names %+v", name, src)
		}
		if again, ok := sourceOf(src.file()); !ok || again != src {
			t.Errorf("%q: %+v becomes %+v", name, src, again)
		}
	})
}

func TestCreateRejectsInvalidNames(t *testing.T) {
	for _, src := range []Source{{Task: "../worker:1"}, {Task: ""}, {Task: "worker:1", Stream: 2}} {
		if _, err := Create(t.TempDir(), src, 0); err == nil {
			t.Errorf("%+v was created", src)
		}
	}
	if _, err := Create(filepath.Join(t.TempDir(), "none"), worker0, 0); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
}

func TestWriterFilesArePrivate(t *testing.T) {
	dir := t.TempDir()
	create(t, dir, worker0)
	for _, name := range []string{"worker-0.stdout", "worker-0.stdout.index"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: mode %v, %v", name, info.Mode(), err)
		}
	}
}

// indexOf returns all index records of a spool.
func indexOf(t *testing.T, dir string, src Source) []record {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, src.file()+indexExt))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	recs, err := readRecords(f, 0, make([]byte, 4096))
	if err != nil {
		t.Fatal(err)
	}
	return recs
}

func TestWriterIndex(t *testing.T) {
	dir, clock := t.TempDir(), time.Unix(100, 0)
	w := create(t, dir, worker0)
	w.now = func() time.Time { return clock }
	steps := []time.Duration{0, 9 * time.Millisecond, 2 * time.Millisecond, -time.Hour, time.Millisecond}
	for _, step := range steps {
		clock = clock.Add(step)
		write(t, w, "xyz")
	}
	w.Close()
	w = create(t, dir, worker0)
	w.now = func() time.Time { return time.Unix(50, 0) }
	write(t, w, "new")
	late := time.Unix(100, int64(11*time.Millisecond)).UnixNano()
	want := []record{{0, 100e9, false}, {6, late, false}, {9, late, false}, {15, late, true}}
	got := indexOf(t, dir, worker0)
	if len(got) != len(want) {
		t.Fatalf("records %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("record %d: %v, want %v", i, got[i], want[i])
		}
	}
	if w.size != 18 {
		t.Errorf("size = %d", w.size)
	}
}

// TestWriterFullDisk writes to /dev/full, on which every write fails.
func TestWriterFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()

	dir := t.TempDir()
	w := create(t, dir, worker0)
	write(t, w, "before\n")
	data := w.data
	w.data = full
	n, err := w.Write([]byte("lost?\n"))
	if n != 0 || !errors.Is(err, syscall.ENOSPC) || w.size != 7 {
		t.Errorf("Write = %d, %v, size %d", n, err, w.size)
	}
	w.data = data
	write(t, w, "after\n")
	if got := collect(t, NewReader(bytes.NewReader(serve(t, dir, all))))[worker0]; got != "before\nafter\n" {
		t.Errorf("spool has %q", got)
	}

	w = create(t, dir, worker1)
	index := w.index
	w.index = full
	write(t, w, "no time known\n")
	w.index = index
	if got := collect(t, NewReader(bytes.NewReader(serve(t, dir, all))))[worker1]; got != "no time known\n" {
		t.Errorf("without an index: %q", got)
	}
}

func TestWriterOverwritesPartialIndexRecord(t *testing.T) {
	dir := t.TempDir()
	w := create(t, dir, worker0)
	write(t, w, "one\n")
	w.Close()
	path := filepath.Join(dir, worker0.file()+indexExt)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(b, "torn"...), 0o600); err != nil {
		t.Fatal(err)
	}
	write(t, create(t, dir, worker0), "two\n")
	if recs := indexOf(t, dir, worker0); len(recs) != 2 || recs[1].offset != 4 || !recs[1].restart {
		t.Errorf("records %v", recs)
	}
}

func TestLastLines(t *testing.T) {
	whole := ""
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range 200 {
		whole += strings.Repeat("x", rng.IntN(30)*rng.IntN(60)) + strings.Repeat("\n", rng.IntN(3))
		lines := rng.IntN(12)
		got, err := lastLines(strings.NewReader(whole), 0, int64(len(whole)), lines)
		if want := naiveLastLines(whole, lines); err != nil || got != int64(want) {
			t.Fatalf("step %d, %d lines: %d, %v, want %d", i, lines, got, err, want)
		}
	}
}

// naiveLastLines does the same as lastLines, on a string.
func naiveLastLines(text string, lines int) int {
	if lines == 0 {
		return strings.LastIndexByte(text, '\n') + 1
	}
	parts := strings.SplitAfter(text, "\n")
	if parts[len(parts)-1] == "" {
		parts = parts[:len(parts)-1]
	}
	return len(strings.Join(parts[:max(len(parts)-lines, 0)], ""))
}
