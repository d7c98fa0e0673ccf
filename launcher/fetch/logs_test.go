package fetch

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/logs"
)

// prints makes a task on a host print text after its earlier output, in a new
// generation.
func (h *homes) prints(host int, src logs.Source, text string, limit int64) {
	h.t.Helper()
	dir := filepath.Join(h.dirs[host], ".plx/jobs/j", h.agents[host].Folder, "logs")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		h.t.Fatal(err)
	}
	w, err := logs.Create(dir, src, limit)
	if err != nil {
		h.t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		if _, err := w.Write([]byte(line)); err != nil {
			h.t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		h.t.Fatal(err)
	}
}

var (
	worker0 = logs.Source{Task: "worker:0", Stream: logs.Stdout}
	errors0 = logs.Source{Task: "worker:0", Stream: logs.Stderr}
	worker1 = logs.Source{Task: "worker:1", Stream: logs.Stdout}
)

// all fetches all files of the job, as plx fetch does. launched fetches what
// plx launch --fetch does.
func (h *homes) all(dir string) error { return h.wanted(dir, protocol.Wanted{Made: true}) }

func (h *homes) launched(dir string) error { return h.wanted(dir, protocol.Wanted{}) }

func (h *homes) wanted(dir string, want protocol.Wanted) error {
	h.t.Helper()
	h.said.Reset()
	return Job(h.t.Context(), Request{Hosts: h.agents, Name: "mnist", Dir: dir, Wanted: want, Printer: console.NewPrinter(console.Terminal{Stderr: &h.said})})
}

// keeps fails the test unless the folder contains exactly these logs.
func (h *homes) keeps(dir string, want map[string]string) {
	h.t.Helper()
	var names []string
	for name, text := range want {
		names = append(names, name)
		if got, err := os.ReadFile(filepath.Join(dir, "logs", name)); err != nil || string(got) != text {
			h.t.Errorf("%s: %d bytes, %.100q..., want %d, %v", name, len(got), got, len(text), err)
		}
	}
	slices.Sort(names)
	if got := tree(h.t, filepath.Join(dir, "logs")); !slices.Equal(got, names) {
		h.t.Errorf("the folder has %q, want %q", got, names)
	}
}

// The logs of all generations are fetched completely, in the same session as
// other files. They do not keep plx prune from removing the job. For plx
// launch --fetch they do not count as files of the job.
func TestLogsOfAllGenerationsAreFetched(t *testing.T) {
	h := newHomes(t, 2)
	h.ran(nil)
	h.prints(0, worker0, "first\n", 0)
	h.prints(0, worker0, "of the next generation, without an end", 0)
	h.prints(0, errors0, "", 0) // which has no file
	h.prints(1, worker1, "\x00\xff\n", 0)
	want := map[string]string{"worker-0.stdout": "first\nof the next generation, without an end", "worker-1.stdout": "\x00\xff\n"}
	dir, one := t.TempDir(), h.anew(0)
	if err := h.all(dir); err != nil {
		t.Fatal(err)
	}
	h.says("fetched 2 logs of j into " + dir + "/logs: 2 files, 47 B\n")
	h.keeps(dir, want)
	if one.runs.Load() != 1 {
		t.Errorf("%d sessions", one.runs.Load())
	}
	if _, err := os.Stat(filepath.Join(h.dirs[0], ".plx/jobs/j/h1/fetched.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the host has noted that its logs were fetched: %v", err)
	}
	if err := h.all(dir); err != nil {
		t.Error(err)
	}
	h.says("2 files, 0 B, 2 of them there already\n")

	dir = t.TempDir()
	if err := h.launched(dir); !IsNothing(err) {
		t.Errorf("after a launch: %v", err)
	}
	h.keeps(dir, want)
	dir = t.TempDir()
	if err := h.wanted(dir, protocol.Wanted{Patterns: []string{"*", "**/*.stdout"}}); !IsNothing(err) {
		t.Errorf("with patterns: %v", err)
	}
	h.says("no file matches **/*.stdout\n")
	if got := tree(t, dir); len(got) > 0 {
		t.Errorf("with patterns: %q", got)
	}
}

// Only the new part of a log is transferred and appended. If the log has been
// replaced, that is an error.
func TestGrownLogIsCompleted(t *testing.T) {
	h := newHomes(t, 1)
	h.ran(nil)
	dir := t.TempDir()
	for _, text := range []string{big, "more\n", other} {
		h.prints(0, worker0, text, 0)
		w := h.anew(0)
		if err := h.all(dir); err != nil {
			t.Fatal(err)
		}
		if came, most := w.came.Load(), int64(len(text)+little); came > most {
			t.Errorf("%d bytes came, want those of %d that were added", came, len(text))
		}
	}
	h.says("1 file, 4.0 MiB\n")
	h.keeps(dir, map[string]string{"worker-0.stdout": big + "more\n" + other})
	path := filepath.Join(dir, "logs/worker-0.stdout")
	for name, mine := range map[string]string{"other bytes": other + big, "more bytes": big + "more\n" + other + "mine", "as many": other + "more\n" + big} {
		if err := os.WriteFile(path, []byte(mine), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := h.all(dir); err == nil || !strings.HasSuffix(err.Error(), "log logs/worker-0.stdout: "+path+" already exists with other content: plx does not replace it") {
			t.Errorf("%s: %v", name, err)
		}
		if err := h.launched(dir); !IsNothing(err) {
			t.Errorf("%s: after a launch: %v", name, err)
		}
		h.says("log logs/worker-0.stdout: " + path + " already exists with other content")
		h.keeps(dir, map[string]string{"worker-0.stdout": mine})
	}
	if err := errors.Join(os.Remove(path), os.Symlink("elsewhere", path)); err != nil {
		t.Fatal(err)
	}
	if err := h.all(dir); err == nil {
		t.Error("a link was replaced")
	}
}

// If a fetch of a log is interrupted, the next fetch resumes it, even if the
// log has grown.
func TestInterruptedLogIsResumed(t *testing.T) {
	h := newHomes(t, 1)
	h.ran(nil)
	h.prints(0, worker0, big, 0)
	dir := t.TempDir()
	cut := func(after int64) int64 {
		h.anew(0).lostAfter(after)
		if err := h.all(dir); err == nil || !strings.Contains(err.Error(), errCable.Error()) {
			t.Fatalf("a host that is lost: %v", err)
		}
		info, err := os.Stat(filepath.Join(dir, "logs/.plx-worker-0.stdout"))
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	first := cut(2 << 20)
	h.prints(0, worker0, other, 0)
	w := h.anew(0)
	if err := h.all(dir); err != nil {
		t.Fatal(err)
	}
	if came, rest := w.came.Load(), int64(len(big+other))-first; first < 1<<20 || came < rest || came > rest+little {
		t.Errorf("%d bytes came, want the rest of %d", came, rest)
	}
	h.keeps(dir, map[string]string{"worker-0.stdout": big + other})

	h.prints(0, worker0, big, 0) // the transfer of the new part is interrupted too
	second := cut(2 << 20)
	w = h.anew(0)
	if err := h.all(dir); err != nil {
		t.Fatal(err)
	}
	if came, rest := w.came.Load(), int64(len(big+other+big))-second; second < 9<<20 || came < rest || came > rest+little {
		t.Errorf("%d bytes came, want the rest of %d", came, rest)
	}
	h.keeps(dir, map[string]string{"worker-0.stdout": big + other + big})
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "logs/.plx-worker-0.stdout"), []byte(other), 0o600), os.Truncate(filepath.Join(dir, "logs/worker-0.stdout"), 100)); err != nil {
		t.Fatal(err)
	}
	if err := h.all(dir); err != nil { // the incomplete file has bytes of another log
		t.Error(err)
	}
	h.keeps(dir, map[string]string{"worker-0.stdout": big + other + big})
}

// If a host has dropped old bytes of a log, a line in the log says so. If it
// drops more, the local copy has bytes that the host has lost, so it is not
// replaced.
func TestLogWithDroppedBytesIsNotReplaced(t *testing.T) {
	h := newHomes(t, 1)
	h.ran(nil)
	line := strings.Repeat("a line of a program", 50) + "\n"
	h.prints(0, worker0, strings.Repeat(line, 2*logs.MinLimit/len(line)), logs.MinLimit)
	dir := t.TempDir()
	if err := h.all(dir); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "logs/worker-0.stdout")
	before, err := os.ReadFile(path)
	first, rest, _ := strings.Cut(strings.TrimPrefix(string(before), "\n"), "\n")
	if err != nil || !strings.HasSuffix(first, " bytes are missing here: the oldest output was dropped (--log-limit)") || strings.ReplaceAll(rest, line, "") != "" {
		t.Errorf("%q, %d bytes, %v", first, len(rest), err)
	}
	h.prints(0, worker0, strings.Repeat(line, logs.MinLimit/len(line)), logs.MinLimit)
	if err := h.all(dir); err == nil || !strings.Contains(err.Error(), path+" already exists with other content") {
		t.Errorf("%v", err)
	}
	h.keeps(dir, map[string]string{"worker-0.stdout": string(before)})
}

// A task that has moved to another host has a log on both hosts. A host that
// is listed twice has only one log.
func TestLogsOfTaskThatMovedHosts(t *testing.T) {
	h := newHomes(t, 2)
	h.ran(nil)
	h.prints(0, worker0, "before", 0)
	dir := t.TempDir()
	h.agents = append(h.agents, h.agents[0])
	if err := h.all(dir); err != nil {
		t.Error(err)
	}
	h.keeps(dir, map[string]string{"worker-0.stdout": "before"})
	h.prints(0, worker0, " and later", 0)
	h.prints(1, worker0, "after", 0)
	for range 2 {
		if err := h.all(dir); err != nil {
			t.Error(err)
		}
		h.keeps(dir, map[string]string{"worker-0.stdout": "before", "worker-0.stdout.h1": "before and later", "worker-0.stdout.h2": "after"})
	}
}

// A log that still grows is fetched with the length that the host has listed.
// A log that is replaced during the fetch is an error.
func TestLogsOfARunningJob(t *testing.T) {
	h := newHomes(t, 1)
	h.ran(nil)
	h.prints(0, worker0, "before", 0)
	writes := func(do func()) {
		h.anew(0).in = func(asked []byte) {
			if bytes.Contains(asked, []byte(`"name":"worker-0.stdout"`)) {
				do()
			}
		}
	}
	writes(func() { h.prints(0, worker0, " and after", 0) })
	dir := t.TempDir()
	if err := h.all(dir); err != nil {
		t.Error(err)
	}
	h.keeps(dir, map[string]string{"worker-0.stdout": "before"})
	writes(func() { h.write(0, ".plx/jobs/j/h1/logs/worker-0.stdout", "something of another length") })
	dir = t.TempDir()
	if err := h.all(dir); err == nil || !strings.Contains(err.Error(), "log logs/worker-0.stdout: host h1: worker-0.stdout: its checksum is wrong") {
		t.Errorf("%v", err)
	}
	h.keeps(dir, nil)
}
