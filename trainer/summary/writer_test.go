package summary

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// contents reads both files of a Writer.
func contents(t *testing.T, w *Writer) ([]decodedEvent, []Line) {
	t.Helper()
	eventsPath, linesPath := w.events.path, w.lines.path
	b, err := os.ReadFile(eventsPath)
	if err != nil {
		t.Fatal(err)
	}
	events, err := decodeEvents(b)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(linesPath)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, err := ReadLines(f)
	if err != nil {
		t.Fatal(err)
	}
	return events, lines
}

func TestBothFilesHoldEveryStep(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "by open")
	w, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	const writers, each = 4, 200
	var all sync.WaitGroup
	for g := range writers {
		all.Go(func() {
			for i := range each {
				s := sample
				s.Step = uint64(g*each + i)
				if err := w.Step(s); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	for range 2 {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
	events, lines := contents(t, w)
	if events[0].version != "brain.Event:2" || len(events) != writers*each+1 || len(lines) != writers*each {
		t.Fatalf("%d events, %d lines, first %+v", len(events), len(lines), events[0])
	}
	seen := map[int64]bool{}
	for i, e := range events[1:] {
		seen[e.step] = true
		if lines[i].Step != uint64(e.step) || len(lines[i].Values) != len(e.values) {
			t.Fatalf("line %+v beside event %+v", lines[i], e)
		}
	}
	if len(seen) != writers*each {
		t.Errorf("%d steps, want %d", len(seen), writers*each)
	}
}

// Open must skip a number if one of the two files with that number exists.
func TestFileNamesAreUnused(t *testing.T) {
	dir := t.TempDir()
	now := func() time.Time { return time.Unix(1714564800, 0) }
	form := regexp.MustCompile(`^events\.out\.tfevents\.1714564800\.[A-Za-z0-9._-]+\.\d+\.(\d)$`)
	for number := range 3 {
		w := mustOpen(t, dir, now)
		events, lines := w.events.path, w.lines.path
		m := form.FindStringSubmatch(filepath.Base(events))
		if m == nil || m[1] != fmt.Sprint(number) || !strings.HasSuffix(lines, m[1]+".jsonl") {
			t.Errorf("names %s, %s", events, lines)
		}
		if number == 0 {
			if err := os.Remove(events); err != nil {
				t.Fatal(err)
			}
		}
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 5 {
		t.Errorf("%d files, %v", len(files), err)
	}
}

func mustOpen(t *testing.T, dir string, now func() time.Time) *Writer {
	t.Helper()
	w, err := open(dir, now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// If a process dies, only the steps since the last flush may be lost.
func TestFlushesByTime(t *testing.T) {
	clock := time.Unix(1714564800, 0)
	w := mustOpen(t, t.TempDir(), func() time.Time { return clock })
	for _, c := range []struct {
		after time.Duration
		lines int // number of lines in the file after the step
	}{{time.Second, 0}, {3 * time.Second, 0}, {time.Second, 3}, {4 * time.Second, 3}, {time.Second, 5}} {
		clock = clock.Add(c.after)
		if err := w.Step(Scalars{Step: 1}); err != nil {
			t.Fatal(err)
		}
		events, lines := contents(t, w)
		if len(lines) != c.lines || len(events) != c.lines+1 {
			t.Errorf("at %v: %d lines, %d events, want %d lines", clock.Sub(time.Unix(1714564800, 0)), len(lines), len(events), c.lines)
		}
		if got := lines; len(got) > 0 && !got[0].Time.Equal(time.Unix(1714564801, 0)) {
			t.Errorf("a step without a time is of %v", got[0].Time)
		}
	}
}

// Even if no time passes, the Writer must flush when flushBytes are in memory.
// The files must contain only whole records at any time.
func TestFlushesBySize(t *testing.T) {
	w := mustOpen(t, t.TempDir(), func() time.Time { return time.Unix(1714564800, 0) })
	for range 2000 {
		if err := w.Step(sample); err != nil {
			t.Fatal(err)
		}
		if waits := max(len(w.events.pending), len(w.lines.pending)); waits >= flushBytes {
			t.Fatalf("%d bytes wait", waits)
		}
	}
	if _, lines := contents(t, w); len(lines) < 1000 {
		t.Errorf("%d lines are written", len(lines))
	}
}

func TestErrorsNameTheFile(t *testing.T) {
	dir := t.TempDir()
	taken := filepath.Join(dir, "taken")
	if err := os.WriteFile(taken, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(taken); err == nil || !strings.Contains(err.Error(), taken) {
		t.Errorf("a file where the folder should be: %v", err)
	}
	w, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	lines := w.lines.path
	w.lines.storage.Close()
	first := w.Close()
	if first == nil || !strings.Contains(first.Error(), lines) {
		t.Errorf("a file that cannot be closed: %v", first)
	}
	if again := w.Close(); again != first {
		t.Errorf("closed again: %v", again)
	}
}

func TestWritingStopsAfterAnError(t *testing.T) {
	clock := time.Unix(1714564800, 0)
	w, err := open(t.TempDir(), func() time.Time { clock = clock.Add(time.Minute); return clock })
	if err != nil {
		t.Fatal(err)
	}
	events := w.events.path
	w.events.storage.Close()
	first := w.Step(sample)
	if !errors.Is(first, fs.ErrClosed) || !strings.Contains(first.Error(), events) {
		t.Errorf("a file that cannot be written: %v", first)
	}
	if again := w.Step(sample); again != first {
		t.Errorf("the next step: %v", again)
	}
	if err := w.Close(); err != first {
		t.Errorf("close: %v", err)
	}
}

// full simulates a file on a disk that has room for only a few more bytes.
type full struct {
	*os.File
	room int
}

func (f *full) Write(p []byte) (int, error) {
	if len(p) <= f.room {
		f.room -= len(p)
		return f.File.Write(p)
	}
	n, err := f.File.Write(p[:f.room])
	f.room = 0
	return n, errors.Join(syscall.ENOSPC, err)
}

// If the disk becomes full within a record, the Writer must remove the partial
// record, so that the file stays readable.
func TestFullDiskLeavesReadableFile(t *testing.T) {
	clock := time.Unix(1714564800, 0)
	w, err := open(t.TempDir(), func() time.Time { clock = clock.Add(time.Minute); return clock })
	if err != nil {
		t.Fatal(err)
	}
	w.events.storage = &full{w.events.storage.(*os.File), 3 * len(appendRecord(nil, sample.record().event())) / 2}
	if err := w.Step(sample); err != nil {
		t.Fatal(err)
	}
	if err := w.Step(sample); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a full disk: %v", err)
	}
	if err := w.Close(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("close: %v", err)
	}
	if events, lines := contents(t, w); len(events) != 2 || len(lines) != 1 {
		t.Errorf("%d events, %d lines", len(events), len(lines))
	}
}

func TestClosedWriterRefuses(t *testing.T) {
	w, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	events := w.events.path
	for range 2 {
		if err := w.Step(sample); !errors.Is(err, fs.ErrClosed) || !strings.Contains(err.Error(), events) {
			t.Errorf("a step after the end: %v", err)
		}
	}
	if err := w.Close(); err != nil {
		t.Errorf("closed again: %v", err)
	}
}
