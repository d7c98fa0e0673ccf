package envsync

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/plx-run/plx/internal/executable"
	"github.com/plx-run/plx/internal/patience"
)

// localHost is a host whose home is a folder here.
type localHost struct {
	home string
	env  []string
	// before is a shell script that runs before each script.
	before string
	// sent counts the bytes that Copy took, runs the scripts.
	sent, runs atomic.Int64
	// copyFault, if set, stands between Copy's reader and the file.
	copyFault func(io.Reader) io.Reader
	// down makes every call fail, as of a host that is gone.
	down atomic.Bool
}

var errGone = errors.New("connection lost")

func newHost(t testing.TB) *localHost {
	t.Helper()
	return &localHost{home: t.TempDir()}
}

func (h *localHost) Run(ctx context.Context, command string, stdin io.Reader, stdout, stderr io.Writer) error {
	h.runs.Add(1)
	if h.down.Load() {
		return errGone
	}
	c := exec.CommandContext(ctx, "sh", "-c", h.before+command)
	c.Dir = h.home
	c.Env = append([]string{"HOME=" + h.home, "PATH=" + os.Getenv("PATH")}, h.env...)
	c.Stdin, c.Stdout, c.Stderr = stdin, stdout, stderr
	c.WaitDelay = patience.Limit // a hundred hosts at once on a busy machine are slow
	return c.Run()
}

func (h *localHost) Copy(ctx context.Context, r io.Reader, size int64, path string, mode fs.FileMode) error {
	if h.down.Load() {
		return errGone
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(h.home, path)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".copy-*")
	if err != nil {
		return err
	}
	if h.copyFault != nil {
		r = h.copyFault(r)
	}
	n, err := io.Copy(f, &contextReader{ctx, r})
	h.sent.Add(n)
	if err == nil && n != size {
		err = fmt.Errorf("%d of %d bytes", n, size)
	}
	if err = errors.Join(err, f.Chmod(mode), f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return os.Rename(f.Name(), path)
}

// blob returns what a host has under a blob's name.
func (h *localHost) blob(t *testing.T, b Blob) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(h.home, BlobPath(b.Sum)))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// leftovers are the files in the blobs' folder that are no blobs.
func (h *localHost) leftovers(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(h.home, ".plx/blobs/.*"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// smallHome mounts a file system of its own over a host's home. It needs the
// right to mount.
func smallHome(t *testing.T, size string) *localHost {
	t.Helper()
	h := newHost(t)
	if err := syscall.Mount("plx-test", h.home, "tmpfs", 0, "size="+size+",mode=700"); err != nil {
		t.Skipf("needs root, to mount a small file system: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(h.home, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return h
}

func makeReadOnly(t *testing.T, h *localHost) {
	t.Helper()
	if err := syscall.Mount("plx-test", h.home, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
}

// withPrograms gives a host a PATH of its own with only some of the programs
// there are here, and scripts in the place of others.
func withPrograms(t *testing.T, h *localHost, real []string, scripts map[string]string) {
	t.Helper()
	bin := t.TempDir()
	for _, name := range real {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, script := range scripts {
		if err := executable.Write(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	h.env = append(h.env, "PATH="+bin)
}

// failAfter is a reader that breaks off after n bytes.
func failAfter(n int64, err error) func(io.Reader) io.Reader {
	return func(r io.Reader) io.Reader {
		return io.MultiReader(io.LimitReader(r, n), readerFunc(func([]byte) (int, error) { return 0, err }))
	}
}

// flipByte is a reader that damages one byte.
func flipByte(r io.Reader) io.Reader {
	var once sync.Once
	return readerFunc(func(p []byte) (int, error) {
		n, err := r.Read(p)
		if n > 0 {
			once.Do(func() { p[n/2] ^= 1 })
		}
		return n, err
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// programBlob is a program that cannot be compressed.
func programBlob(t *testing.T, size int) (Blob, []byte) {
	t.Helper()
	content := make([]byte, size)
	random := rand.NewChaCha8([32]byte{})
	random.Read(content)
	return programOf(t, content), content
}

func programOf(t *testing.T, content []byte) Blob {
	t.Helper()
	path := filepath.Join(t.TempDir(), "train")
	if err := os.WriteFile(path, content, 0o755); err != nil {
		t.Fatal(err)
	}
	b, err := FileBlob(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// contextReader ends a copy when ctx ends.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
