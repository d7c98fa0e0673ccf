package envsync

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// here makes the host's home that of this process, as an agent on the host has it.
func (h *localHost) here(t *testing.T) {
	t.Setenv("HOME", h.home)
	t.Setenv("SSH_CONNECTION", "10.0.0.9 50512 10.0.0.1 22")
	h.env = append(h.env, "SSH_CONNECTION="+os.Getenv("SSH_CONNECTION"))
}

// The script is the twin: an agent tells of a host what the script does.
func TestHereSaysWhatTheScriptSays(t *testing.T) {
	h := newHost(t)
	h.here(t)
	if text, err := Here(); err == nil {
		t.Errorf("without ~/.plx: %q", text)
	}
	want, err := Inspect(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	blobs := filepath.Join(h.home, ".plx/blobs")
	if err := os.Chmod(blobs, 0o755); err != nil {
		t.Fatal(err)
	}
	text, err := Here()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ReadFacts(text); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	if info, err := os.Stat(blobs); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("others may read the blobs: %v, %v", info, err)
	}
	if left, _ := filepath.Glob(filepath.Join(h.home, ".plx/.*")); len(left) != 0 {
		t.Errorf("left over: %v", left)
	}
	if err := os.Truncate(filepath.Join(h.home, ".plx/fsid"), 0); err != nil {
		t.Fatal(err)
	}
	if text, err := Here(); err == nil {
		t.Errorf("with an empty fsid: %q", text)
	}
}

// A home that cannot be written is the script's to explain.
func TestHereLeavesAReadOnlyHomeToTheScript(t *testing.T) {
	h := smallHome(t, "1m")
	h.here(t)
	if _, err := Inspect(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	makeReadOnly(t, h)
	if text, err := Here(); err == nil {
		t.Errorf("%q", text)
	}
}

// What the script has marked as right an agent does not hash again, and the other way round.
// An agent takes no file for right that the script would send again.
func TestHavingAgreesWithTheScript(t *testing.T) {
	m := newMachine(t, t.TempDir())
	m.here(t)
	boot, err := firstLine(bootFile)
	if err != nil {
		t.Fatal(err)
	}
	m.boot(t, boot)
	b, content := programBlob(t, 50_000)
	has := func() bool { return len(Having(map[string]int64{b.Sum: b.Size, "../fsid": 33})) == 1 }
	if has() {
		t.Error("it has what was not sent")
	}
	m.sync(t, b)
	is, err := identity(m.path(b))
	if marked := readMarks(m.home).has(b.Sum, is); err != nil || !marked || !has() {
		t.Errorf("marked by the script: %v, %v", marked, err)
	}
	verified := filepath.Join(m.home, ".plx/verified")
	if err := os.RemoveAll(verified); err != nil {
		t.Fatal(err)
	}
	if !has() {
		t.Error("it lacks what is there, without marks")
	}
	if sent, hashed := m.sync(t, b); sent != 0 || hashed != 0 {
		t.Errorf("after the agent's mark %d bytes were sent and %d files hashed", sent, hashed)
	}

	old := time.Now().Add(-48 * time.Hour)
	if err := os.Chtimes(m.path(b), old, old); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(m.path(b), 0o600); err != nil {
		t.Fatal(err)
	}
	if !has() {
		t.Error("it lacks an old file")
	}
	if info, err := os.Stat(m.path(b)); err != nil || info.Mode().Perm() != 0o700 || time.Since(info.ModTime()) > time.Hour {
		t.Errorf("a used file is %v, %v", info, err)
	}

	content[100] ^= 1
	for name, spoil := range map[string]func() error{
		"damaged": func() error { return os.WriteFile(m.path(b), content, 0o700) },
		"short":   func() error { return os.Truncate(m.path(b), 10) },
		"a link":  func() error { return os.Symlink("/bin/sh", m.path(b)) },
		"gone":    func() error { return nil },
	} {
		if name == "a link" || name == "gone" {
			if err := os.Remove(m.path(b)); err != nil {
				t.Fatal(err)
			}
		}
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if has() {
			t.Errorf("%s, and it counts", name)
		}
		if err := os.RemoveAll(m.path(b)); err != nil {
			t.Fatal(err)
		}
		if sent, _ := m.sync(t, b); sent != b.Size {
			t.Errorf("%s: %d bytes were sent", name, sent)
		}
	}
}

// A host that is known to have the blob is not asked, another one is.
func TestKnownBlobsAreNotAskedFor(t *testing.T) {
	h := newHost(t)
	a, _ := programBlob(t, 1000)
	b, _ := programBlob(t, 2000)
	for _, c := range []struct {
		has  []string
		runs bool
	}{{[]string{b.Sum, a.Sum}, false}, {[]string{b.Sum}, true}, {nil, true}} {
		before, told := h.runs.Load(), 0
		err := Sync(t.Context(), []Target{{Name: "h", Host: h, Has: c.has}}, a, func(_, _ string, sent, total int64) { told++ }, nil)
		if ran := h.runs.Load() > before; err != nil || ran != c.runs || told == 0 {
			t.Errorf("with %d known blobs: asked %v, told %d times, %v", len(c.has), ran, told, err)
		}
	}
}

// An agent gives a file the name of its blob as the script does.
func TestSettleAgreesWithTheScript(t *testing.T) {
	m := newMachine(t, t.TempDir())
	m.here(t)
	boot, err := firstLine(bootFile)
	if err != nil {
		t.Fatal(err)
	}
	m.boot(t, boot)
	other, _ := programBlob(t, 1000)
	m.sync(t, other)
	b, content := programBlob(t, 50_000)
	if err := Settle(filepath.Join(m.home, ".plx/new"), b.Sum, b.Size); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without file and blob: %v", err)
	}
	for range 2 { // the second time the blob is there, and stays
		file := filepath.Join(m.home, ".plx/new")
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Settle(file, b.Sum, b.Size); err != nil {
			t.Fatal(err)
		}
		if sent, hashed := m.sync(t, b); sent != 0 || hashed != 0 {
			t.Errorf("%d bytes were sent, %d files hashed", sent, hashed)
		}
		if _, err := os.Stat(file); !os.IsNotExist(err) {
			t.Errorf("left over: %v", err)
		}
		if err := Settle(file, b.Sum, b.Size); err != nil { // another launch has settled it just now
			t.Errorf("after another launch: %v", err)
		}
	}
}
