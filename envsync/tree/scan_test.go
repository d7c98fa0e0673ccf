package tree

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/executable"
)

// Scan returns an error that names each entry that cannot be sent.
func TestScanRefusesWhatCannotBeSent(t *testing.T) {
	for name, c := range map[string]struct {
		make func(dir string) error
		want string
		hint string
	}{
		"socket": {func(dir string) error {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "sub/sock")})
			if err != nil {
				return err
			}
			l.SetUnlinkOnClose(false)
			return l.Close()
		}, "sub/sock: it is a socket, which cannot be sent", ""},
		"pipe": {func(dir string) error { return syscall.Mkfifo(filepath.Join(dir, "sub/pipe"), 0o600) }, "sub/pipe: it is a named pipe", ""},
		"3 GB file": {func(dir string) error {
			return errors.Join(os.WriteFile(filepath.Join(dir, "sub/big"), nil, 0o600), os.Truncate(filepath.Join(dir, "sub/big"), 3<<30))
		}, "sub/big: it has 3.0 GiB, and a file may have 2 GiB", "/sub/big"},
		"line feed": {func(dir string) error { return os.WriteFile(filepath.Join(dir, "sub/a\nb"), nil, 0o600) },
			`"sub/a\nb": its name has a line feed`, ""},
		"link that leads out": {func(dir string) error { return os.Symlink("../../other", filepath.Join(dir, "sub/link")) },
			`sub/link: the link to "../../other" leads out`, ""},
		"absolute link": {func(dir string) error { return os.Symlink("/etc/passwd", filepath.Join(dir, "link")) }, `link: the link to "/etc/passwd" leads out`, ""},
		"patterns that are no file": {func(dir string) error { return os.MkdirAll(filepath.Join(dir, "sub/.gitignore"), 0o700) },
			"sub/.gitignore: it is not a regular file", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, map[string]string{"train.py": "", "sub/": ""})
			if err := c.make(dir); err != nil {
				t.Fatal(err)
			}
			_, err := Scan(t.Context(), dir, Options{})
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v, want %q", err, c.want)
			}
			var h interface{ Hint() string }
			if c.hint != "" && (!errors.As(err, &h) || !strings.Contains(h.Hint(), c.hint)) {
				t.Errorf("%v has no hint with %q", err, c.hint)
			}
			// Excluded entries may be of any type.
			write(t, dir, map[string]string{".plxignore": "/sub/\n/link\n"})
			scan(t, dir)
		})
	}
	if _, err := Scan(t.Context(), filepath.Join(t.TempDir(), "none"), Options{}); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("no folder: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	write(t, filepath.Dir(file), map[string]string{"file": ""})
	if _, err := Scan(t.Context(), file, Options{}); err == nil || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("a file: %v", err)
	}
}

// root can read every file, so the scan runs as another user.
func TestScanRefusesUnreadableFiles(t *testing.T) {
	if dir := os.Getenv("TREE_TEST_SCAN"); dir != "" {
		_, err := Scan(t.Context(), dir, Options{})
		fmt.Println("scanned:", err)
		return
	}
	dir, err := os.MkdirTemp("/tmp", "plx-tree-") // not t.TempDir, which other users cannot enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	write(t, dir, map[string]string{"ok": "", "secret/": "", "sub/closed": ""})
	for p, mode := range map[string]os.FileMode{"": 0o755, "sub/closed": 0, "secret": 0} {
		if err := os.Chmod(filepath.Join(dir, p), mode); err != nil {
			t.Fatal(err)
		}
	}
	binary, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Skip("only on Linux") // other systems use the same code
	}
	test := filepath.Join(dir, "ok")
	if err := errors.Join(executable.Write(test, binary, 0o755), os.Chmod(test, 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2 files, links or folders in it cannot be sent:\nsecret: permission denied\nsub/closed: permission denied", "sub/closed: permission denied"} {
		cmd := exec.Command(test, "-test.run", "^TestScanRefusesUnreadableFiles$")
		cmd.Env, cmd.Dir = append(os.Environ(), "TREE_TEST_SCAN="+dir), "/"
		if os.Getuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		}
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "scanned: "+want+"\n") {
			t.Errorf("%v: %s; want %q", err, out, want)
		}
		if err := os.Remove(filepath.Join(dir, "secret")); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
}

// Scan uses a cached hash if, and only if, the file is unchanged.
func TestCacheIsUsedOnlyForUnchangedFiles(t *testing.T) {
	dir, cache := t.TempDir(), filepath.Join(t.TempDir(), "hashes")
	write(t, dir, map[string]string{"a": "1", "b": "2"})
	sum := func(p string) Sum {
		t.Helper()
		f, err := Scan(t.Context(), dir, Options{Cache: cache})
		if err != nil {
			t.Fatal(err)
		}
		e, _ := f.Find(p)
		return e.Sum
	}
	first := sum("a")
	// The hashes of files that have just changed are not cached.
	if c := openCache(cache, dir); len(c.before) != 0 {
		t.Errorf("kept hashes of files that have just changed: %v", c.before)
	}
	c := openCache(cache, dir)
	for p, fake := range map[string]Sum{"a": {1}, "b": {2}} {
		info, err := os.Lstat(filepath.Join(dir, p))
		if err != nil {
			t.Fatal(err)
		}
		c.keep(p, info, time.Now().Add(time.Hour), content{sum: fake})
	}
	if err := c.save(); err != nil {
		t.Fatal(err)
	}
	if got := sum("a"); got != (Sum{1}) {
		t.Errorf("the hash of an unchanged file was computed again: %s", got)
	}
	// Change the content, and keep size and modification time.
	info, err := os.Stat(filepath.Join(dir, "a"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, map[string]string{"a": "3"})
	if err := os.Chtimes(filepath.Join(dir, "a"), info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	if got := sum("a"); got == (Sum{1}) || got == first {
		t.Errorf("the hash of a changed file is the old one")
	}
	if got := sum("b"); got != (Sum{2}) {
		t.Errorf("the hash of an unchanged file was computed again: %s", got)
	}
	if err := os.WriteFile(c.file, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := sum("a"); got == first {
		t.Error("a damaged cache gave an old hash")
	}
}

// Count has the files that Scan has read and those whose hash was cached.
func TestCountReportsProgress(t *testing.T) {
	dir, cache := t.TempDir(), t.TempDir()
	write(t, dir, map[string]string{"a": "four", "sub/b": "123456", "empty": ""})
	for _, what := range []string{"first", "second"} {
		count := new(Count)
		if _, err := Scan(t.Context(), dir, Options{Cache: cache, Count: count}); err != nil {
			t.Fatal(err)
		}
		if found, read, bytes := count.Now(); found != 3 || read != 3 || bytes != 10 {
			t.Errorf("%s Scan: found %d, read %d files and %d bytes", what, found, read, bytes)
		}
	}
}
