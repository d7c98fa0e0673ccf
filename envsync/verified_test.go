package envsync

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/executable"
)

// machine is a host that can be rebooted, and that counts its hashing.
type machine struct {
	*localHost
	folder string
}

// newMachine makes a host whose programs sha256sum and sync are watched, and which reads
// the name of its boot from a file.
func newMachine(t *testing.T, home string) *machine {
	t.Helper()
	m := &machine{localHost: &localHost{home: home}, folder: t.TempDir()}
	for name, script := range map[string]string{
		"sha256sum": `echo x >>"` + m.folder + `/hashed"`,
		"sync":      `echo "$1" >>"` + m.folder + `/synced"`,
	} {
		script = "#!/bin/sh\n" + script + "\nPATH=${PATH#*:}\nexec " + name + ` "$@"` + "\n"
		if err := executable.Write(filepath.Join(m.folder, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	m.env = []string{"PATH=" + m.folder + ":" + os.Getenv("PATH")}
	m.before = `read() { if [ "$2" = boot ]; then command read -r boot <"` + m.folder + `/boot"; else command read "$@"; fi; }` + "\n"
	m.boot(t, "0a0a0a0a-0000-4000-8000-000000000001")
	return m
}

func (m *machine) boot(t *testing.T, id string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(m.folder, "boot"), []byte(id+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// sync brings a blob to the machine, and says how much was sent and hashed.
func (m *machine) sync(t *testing.T, b Blob) (sent, hashed int64) {
	t.Helper()
	before := m.sent.Load()
	log := filepath.Join(m.folder, "hashed")
	if err := os.RemoveAll(log); err != nil {
		t.Fatal(err)
	}
	if err := Sync(t.Context(), []Target{{Name: "h", Host: m, FileSystem: ""}}, b, nil, nil); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(log)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return m.sent.Load() - before, int64(bytes.Count(text, []byte("x")))
}

func (m *machine) path(b Blob) string { return filepath.Join(m.home, BlobPath(b.Sum)) }

func TestABlobIsHashedOnceInABoot(t *testing.T) {
	m := newMachine(t, t.TempDir())
	program, content := programBlob(t, 50_000)
	if sent, hashed := m.sync(t, program); sent != program.Size || hashed != 1 {
		t.Errorf("the first time sent %d bytes and hashed %d files", sent, hashed)
	}
	for range 2 {
		if sent, hashed := m.sync(t, program); sent != 0 || hashed != 0 {
			t.Errorf("the second time sent %d bytes and hashed %d files", sent, hashed)
		}
	}
	m.boot(t, "0a0a0a0a-0000-4000-8000-000000000002")
	for i := range int64(2) {
		if sent, hashed := m.sync(t, program); sent != 0 || hashed != 1-i {
			t.Errorf("after a reboot sent %d bytes and hashed %d files", sent, hashed)
		}
	}
	// A time long ago is brought up to now, which is no change to the content.
	old := time.Now().Add(-48 * time.Hour)
	if err := os.Chtimes(m.path(program), old, old); err != nil {
		t.Fatal(err)
	}
	for i := range int64(2) {
		if sent, hashed := m.sync(t, program); sent != 0 || hashed != 1-i {
			t.Errorf("with another time sent %d bytes and hashed %d files", sent, hashed)
		}
	}
	if !bytes.Equal(m.blob(t, program), content) {
		t.Error("the content differs")
	}
	text, err := os.ReadFile(filepath.Join(m.folder, "synced"))
	lines := strings.Fields(strings.ReplaceAll(string(text), "--help", ""))
	if err != nil || len(lines) != 2 || !strings.HasPrefix(lines[0], ".plx/blobs/.") || lines[1] != ".plx/blobs" {
		t.Errorf("flushed %q: %v", lines, err)
	}
}

// What a power cut, or anybody's hand, makes of a blob of the right size is
// found out and replaced, and never written into.
func TestWrongContentIsReplaced(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const reboot = "0a0a0a0a-0000-4000-8000-000000000003"
	program, content := programBlob(t, 5000)
	wrong := bytes.Repeat([]byte{'x'}, len(content))
	for name, damage := range map[string]func(t *testing.T, m *machine, path string) error{
		"zeros after a power cut": func(t *testing.T, m *machine, path string) error {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			m.boot(t, reboot)
			return firstError(rewrite(path, make([]byte, len(content))), os.Chtimes(path, info.ModTime(), info.ModTime()))
		},
		"other bytes in place": func(_ *testing.T, _ *machine, path string) error { return rewrite(path, wrong) },
		"another file of that time": func(_ *testing.T, _ *machine, path string) error {
			info, err := os.Stat(path)
			return firstError(err, os.WriteFile(path+".new", wrong, 0o700),
				os.Chtimes(path+".new", info.ModTime(), info.ModTime()), os.Rename(path+".new", path))
		},
		"unreadable": func(_ *testing.T, _ *machine, path string) error {
			return firstError(rewrite(path, wrong), os.Chmod(path, 0))
		},
		"folder": func(_ *testing.T, _ *machine, path string) error {
			return firstError(os.Remove(path), os.MkdirAll(filepath.Join(path, "a/b"), 0o700))
		},
		"link to a folder": func(t *testing.T, _ *machine, path string) error {
			return firstError(os.Remove(path), os.Symlink(t.TempDir(), path))
		},
		"link to a file": func(t *testing.T, m *machine, path string) error {
			return firstError(os.Rename(path, m.home+"/kept"), os.Symlink(m.home+"/kept", path))
		},
		"link to nothing": func(_ *testing.T, _ *machine, path string) error {
			return firstError(os.Remove(path), os.Symlink("nothing", path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, t.TempDir())
			m.sync(t, program)
			if err := damage(t, m, m.path(program)); err != nil {
				t.Fatal(err)
			}
			if sent, _ := m.sync(t, program); sent != program.Size {
				t.Errorf("sent %d bytes", sent)
			}
			info, err := os.Lstat(m.path(program))
			if err != nil || info.Mode() != 0o700 || !bytes.Equal(m.blob(t, program), content) {
				t.Errorf("it was not replaced: %v %v", info, err)
			}
			if sent, hashed := m.sync(t, program); sent != 0 || hashed != 0 {
				t.Errorf("the next time sent %d bytes and hashed %d files", sent, hashed)
			}
			if left := m.leftovers(t); len(left) != 0 {
				t.Errorf("left over: %v", left)
			}
		})
	}
}

// rewrite writes into a file that is there.
func rewrite(path string, content []byte) error { return os.WriteFile(path, content, 0o700) }

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// A folder that cannot be removed, as one that something is mounted on.
func TestWhatCannotBeRemovedIsNamed(t *testing.T) {
	m := newMachine(t, t.TempDir())
	program, _ := programBlob(t, 100)
	if err := os.MkdirAll(m.path(program), 0o700); err != nil {
		t.Fatal(err)
	}
	stub := "#!/bin/sh\necho 'rm: cannot remove it: Device or resource busy' >&2\nexit 1\n"
	if err := executable.Write(filepath.Join(m.folder, "rm"), []byte(stub), 0o755); err != nil {
		t.Fatal(err)
	}
	err := Sync(t.Context(), []Target{{Name: "h", Host: m, FileSystem: ""}}, program, nil, nil)
	want := fmt.Sprintf("host h: sync: %s is in the way of a file that plx sends: remove it", m.path(program))
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// Marks that are no marks cost a hashing and nothing else.
func TestDamagedMarks(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	program, _ := programBlob(t, 5000)
	for name, damage := range map[string]func(marks string) error{
		"empty":       func(marks string) error { return os.Truncate(marks, 0) },
		"zeros":       func(marks string) error { return os.WriteFile(marks, make([]byte, 200_000), 0o600) },
		"garbage":     func(marks string) error { return os.WriteFile(marks, []byte(program.Sum+"\n \xff*\\\n"), 0o600) },
		"many":        func(marks string) error { return os.WriteFile(marks, bytes.Repeat([]byte("a b\n"), 100_000), 0o600) },
		"no folder":   func(marks string) error { return os.RemoveAll(filepath.Dir(marks)) },
		"broken link": func(marks string) error { return firstError(os.Remove(marks), os.Symlink("nothing", marks)) },
	} {
		m := newMachine(t, t.TempDir())
		m.sync(t, program)
		if err := damage(marksOf(t, m)); err != nil {
			t.Fatal(err)
		}
		for i := range int64(2) {
			if sent, hashed := m.sync(t, program); sent != 0 || hashed != 1-i {
				t.Errorf("%s: sent %d bytes and hashed %d files", name, sent, hashed)
			}
		}
		if info, err := os.Stat(marksOf(t, m)); err != nil || info.Size() > 100_000 {
			t.Errorf("%s: marks %v %v", name, info, err)
		}
	}
	// Something that is no file stays, and every time costs a hashing.
	m := newMachine(t, t.TempDir())
	m.sync(t, program)
	folder := filepath.Dir(marksOf(t, m))
	if err := firstError(os.RemoveAll(folder), os.WriteFile(folder, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if sent, hashed := m.sync(t, program); sent != 0 || hashed != 1 {
		t.Errorf("without a place for marks sent %d bytes and hashed %d files", sent, hashed)
	}
}

// marksOf returns the one file of marks that there is.
func marksOf(t *testing.T, m *machine) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(m.home, ".plx/verified/*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files of marks %v, %v, want one", files, err)
	}
	return files[0]
}

// Hosts that share a home keep their marks apart, and do not spoil another's.
func TestMarksInASharedHome(t *testing.T) {
	home := t.TempDir()
	a, b := newMachine(t, home), newMachine(t, home)
	b.boot(t, "0b0b0b0b-0000-4000-8000-000000000001")
	program, _ := programBlob(t, 5000)
	a.sync(t, program)
	if sent, hashed := b.sync(t, program); sent != 0 || hashed != 1 {
		t.Errorf("the second host: sent %d bytes and hashed %d files", sent, hashed)
	}
	for i, m := range []*machine{a, b, a} {
		if sent, hashed := m.sync(t, program); sent != 0 || hashed != 0 {
			t.Errorf("%d: sent %d bytes and hashed %d files", i, sent, hashed)
		}
	}
}
