package transporttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/plx-run/plx/launcher/transport"
)

// copiesNothing reports whether the transport has no way to copy files. Then it has read and
// written nothing.
func copiesNothing(t *testing.T, conn transport.Transport) bool {
	t.Helper()
	path, source := filepath.Join(t.TempDir(), "f"), strings.NewReader("x")
	err := conn.Copy(t.Context(), source, 1, path, 0o600)
	if err != transport.ErrNoCopy {
		return false
	}
	if _, err := os.Stat(path); err == nil || source.Len() != 1 {
		t.Error("it has copied, or read, something")
	}
	return true
}

// testCopy proves that files arrive whole, under the name and mode asked for.
func testCopy(t *testing.T, open func(*testing.T) transport.Transport) {
	conn := opened(t, open)
	if copiesNothing(t, conn) {
		return
	}
	names := []string{"plain", "with space", "-dash", "quote'\"$`\\!", "line\nbreak", strings.Repeat("n", 250), "ü\xff", "*"}
	for i, name := range names {
		t.Run(fmt.Sprintf("name %d", i), func(t *testing.T) {
			copyAndCheck(t, conn, filepath.Join(t.TempDir(), name), noise(3, 1000), 0o644)
		})
	}
	for _, size := range []int{0, 1, 32768, 32769, 3 << 20} {
		t.Run(fmt.Sprintf("size %d", size), func(t *testing.T) {
			copyAndCheck(t, conn, filepath.Join(t.TempDir(), "f"), noise(4, size), 0o600)
		})
	}
	for _, mode := range []fs.FileMode{0o400, 0o500, 0o600, 0o640, 0o755, 0o777} {
		t.Run(fmt.Sprintf("mode %o", mode), func(t *testing.T) {
			copyAndCheck(t, conn, filepath.Join(t.TempDir(), "f"), []byte("x"), mode)
		})
	}
	t.Run("overwrite", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "f")
		copyAndCheck(t, conn, path, noise(5, 100000), 0o400)
		copyAndCheck(t, conn, path, []byte("short"), 0o700)
	})
	t.Run("over a program that runs", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "program")
		program, err := os.ReadFile("/bin/sleep")
		if err != nil {
			t.Fatal(err)
		}
		copyAndCheck(t, conn, path, program, 0o755)
		output := newStarted()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() {
			ended <- conn.Run(ctx, quote(path)+" 60 & echo started; read -r line; kill $!", neverEnds(t), output, nil)
		}()
		within(t, "the start", func() { <-output.first })
		copyAndCheck(t, conn, path, program, 0o755)
		cancel()
		<-ended
	})
	t.Run("at once to one name", func(t *testing.T) { testCopyRace(t, conn) })
}

// copyAndCheck copies data and looks at what is in the folder after.
func copyAndCheck(t *testing.T, conn transport.Transport, path string, data []byte, mode fs.FileMode) {
	t.Helper()
	// Only the reader's own methods: Copy may not rely on a length or a seek.
	source := struct{ io.Reader }{bytes.NewReader(data)}
	if err := conn.Copy(t.Context(), source, int64(len(data)), path, mode); err != nil {
		t.Fatalf("copy: %v", err)
	}
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes arrived of %d, or others; %v", len(got), len(data), err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != mode {
		t.Errorf("mode %v, want %v; %v", info.Mode(), mode, err)
	}
	checkAlone(t, path)
}

// checkAlone fails when there is more than the file itself in its folder.
func checkAlone(t *testing.T, paths ...string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(paths[0]))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), ".tmp") {
			t.Errorf("%s was left behind", entry.Name())
		}
	}
}

func testCopyRace(t *testing.T, conn transport.Transport) {
	path := filepath.Join(t.TempDir(), "f")
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			data := bytes.Repeat([]byte{byte('a' + i)}, 100_000)
			if err := conn.Copy(t.Context(), bytes.NewReader(data), int64(len(data)), path, 0o644); err != nil {
				t.Errorf("copy %d: %v", i, err)
			}
		})
	}
	all.Wait()
	got, err := os.ReadFile(path)
	if err != nil || len(got) != 100_000 || !bytes.Equal(got, bytes.Repeat(got[:1], len(got))) {
		t.Errorf("the file is a mixture, %d bytes, %v", len(got), err)
	}
	checkAlone(t, path)
}

// testCopyFailure proves that a copy that fails says why and leaves what was.
func testCopyFailure(t *testing.T, open func(*testing.T) transport.Transport) {
	conn := opened(t, open)
	if copiesNothing(t, conn) {
		return
	}
	cases := []struct {
		name   string
		path   func(t *testing.T) string
		size   int64
		source string
		want   error
	}{
		{"no folder", func(t *testing.T) string { return filepath.Join(t.TempDir(), "none", "f") }, 1, "x", fs.ErrNotExist},
		{"onto a folder", func(t *testing.T) string { return t.TempDir() }, 1, "x", nil},
		{"short source", newFile, 10, "x", io.ErrUnexpectedEOF},
		{"long source", newFile, 1, "xyz", nil},
		{"read-only", func(t *testing.T) string { return mounted(t, "ro") }, 1, "x", syscall.EROFS},
		{"full", func(t *testing.T) string { return mounted(t, "size=64k") }, 1 << 20, strings.Repeat("x", 1<<20), syscall.ENOSPC},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			path := c.path(t)
			err := conn.Copy(t.Context(), strings.NewReader(c.source), c.size, path, 0o644)
			if err == nil || (c.want != nil && !errors.Is(err, c.want)) {
				t.Fatalf("copy: %v, want %v", err, c.want)
			}
			if !strings.Contains(err.Error(), path) {
				t.Errorf("%v: the path is missing", err)
			}
			if data, err := os.ReadFile(path); err == nil && string(data) != "before" {
				t.Errorf("the file that was there is now %q", data)
			}
			if _, err := os.Stat(filepath.Dir(path)); err == nil {
				checkAlone(t, path)
			}
		})
	}
	t.Run("cancel", func(t *testing.T) {
		path := newFile(t)
		ctx, cancel := context.WithCancel(t.Context())
		source := io.MultiReader(strings.NewReader("x"), canceller{cancel}, neverEnds(t))
		within(t, "the return after cancel", func() {
			if err := conn.Copy(ctx, source, 1000, path, 0o644); !errors.Is(err, context.Canceled) {
				t.Errorf("copy: %v, want %v", err, context.Canceled)
			}
		})
		checkAlone(t, path)
	})
}

// canceller cancels when it is read.
type canceller struct{ cancel func() }

func (c canceller) Read([]byte) (int, error) {
	c.cancel()
	return 0, io.EOF
}

// newFile returns a file that has content already.
func newFile(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// mounted returns a name in a file system of its own.
func mounted(t *testing.T, options string) string {
	if os.Getuid() != 0 {
		t.Skip("needs root, to mount a file system")
	}
	folder := t.TempDir()
	if err := syscall.Mount("tmpfs", folder, "tmpfs", 0, strings.TrimPrefix(options, "ro")); err != nil {
		t.Fatalf("mount: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(folder, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	if options == "ro" {
		if err := syscall.Mount("tmpfs", folder, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
			t.Fatalf("remount: %v", err)
		}
	}
	return filepath.Join(folder, "f")
}
