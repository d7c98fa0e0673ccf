//go:build linux

package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/protocol"
)

// stored puts a blob into the home that was last used the given time ago, and
// returns its path.
func (h *testHost) stored(digit string, unused time.Duration) string {
	h.t.Helper()
	path := filepath.Join(h.home, ".plx", "blobs", strings.Repeat(digit, 64))
	h.leave(path, unused)
	return path
}

// leave writes a file and sets its modification time to the given time ago.
func (h *testHost) leave(path string, ago time.Duration) {
	h.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(path, make([]byte, 100), 0o600); err != nil {
		h.t.Fatal(err)
	}
	h.age(path, ago)
}

func (h *testHost) age(path string, ago time.Duration) {
	h.t.Helper()
	then := time.Now().Add(-ago)
	if err := os.Chtimes(path, then, then); err != nil {
		h.t.Fatal(err)
	}
}

func there(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

const old = unusedFor + time.Hour

// Once a day, while tasks run, gc removes what no job has used for 30 days. It
// keeps what a running job uses, an ended job's logs, and the binary that
// reads the logs.
func TestGCRemovesUnusedFiles(t *testing.T) {
	h := newHost(t, 1, "wait")
	ended := jobfolder.Folder(filepath.Join(h.home, ".plx", "jobs", "ended", "gpu01"))
	unused, young, reader, program := h.stored("1", old), h.stored("2", unusedFor-time.Hour), h.stored("3", old), h.stored("4", old)
	h.leave(filepath.Join(ended.Logs(), "worker-0.stdout"), old)
	if err := ended.WriteState(protocol.State{Job: "ended", Folder: "gpu01", Phase: protocol.Over, Binary: ".plx/blobs/" + strings.Repeat("3", 64)}); err != nil {
		t.Fatal(err)
	}
	h.age(ended.State(), old)
	if err := os.WriteFile(ended.Blobs(), []byte(strings.Repeat("4", 64)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// These are left by an interrupted upload, and by a session before the
	// last reboot.
	upload, uploading, marks := filepath.Join(h.home, ".plx/blobs/.plx-A.gz"), filepath.Join(h.home, ".plx/blobs/.plx-B"), filepath.Join(h.home, ".plx/verified/boot")
	h.leave(upload, 25*time.Hour)
	h.leave(uploading, time.Hour)
	h.leave(marks, old)
	env := filepath.Join(h.home, ".plx", "envs", "old")
	h.leave(filepath.Join(env, "bin", "python3"), old)
	h.age(env, old)

	if err := os.Remove(h.tidied()); err != nil {
		t.Fatal(err)
	}
	l, _ := h.launch()
	h.prints("worker-0.stdout", "ready")
	eventually(t, "the home is tidied", func() bool {
		info, err := os.Stat(h.tidied())
		if err != nil || info.Size() == 0 || there(unused) || there(env) || there(upload) || there(marks) {
			return false
		}
		f, err := os.Open(h.tidied())
		if err != nil {
			return false
		}
		defer f.Close()                                                  // releases the lock
		return unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil // the process has ended
	})
	if !there(young) || !there(reader) || there(program) || !there(filepath.Join(ended.Logs(), "worker-0.stdout")) {
		t.Errorf("young %t, reader of logs %t, program of an old job %t, logs %t", there(young), there(reader), there(program), there(ended.Logs()))
	}

	again, used := h.stored("5", old), h.stored("6", old)
	if err := os.WriteFile(h.folder().Blobs(), []byte(strings.Repeat("6", 64)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.collects()
	if !there(again) {
		t.Error("a home is tidied twice on one day")
	}
	h.age(h.tidied(), jobfolder.GCEvery+time.Minute)
	h.collects()
	if there(again) || !there(used) {
		t.Errorf("on the next day: an unused blob %t, one that a job uses %t", there(again), there(used))
	}
	l.end(h, time.Second)
}

func (h *testHost) collects() {
	h.t.Helper()
	if out, stderr, code := h.agent("gc"); code != 0 || out != "" {
		h.t.Fatalf("agent gc: status %d, %q, %q", code, out, stderr)
	}
}

// If a launch touches a blob after prune has found it unused, prune keeps the
// blob under its name.
func TestPruneKeepsFilesTouchedMeanwhile(t *testing.T) {
	h := newHost(t, 1, "wait")
	path := h.stored("1", old)
	p := &pruner{ctx: t.Context(), root: filepath.Join(h.home, ".plx"), before: time.Now().Add(-unusedFor)}
	h.age(path, 0)
	if err := p.unused(path); err != nil || !there(path) || len(p.items) > 0 {
		t.Errorf("touched: %v, there %t, told %v", err, there(path), p.items)
	}
	h.age(path, old)
	if err := p.unused(path); err != nil || there(path) || len(p.items) != 1 {
		t.Errorf("unused: %v, there %t, told %v", err, there(path), p.items)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
