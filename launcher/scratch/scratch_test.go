package scratch

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// there returns the names of the files in a folder.
func there(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// fresh creates a Folder that contains a file.
func fresh(t *testing.T) *Folder {
	t.Helper()
	f, err := New()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(f.Path, "file"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	return f
}

// Tidy removes the folders that no process has locked, and nothing else.
func TestTidy(t *testing.T) {
	dir, home := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", dir)
	t.Setenv("HOME", home)
	used, dead, held := fresh(t), fresh(t), fresh(t)
	dead.lock.Close() // as the end of its process does
	command := exec.Command("cat")
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	held.Hold(command)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	held.lock.Close()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	others := []string{"plx-scratch-another." + host + "-1", "plx-scratch-" + host + "-2-1", "plx-scratch", "folder"}
	for _, name := range others {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	aside := t.TempDir()
	if err := os.Symlink(aside, filepath.Join(dir, "plx-scratch-"+host+"-3")); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		name := "plx-scratch-" + host + "-2"
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(filepath.Join(dir, name), 64123, 64123); err != nil {
			t.Fatal(err)
		}
		others = append(others, name)
	}
	Tidy()
	left := strings.Join(there(t, dir), " ")
	if strings.Contains(left, filepath.Base(dead.Path)) {
		t.Error("what a dead process had stays")
	}
	for _, name := range append(others, filepath.Base(used.Path), filepath.Base(held.Path), host+"-3") {
		if !strings.Contains(left, name) {
			t.Errorf("%s is gone, left are %s", name, left)
		}
	}
	in.Close()
	if err := command.Wait(); err != nil {
		t.Error(err)
	}
	Tidy()
	if _, err := os.Stat(held.Path); err == nil {
		t.Error("what a command held stays after its end")
	}
	if err := used.Remove(); err != nil || strings.Contains(strings.Join(there(t, dir), " "), filepath.Base(used.Path)) {
		t.Errorf("it is there after Remove, %v", err)
	}
	if err := (*Folder)(nil).Remove(); err != nil {
		t.Error(err)
	}
}

// Place falls back to ~/.plx/scratch if the system's temporary folder is
// missing, read-only or full.
func TestPlace(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	inHome := filepath.Join(home, ".plx", "scratch")
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	if got := Place(minFree); got != dir {
		t.Errorf("%s, want TMPDIR", got)
	}
	if got := Place(1 << 60); got != dir {
		t.Errorf("%s, want TMPDIR: no place has room", got)
	}
	check := func(what, tmp string) {
		t.Helper()
		t.Setenv("TMPDIR", tmp)
		f := fresh(t)
		if filepath.Dir(f.Path) != inHome {
			t.Errorf("%s: it is %s", what, f.Path)
		}
		f.lock.Close()
		Tidy()
		if left := there(t, inHome); len(left) > 0 {
			t.Errorf("%s: left over: %s", what, left)
		}
	}
	check("not there", "/nonexistent")
	small := func(flags uintptr, size string) string {
		path := t.TempDir()
		if err := syscall.Mount("plx-test", path, "tmpfs", flags, "size="+size); err != nil {
			t.Skipf("needs root, to mount a small file system: %v", err)
		}
		t.Cleanup(func() {
			if err := syscall.Unmount(path, syscall.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
		return path
	}
	check("read-only", small(syscall.MS_RDONLY, "4m"))
	check("full", small(0, "256k"))
}

// A concurrent Tidy never removes a folder that New has just returned.
func TestConcurrentTidyAndNew(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	end := make(chan struct{})
	var others sync.WaitGroup
	for range 2 {
		others.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
					Tidy()
				}
			}
		})
	}
	for range 200 {
		f := fresh(t)
		if err := f.Remove(); err != nil {
			t.Error(err)
		}
	}
	close(end)
	others.Wait()
}
