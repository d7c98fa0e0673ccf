package bootstrap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/internal/test/executable"
	"github.com/plx-run/plx/internal/test/patience"
)

// The first run sends plx and later runs do not, with any shell and any way to
// pass the script to it.
func TestExistingBinaryIsNotSentAgain(t *testing.T) {
	compound := func(script string) string { return "{\n" + script + "}\n" }
	for name, h := range map[string]*host{
		"sh":          {},
		"banner":      {before: "echo Welcome; echo; printf 'no line feed: '\n"},
		"dash":        {shell: []string{"dash", "-c"}},
		"bash":        {shell: []string{"bash", "--posix", "-c"}},
		"busybox":     {shell: []string{"busybox", "sh", "-c"}},
		"dash, stdin": {shell: []string{"dash"}, stdin: compound},
		"bash, stdin": {shell: []string{"bash"}, stdin: compound},
	} {
		t.Run(name, func(t *testing.T) {
			if h.shell != nil {
				if _, err := exec.LookPath(h.shell[0]); err != nil {
					t.Skip(err)
				}
			}
			h.home = t.TempDir()
			b, content := plxBlob(t, 300_000, true)
			c := giving(b)
			last, told := int64(-1), 0
			c.Progress = func(host, blob string, sent, total int64) { // the size first, then every piece
				if told++; host != "h" || blob != "plx" || total != b.Size || sent <= last || told == 1 && sent != 0 {
					t.Errorf("%s %s %d of %d after %d", host, blob, sent, total, last)
				}
				last = sent
			}
			h.must(t, c, true)
			if last != b.Size {
				t.Errorf("progress ends at %d", last)
			}
			if got, err := os.ReadFile(h.path(b)); err != nil || !bytes.Equal(got, content) {
				t.Errorf("the content differs: %v", err)
			}
			for _, path := range []string{".plx", ".plx/blobs", envsync.BlobPath(b.Sum)} {
				if info, err := os.Stat(filepath.Join(h.home, path)); err != nil || info.Mode().Perm() != 0o700 {
					t.Errorf("%s: %v %v", path, info, err)
				}
			}
			h.must(t, giving(b), false)
			h.must(t, strict(giving(b)), false)
		})
	}
}

// An existing binary is hashed only with Strict, or if it is not executable.
func TestExistingBinaryRuns(t *testing.T) {
	b, content := plxBlob(t, 1000, true)
	log := filepath.Join(t.TempDir(), "hashed")
	h := newHost(t).withPrograms(t, tools, map[string]string{"sha256sum": "echo x >>" + log + "\nPATH=" + os.Getenv("PATH") + "\nexec sha256sum\n"})
	for _, c := range []struct {
		name    string
		mode    fs.FileMode
		content []byte
		strict  bool
		hashed  string
		sends   bool
	}{
		{"right", 0o700, content, false, "", false},
		{"right, strict", 0o700, content, true, "x\n", false},
		{"other content", 0o700, content[:100], false, "", false},
		{"no permission", 0o600, content, false, "x\n", false},
		{"no permission, other content", 0o600, content[:100], false, "x\nx\nx\n", true},
		{"other content, strict", 0o700, content[:100], true, "x\nx\nx\n", true},
	} {
		if err := firstError(os.RemoveAll(h.home+"/.plx"), os.RemoveAll(log)); err != nil {
			t.Fatal(err)
		}
		h.put(t, b, c.content, c.mode)
		config := giving(b)
		config.Strict = c.strict
		h.must(t, config, c.sends)
		if hashed, err := os.ReadFile(log); string(hashed) != c.hashed || err != nil && !os.IsNotExist(err) {
			t.Errorf("%s: hashed %q, %v", c.name, hashed, err)
		}
	}
}

// The script flushes the new file before renaming it, and the directory after
// that.
func TestFlush(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	h := newHost(t).withPrograms(t, tools, map[string]string{"sync": `[ "$1" = --help ] && echo 'sync [FILE]...' || echo "$1" $(ls .plx/blobs) >>` + log})
	b, _ := plxBlob(t, 1000, true)
	h.must(t, giving(b), true)
	text, err := os.ReadFile(log)
	if lines := strings.Split(string(text), "\n"); err != nil || len(lines) != 3 || !strings.HasPrefix(lines[0], ".plx/blobs/.plx-") || strings.Contains(lines[0], " ") || lines[1] != ".plx/blobs "+b.Sum {
		t.Errorf("%q, %v", text, err)
	}
}

// A damaged plx binary is detected and replaced by rename, and the damaged
// file is not written to.
func TestDamagedBinaryIsReplaced(t *testing.T) {
	b, content := plxBlob(t, 5000, true)
	wrong := bytes.Repeat([]byte{'x'}, len(content))
	for name, damage := range map[string]func(h *host, path string) error{
		"empty":      func(_ *host, path string) error { return os.Truncate(path, 0) },
		"cut off":    func(_ *host, path string) error { return os.Truncate(path, b.Size-1) },
		"longer":     func(_ *host, path string) error { return rewrite(path, append(bytes.Clone(content), 'x'), 0o700) },
		"zeros":      func(_ *host, path string) error { return rewrite(path, make([]byte, len(content)), 0o700) },
		"other":      func(_ *host, path string) error { return rewrite(path, wrong, 0o700) },
		"unreadable": func(_ *host, path string) error { return rewrite(path, wrong, 0) },
		"folder": func(_ *host, path string) error {
			return firstError(os.Remove(path), os.MkdirAll(filepath.Join(path, "a/b"), 0o700))
		},
		"link to a folder": func(h *host, path string) error {
			return firstError(os.Remove(path), os.Mkdir(h.home+"/folder", 0o700), os.Symlink(h.home+"/folder", path))
		},
		"link to a file": func(h *host, path string) error {
			return firstError(os.Rename(path, h.home+"/kept"), os.Symlink(h.home+"/kept", path))
		},
		"link to nothing": func(_ *host, path string) error { return firstError(os.Remove(path), os.Symlink("nothing", path)) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.put(t, b, content, 0o700)
			if err := damage(h, h.path(b)); err != nil {
				t.Fatal(err)
			}
			before, _ := os.ReadFile(h.path(b))
			running, err := os.Open(h.path(b)) // shows later that the old file's content was not overwritten
			if err == nil {
				defer running.Close()
			}
			h.must(t, strict(giving(b)), true)
			info, failed := os.Lstat(h.path(b))
			if got, _ := os.ReadFile(h.path(b)); failed != nil || info.Mode() != 0o700 || !bytes.Equal(got, content) {
				t.Errorf("it was not replaced: %v %v", info, failed)
			}
			if is, failed := os.Stat(h.path(b)); err == nil && failed == nil && is.Mode().IsRegular() && len(before) > 0 {
				if still, err := io.ReadAll(running); err != nil || !bytes.Equal(still, before) {
					t.Errorf("the old file was changed in place: %v", err)
				}
			}
			if inside, _ := os.ReadDir(h.home + "/folder"); len(inside) != 0 {
				t.Errorf("it was moved into a folder: %v", inside)
			}
			h.must(t, strict(giving(b)), false)
		})
	}
	// A directory in the place of the binary that rm cannot remove, such as a
	// mount point.
	h := newHost(t).withPrograms(t, tools, map[string]string{"rm": "echo 'rm: cannot remove it: Device or resource busy' >&2\nexit 1\n"})
	if err := os.MkdirAll(h.path(b), 0o700); err != nil {
		t.Fatal(err)
	}
	err := h.refuses(t, giving(b))
	if want := fmt.Sprintf("send plx: %s is in the way of a file that plx sends: remove it", h.path(b)); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// rewrite overwrites an existing file in place.
func rewrite(path string, content []byte, mode fs.FileMode) error {
	return firstError(os.WriteFile(path, content, 0o700), os.Chmod(path, mode))
}

// nothing checks that the host has neither the plx binary nor temporary files
// of the script.
func (h *host) nothing(t *testing.T, b envsync.Blob, name string) {
	t.Helper()
	if _, err := os.Lstat(h.path(b)); err == nil || len(h.leftovers(t)) != 0 {
		t.Errorf("%s: left over: %v, %v", name, err, h.leftovers(t))
	}
}

func TestBinaryDamagedInTransferIsRejected(t *testing.T) {
	b, _ := plxBlob(t, 70_000, true)
	packs, _ := plxBlob(t, 200_000, false)
	other, _ := plxBlob(t, 200_002, false)
	for _, hashing := range []string{"sha256sum", "shasum", "openssl", ""} {
		t.Run("with "+hashing, func(t *testing.T) {
			real := append(without("sha256sum"), "perl", hashing)
			if hashing != "shasum" {
				real = without("sha256sum", hashing)
				if hashing != "" {
					real = append(real, hashing)
				}
			}
			h := newHost(t).withPrograms(t, real, nil)
			h.write = flipPayload
			h.refuses(t, giving(b), "send plx: its SHA-256 on the host is ", b.Sum)
			h.nothing(t, b, "the stream")
			h.refuses(t, giving(packs), "send plx: ")
			h.nothing(t, packs, "the stream, packed")
			h.write = nil
			by := giving(packs)
			by.Copy = func(ctx context.Context, r io.Reader, path string) error {
				packed, err := other.Packed()
				return firstError(err, h.copy(ctx, bytes.NewReader(packed), path))
			}
			h.refuses(t, by, "send plx: its SHA-256 on the host is ", packs.Sum)
			h.nothing(t, packs, "another file")
			by.Copy = func(ctx context.Context, r io.Reader, path string) error {
				packed, err := io.ReadAll(r)
				packed[len(packed)/2] ^= 1
				return firstError(err, h.copy(ctx, bytes.NewReader(packed), path))
			}
			h.must(t, by, true) // by the order
			for _, b := range []envsync.Blob{b, packs} {
				if err := os.RemoveAll(h.path(b)); err != nil {
					t.Fatal(err)
				}
				h.must(t, giving(b), true)
				h.must(t, giving(b), false)
			}
		})
	}
}

// If the connection breaks during the transfer, no part of the binary is left
// on the host.
func TestBrokenConnectionLeavesNoFiles(t *testing.T) {
	for _, random := range []bool{true, false} {
		b, _ := plxBlob(t, 400_000, random)
		h := newHost(t)
		h.write = func(s *shell, p []byte) (int, error) {
			if n, err := s.put(p[:min(len(p), 50_000)]); n == len(p) {
				return n, err
			}
			s.in.PipeWriter.Close()
			return 0, io.ErrClosedPipe
		}
		h.refuses(t, giving(b), "send plx: ")
		h.nothing(t, b, "half of it")
		h.write = nil
		h.must(t, giving(b), true) // the host is back
	}
}

// plx is sent compressed to a host that has gzip, and by sftp if possible.
func TestPacked(t *testing.T) {
	b, _ := plxBlob(t, 400_000, false)
	packed, err := b.Packed()
	if err != nil || packed == nil {
		t.Fatal(err)
	}
	whole, small := b.Size, int64(len(packed))
	for _, c := range []struct {
		name    string
		tools   []string
		scripts map[string]string
		copy    error // result of Config.Copy; errNone means that Copy is nil
		copies  int
		sent    int64 // upper bound of the bytes on the stream
		err     string
	}{
		{"gzip", tools, nil, errNone, 0, small, ""},
		{"no gzip", without("gzip"), nil, nil, 0, whole, ""},
		// If the host stops reading, its error message is returned at once,
		// even if the stream buffers nothing, as over SSH.
		{"broken gzip", tools, map[string]string{"gzip": "echo broken >&2\nexit 3\n"}, errNone, 0, 0, "send plx: broken"},
		{"broken gzip, file", tools, map[string]string{"gzip": "echo broken >&2\nexit 3\n"}, nil, 1, 0, "send plx: broken"},
		{"file", tools, nil, nil, 1, 0, ""},
		{"file that fails", tools, nil, errors.New("no sftp"), 1, small, ""},
		{"failure", tools, map[string]string{"df": "echo Filesystem 1024-blocks Used Available Capacity Mounted; echo /dev/sda1 100000 97952 48 98% /home\n", "gzip": "echo no room >&2\nexit 3\n"}, nil, 1, 0, "send plx: the home folder's file system has 0 MiB left and 1 MiB are needed: no room"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t).withPrograms(t, c.tools, c.scripts)
			config, copies, last := giving(b), 0, int64(0)
			if c.copy != errNone {
				config.Copy = func(ctx context.Context, r io.Reader, path string) error {
					if copies++; c.copy != nil {
						return firstError(c.copy, os.WriteFile(path, []byte("a part"), 0o600))
					}
					return h.copy(ctx, r, path)
				}
			}
			config.Progress = func(_, _ string, sent, _ int64) { last = sent }
			said, sh, err := h.run(t, t.Context(), config)
			if c.err == "" && (err != nil || said != ran) || c.err != "" && (err == nil || !strings.HasPrefix(err.Error(), c.err)) {
				t.Errorf("%q, %v, want %q", said, err, c.err)
			}
			if n := sh.sent.Load(); copies != c.copies || c.err == "" && (n < c.sent || n > c.sent+1000 || last != max(c.sent, small)) {
				t.Errorf("%d bytes were sent, %d copies, progress ends at %d", n, copies, last)
			}
			if left := h.leftovers(t); len(left) != 0 {
				t.Errorf("left over: %v", left)
			}
		})
	}
}

var errNone = errors.New("no Copy")

func TestFullHome(t *testing.T) {
	b, _ := plxBlob(t, 2<<20, false)
	h := smallHome(t, 0, "256k")
	h.refuses(t, giving(b), "send plx: the home folder's file system has ", "MiB left and 3 MiB are needed: ", "No space left on device")
	h.nothing(t, b, "the stream")
	byFile := giving(b)
	byFile.Copy = h.copy
	var refused *RefusedError
	if err := h.refuses(t, byFile, "send plx: the home folder's file system has ", "MiB left and 3 MiB are needed: ", "No space left on device"); !errors.As(err, &refused) {
		t.Errorf("%v", err)
	}
	h.nothing(t, b, "the file")
	// The disk is completely full: not even the name of the file system can be
	// written.
	fill, err := os.Create(filepath.Join(h.home, "fill"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fill.Write(make([]byte, 1<<20)); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	if err := fill.Close(); err != nil {
		t.Fatal(err)
	}
	if err := h.refuses(t, giving(b), "No space left"); err == nil || !strings.HasPrefix(err.Error(), "the home folder's file system is full: ") {
		t.Errorf("%v", err)
	}
	h.nothing(t, b, "full")
}

// The disk has room for plx, but not also for its compressed file: plx is sent
// over the script's session.
func TestNearlyFullDiskHoldsBinary(t *testing.T) {
	b, _ := plxBlob(t, 4<<20, false)
	shells(t, func(t *testing.T, shell []string) {
		h := smallHome(t, 0, "5m")
		h.shell = shell
		c, copied := giving(b), false
		c.Copy = func(ctx context.Context, r io.Reader, path string) error {
			copied = true
			return h.copy(ctx, r, path)
		}
		h.must(t, c, true)
		if !copied {
			t.Error("no file was sent")
		}
	})
}

// shells runs test with each shell that may be a host's /bin/sh.
func shells(t *testing.T, test func(t *testing.T, shell []string)) {
	for _, words := range [][]string{{"dash", "-c"}, {"bash", "--posix", "-c"}, {"busybox", "sh", "-c"}} {
		t.Run(words[0], func(t *testing.T) {
			if _, err := exec.LookPath(words[0]); err != nil {
				t.Skip(err)
			}
			test(t, words)
		})
	}
}

func TestReadOnlyHome(t *testing.T) {
	b, _ := plxBlob(t, 1000, true)
	shells(t, func(t *testing.T, shell []string) {
		for _, lived := range []bool{false, true} {
			h := smallHome(t, 0, "1m")
			if h.shell = shell; lived {
				h.must(t, giving(b), true)
				if err := os.Remove(h.path(b)); err != nil {
					t.Fatal(err)
				}
			}
			if err := syscall.Mount("plx-test", h.home, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
				t.Fatal(err)
			}
			// busybox prints "chmod: .plx: Read-only file system".
			if err := h.refuses(t, giving(b)); err == nil || !strings.HasPrefix(err.Error(), "the home folder is read-only: ") {
				t.Errorf("%v", err)
			}
		}
	})
}

func TestNoExec(t *testing.T) {
	b, content := plxBlob(t, 1000, true)
	shells(t, func(t *testing.T, shell []string) {
		h := smallHome(t, syscall.MS_NOEXEC, "1m")
		if shell[0] == "busybox" { // its [ -x ] ignores noexec mounts, so only the failed exec shows the problem
			h.put(t, b, content, 0o700)
			cmd := exec.Command(shell[0], append(shell[1:], New(Config{Expected: b}).Script())...)
			cmd.Env = []string{"HOME=" + h.home, "PATH=" + os.Getenv("PATH")}
			out, err := cmd.Output()
			if !strings.Contains(string(out), " runs ") || cmd.ProcessState.ExitCode() != 126 {
				t.Errorf("%q, %v", out, err)
			}
			return
		}
		h.shell = shell
		var refused *RefusedError
		if err := h.refuses(t, giving(b), h.home+" is mounted noexec; mount it without"); !errors.As(err, &refused) {
			t.Errorf("%v", err)
		}
		h.put(t, b, content, 0o700)
		c := giving(b)
		c.Agent = nil
		for _, c := range []Config{giving(b), strict(giving(b)), c} {
			if err := h.refuses(t, c); err == nil || !strings.HasPrefix(err.Error(), "programs in ~/.plx cannot be executed: "+h.home+" is mounted noexec; ") {
				t.Errorf("%v", err)
			}
		}
	})
}

// An error message from the host is explained to the user.
func TestHomeTrouble(t *testing.T) {
	b, _ := plxBlob(t, 1000, true)
	for said, want := range map[string]string{
		"cat: write error: No space left on device": "the home folder's file system is full: cat: write error: No space left on device",
		"cat: write error: Disk quota exceeded":     "the home folder's quota is used up: cat: write error: Disk quota exceeded",
		"cat: Stale file handle":                    "the home folder's file server has lost it: cat: Stale file handle",
		"cat: two\n\n  *  lines":                    "cat: two * lines",
	} {
		h := newHost(t)
		h.before = "printf() { [ \"$1\" != '%s\\n' ] || return 1; command printf \"$@\"; }\n" // as if no file could be written
		h.withPrograms(t, tools, map[string]string{"cat": "echo '" + said + "' >&2; exit 1\n"})
		if err := h.refuses(t, giving(b)); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// If a shell cannot start processes, the error names its process limit.
func TestProcessLimitIsReported(t *testing.T) {
	b, _ := plxBlob(t, 1000, true)
	for _, said := range []string{"sh: fork: retry: Resource temporarily unavailable sh: fork: Resource temporarily unavailable", "sh: 135: Cannot fork"} {
		for limit, want := range map[string]string{
			"77":        "plx cannot start there: the shell limits the number of processes to 77 (ulimit -u)",
			"unlimited": said,
		} {
			h := newHost(t)
			h.before = "ulimit() { echo " + limit + "; }\nmkdir() { echo '" + said + "' >&2; return 1; }\n"
			var refused *RefusedError
			if err := h.refuses(t, giving(b)); !errors.As(err, &refused) || refused.Text != want || refused.Limited != (limit == "77") {
				t.Errorf("%s: %v, want %s", limit, err, want)
			}
		}
	}
}

// If something is in the way of ~/.plx, a one-line error names it and says
// what to do.
func TestObstacleInHomeIsReported(t *testing.T) {
	b, _ := plxBlob(t, 1000, true)
	const file, link = " is not a folder: remove or rename it, then plx makes its own",
		" is a link to a folder that is not there: make that folder, or remove the link"
	for _, c := range []struct{ target, path, want string }{
		{"", ".plx", file},
		{"", ".plx/blobs", file},
		{"nothing", ".plx", link},
		{"nothing", ".plx/blobs", link},
		{".plx", ".plx", link},
	} {
		h := newHost(t)
		path := filepath.Join(h.home, c.path)
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if c.target == "" {
			err = firstError(err, os.WriteFile(path, nil, 0o600))
		} else {
			err = firstError(err, os.Symlink(c.target, path))
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := h.refuses(t, giving(b)); err == nil || err.Error() != path+c.want {
			t.Errorf("%+v: %v", c, err)
		}
	}
	// ~/.plx may be a symbolic link to a directory.
	h := newHost(t)
	if err := os.Symlink(t.TempDir(), filepath.Join(h.home, ".plx")); err != nil {
		t.Fatal(err)
	}
	h.must(t, giving(b), true)
	// Another launch may create the directory just before mkdir, which is no
	// error.
	h = newHost(t).withPrograms(t, tools, map[string]string{"mkdir": "/bin/mkdir \"$2\"\necho \"mkdir: cannot create directory '$2': File exists\" >&2\nexit 1\n"})
	h.must(t, giving(b), true)
}

// fsid returns the file system name that the script has reported.
func fsid(t *testing.T, s *shell) string {
	t.Helper()
	_, after, _ := strings.Cut(s.heard.String(), " lacks ")
	words := strings.Fields(after)
	if len(words) < 4 || !fileSystemName().MatchString(words[2]) {
		t.Errorf("it has said %q", s.heard.String())
		return ""
	}
	return words[2]
}

func TestFileSystemName(t *testing.T) {
	b, _ := plxBlob(t, 1000, true)
	for name, h := range map[string]*host{"links": newHost(t), "no links": newHost(t).withPrograms(t, tools, map[string]string{"ln": "exit 1\n"})} {
		first := fsid(t, h.must(t, giving(b), true))
		again := fsid(t, h.must(t, strict(giving(blobOf(t, []byte("#!/bin/sh\necho ran $*\ncat\n")))), false))
		if text, err := os.ReadFile(h.home + "/.plx/fsid"); err != nil || first != again || string(text) != first+"\n" {
			t.Errorf("%s: it was %s and is %s: %q, %v", name, first, again, text, err)
		}
		if err := firstError(os.Truncate(h.home+"/.plx/fsid", 0), os.Remove(h.path(b))); err != nil { // a full disk
			t.Fatal(err)
		}
		if third := fsid(t, h.must(t, giving(b), true)); third == first {
			t.Errorf("%s: an empty file has the name %s", name, third)
		}
		if err := firstError(os.WriteFile(h.home+"/.plx/fsid", []byte("garbage\n"), 0o600), os.Remove(h.path(b))); err != nil {
			t.Fatal(err)
		}
		if err := h.refuses(t, giving(b)); err == nil || err.Error() != `~/.plx/fsid on the host is damaged ("garbage"): remove it` {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Many hosts and launches that share a home directory start at the same
// moment.
func TestParallelRunsInSharedHome(t *testing.T) {
	b, _ := plxBlob(t, 100_000, true)
	h, other := newHost(t), newHost(t)
	shells := make([]*shell, 16)
	var wait sync.WaitGroup
	for i := range shells {
		wait.Go(func() {
			said, sh, err := h.run(t, t.Context(), strict(giving(b)))
			if shells[i] = sh; err != nil || said != ran {
				t.Errorf("%q, %v", said, err)
			}
		})
	}
	wait.Wait()
	names := map[string]bool{fsid(t, other.must(t, giving(b), true)): true}
	for _, sh := range shells {
		if strings.Contains(sh.heard.String(), " lacks ") { // otherwise another session was faster
			names[fsid(t, sh)] = true
		}
	}
	if left := h.leftovers(t); len(names) != 2 || len(left) != 0 {
		t.Errorf("they do not agree: %v, left over: %v", names, left)
	}
}

func TestNoHome(t *testing.T) {
	b, _ := plxBlob(t, 1000, true)
	for before, want := range map[string]string{
		"unset HOME\n": `the shell there has no home: HOME=""`, "HOME=home\n": `the shell there has no home: HOME="home"`,
		"HOME='/no such/folder'\n": "the home folder /no such/folder is not there",
		// "plx: " inside a message does not mark an explanation of the script.
		"HOME=/nosuch/plx\n": "the home folder /nosuch/plx is not there",
	} {
		h := newHost(t)
		h.before = before
		var refused *RefusedError
		if err := h.refuses(t, giving(b)); !errors.As(err, &refused) || refused.Homeless != strings.HasPrefix(want, "the shell") || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestExistingBinaryRunsWithoutAgent(t *testing.T) {
	b, content := plxBlob(t, 1000, true)
	h, c := newHost(t), Config{Expected: b}
	if err := h.refuses(t, c); !errors.Is(err, ErrMissing) {
		t.Errorf("%v", err)
	}
	if err := h.refuses(t, Config{}); !errors.Is(err, ErrMissing) {
		t.Errorf("%v", err)
	}
	if _, err := os.Lstat(h.home + "/.plx"); err == nil {
		t.Error("it has made ~/.plx")
	}
	for _, mode := range []fs.FileMode{0o700, 0o600} {
		h.put(t, b, content, mode)
		h.must(t, c, false)
	}
}

// The host may have another platform than expected, or the expected binary may
// be unknown.
func TestUnexpectedPlatformGetsItsBinary(t *testing.T) {
	guess, _ := plxBlob(t, 2000, true)
	b, _ := plxBlob(t, 3000, true)
	for _, guess := range []envsync.Blob{guess, {}} {
		h := newHost(t)
		for _, sends := range []bool{true, false} {
			asked := envsync.Platform{}
			s := New(Config{Args: "agent start", Expected: guess, Agent: func(_ context.Context, p envsync.Platform) (envsync.Blob, error) {
				asked = p
				return b, nil
			}})
			sh := h.start(t, s.Script())
			if err := s.Run(t.Context(), sh); err != nil {
				t.Fatal(err)
			}
			if said := h.finish(t, sh); said != ran || s.Plx.Sum != b.Sum || sh.sent.Load() > 1000 != sends || asked != (envsync.Platform{OS: runtime.GOOS, Arch: runtime.GOARCH}) {
				t.Errorf("%q from %s, sent %d bytes to %v", said, s.Plx.Sum, sh.sent.Load(), asked)
			}
		}
	}
	c := giving(b)
	c.Agent = func(context.Context, envsync.Platform) (envsync.Blob, error) { return envsync.Blob{}, errNone }
	h := newHost(t)
	if err := h.refuses(t, c); err != errNone {
		t.Errorf("%v", err)
	}
	h.nothing(t, b, "no plx for it")
}

func TestShellsThatDoNotAnswer(t *testing.T) {
	b, _ := plxBlob(t, 1000, true)
	var stuck *NoReplyError
	silent := giving(b)
	silent.Begin = 50 * time.Millisecond
	for name, c := range map[string]struct {
		host   *host
		config Config
		err    error
		last   string
	}{
		"silent":   {&host{before: "echo 'Please wait'\ncat >/dev/null\nexit\n"}, silent, ErrStart, "Please wait"},
		"noise":    {&host{before: "yes | head -c 1100000\n"}, giving(b), ErrNoise, "y"},
		"ends":     {&host{before: "echo 'No login'\nexit 1\n"}, giving(b), io.EOF, "No login"},
		"terminal": {&host{shell: []string{"cat"}, stdin: func(s string) string { return s }}, giving(b), ErrEcho, ""},
	} {
		c.host.home = t.TempDir()
		err := c.host.refuses(t, c.config)
		if !errors.Is(err, c.err) || name != "terminal" && (!errors.As(err, &stuck) || stuck.Last != c.last) {
			t.Errorf("%s: %v, last %q", name, err, stuck.Last)
		}
	}
}

func TestCancel(t *testing.T) {
	why := errors.New("the user has had enough")
	for _, random := range []bool{true, false} {
		b, _ := plxBlob(t, 4<<20, random)
		ctx, cancel := context.WithCancelCause(t.Context())
		h := newHost(t)
		h.write = func(s *shell, p []byte) (int, error) {
			if len(p) > 1000 {
				cancel(why)
			}
			return s.put(p)
		}
		if _, _, err := h.run(t, ctx, giving(b)); err != why {
			t.Errorf("%v", err)
		}
		h.nothing(t, b, "cancelled") // SIGPIPE ends the script, after the script has removed the received file
	}
}

// The host neither replies nor reads.
func TestCancelOfStalledTransfer(t *testing.T) {
	why := errors.New("the user has had enough")
	b, _ := plxBlob(t, 1000, true)
	for name, says := range map[string]string{"silent": "", "deaf": "WORD lacks Linux x86_64 " + strings.Repeat("0a", 16) + " /home\nWORD tools gzip\n"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		s := New(giving(b))
		fake := &fake{out: strings.NewReader(strings.ReplaceAll(says, "WORD", s.Marker)), end: make(chan struct{}), wait: func() { cancel(why) }}
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx, fake) }()
		select { // a blocked write of an order also ends when ctx is canceled
		case err := <-done:
			if err != why {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(patience.Limit):
			t.Errorf("%s: it does not end", name)
			fake.Cancel(why)
		}
	}
}

// If the file transfer over the second session stalls, plx is sent over the
// script's session.
func TestStalledUploadFallsBackToShell(t *testing.T) {
	b, _ := plxBlob(t, 400_000, false)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Hour, errors.New("it stands still for ever"))
		defer cancel()
		c := giving(b)
		c.Copy = func(ctx context.Context, _ io.Reader, _ string) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		s := New(c)
		host := &fake{out: strings.NewReader(strings.ReplaceAll(lacks+"WORD runs\n", "WORD", s.Marker)), end: make(chan struct{})}
		if err := s.Run(ctx, host); err != nil {
			t.Error(err)
		}
	})
}

// fake is a Stream that returns fixed output and then ends or blocks.
type fake struct {
	out  io.Reader
	wait func() // called by a Read or Write that then blocks until Cancel; nil if the stream ends
	end  chan struct{}
	why  error
	once sync.Once
}

func (f *fake) Read(p []byte) (int, error) {
	n, err := f.out.Read(p)
	if err == nil || f.wait == nil {
		return n, err
	}
	return f.Write(nil)
}

func (f *fake) Write(p []byte) (int, error) {
	if f.wait == nil {
		return len(p), nil
	}
	f.wait()
	<-f.end
	return 0, f.why
}

func (f *fake) Cancel(why error) {
	f.once.Do(func() {
		f.why = why
		close(f.end)
	})
}

// answered runs a session with a host that prints says, with WORD replaced by
// the session's random word.
func answered(t *testing.T, says string, c Config) (*Session, error) {
	ctx, cancel := context.WithTimeout(t.Context(), patience.Limit)
	defer cancel()
	if says == "" {
		says = "\n"
	}
	s := New(c)
	err := s.Run(ctx, &fake{out: strings.NewReader(strings.ReplaceAll(says, "WORD", s.Marker)), end: make(chan struct{})})
	if c.Seeds != nil {
		s.Done(nil)
		settled(t, c.Seeds)
	}
	return s, err
}

const lacks = "WORD lacks Linux x86_64 000102030405060708090a0b0c0d0e0f /home/a b\nWORD tools gzip bash timeout\n"

var garbage = []string{
	"WORD", "WORD \n", "WORD lacks\n", "WORD lacks Linux x86_64\n", "WORD lacks Linux x86_64 00 /home\n", "WORD absent\n", "WORD what\n",
	"WORD lacks Linux x86_64 zz0102030405060708090a0b0c0d0e0f /home\n", strings.Replace(lacks, "/home", "home", 1),
	strings.Replace(lacks, "tools", "what", 1), lacks, lacks + "WORD wrong\n", lacks + "WORD wrong \x1b[31m\x00\n", lacks + "WORD error -1 -1\n",
	lacks + "WORD disk a -1 -1 -1 -1\nWORD error full\n", lacks + "WORD disk\nWORD disk 1 2 3 99999999999999999999\nWORD error\n",
	lacks + "WORD unhashed\n", lacks + "WORD unhashed\n" + strings.Repeat("x", 2000) + "\nWORD what\n", lacks + "WORD missed\n", lacks + "WORD absent\n",
	"WORD error\n", "WORD homeless\n", "WORD noexec \x1b\n", "WORD echo\n", "WORD missing\n", "WORD disk\n", "\x00\xff\n\n", lacks + lacks + lacks,
}

// Any unexpected output of a host leads to an error, not to a crash.
func TestUnexpectedOutputIsAnError(t *testing.T) {
	b, _ := plxBlob(t, 1000, true)
	other, _ := plxBlob(t, 1002, true)
	for _, says := range garbage {
		c := giving(b)
		c.Seeds = NewSeeds(nil)
		if s, err := answered(t, says, c); err == nil || s.Plx.Sum != "" {
			t.Errorf("%q was taken", says)
		}
		c.Expected = other
		if _, err := answered(t, says, c); err == nil {
			t.Errorf("%q was taken", says)
		}
	}
	if s, err := answered(t, lacks+"noise WORD runs\n", giving(b)); err != nil || s.Plx.Sum != b.Sum {
		t.Errorf("%v", err)
	}
}

// Without Config.Agent nothing is sent to the host, whatever the host prints.
func TestUnexpectedOutputWithoutAgentIsAnError(t *testing.T) {
	defer func() {
		if r := recover(); r != nil {
			t.Errorf("it panics: %v", r)
		}
	}()
	for _, says := range garbage {
		if _, err := answered(t, says, Config{}); err == nil {
			t.Errorf("%q was taken", says)
		}
	}
}

// A host that reports its disk size endlessly gets an error after a limit.
func TestEndlessAnswers(t *testing.T) {
	b, _ := plxBlob(t, 1000, true)
	s := New(giving(b))
	rest := strings.NewReader(strings.Repeat(s.Marker+" disk\n", 10_000))
	if err := s.Run(t.Context(), &fake{out: rest, end: make(chan struct{})}); err == nil || rest.Len() == 0 {
		t.Errorf("all was read: %v", err)
	}
}

func FuzzAnswers(f *testing.F) {
	for _, says := range garbage {
		f.Add([]byte(says), true)
		f.Add([]byte(says), false)
	}
	path := filepath.Join(f.TempDir(), "plx")
	if err := executable.Write(path, []byte("plx"), 0o700); err != nil {
		f.Fatal(err)
	}
	b, err := envsync.FileBlob(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, says []byte, guess bool) {
		if bytes.Contains(says, []byte("WORD disk")) && len(says) > 1<<16 {
			return
		}
		c := giving(b)
		if c.Seeds = NewSeeds(nil); !guess {
			c.Expected = envsync.Blob{}
		}
		if _, err := answered(t, string(says), c); err == nil && !bytes.Contains(says, []byte("WORD runs")) {
			t.Errorf("%q was taken", says)
		}
	})
}

// After the script has started plx, plx may print lines with the random word
// too.
func TestLine(t *testing.T) {
	s := New(Config{})
	script := s.Script()
	if first, _, _ := strings.Cut(script, "\n"); !strings.HasPrefix(first, "# ") || strings.Contains(script, "\n#") {
		t.Error("the script holds comments")
	}
	s.stream = &fake{out: strings.NewReader("noise\n" + s.Marker + " port 5 \nrest"), end: make(chan struct{})}
	if line, err := s.Line(t.Context(), patience.Limit); err != nil || line != "port 5" {
		t.Errorf("%q, %v", line, err)
	}
	if rest, err := io.ReadAll(s.stream); err != nil || string(rest) != "rest" {
		t.Errorf("%q is left, %v", rest, err)
	}
}

// plx runs with the locale and umask of the login shell, not with those that
// the script sets.
func TestPlxGetsLocaleAndUmaskOfLogin(t *testing.T) {
	b := blobOf(t, []byte("#!/bin/sh\necho $(umask) ${LC_ALL-none}\n"))
	for before, want := range map[string]string{
		"umask 027; unset LC_ALL\n":                  "0027 none\n",
		"umask 002; LC_ALL=C.UTF-8; export LC_ALL\n": "0002 C.UTF-8\n",
		"umask 022; LC_ALL=; export LC_ALL\n":        "0022\n",
	} {
		h := newHost(t)
		h.before = before
		for range 2 { // the first run sends plx, the second finds it
			if said, _, err := h.run(t, t.Context(), giving(b)); err != nil || said != want {
				t.Errorf("after %q: %q, %v, want %q", before, said, err, want)
			}
		}
	}
}

// If startup files set HOME, plx is stored and run in that home directory.
func TestHomeSetByStartupFilesIsUsed(t *testing.T) {
	b := blobOf(t, []byte("#!/bin/sh\necho $HOME $(pwd)\n"))
	h, elsewhere := newHost(t), t.TempDir()
	h.before = "HOME=" + elsewhere + "; export HOME\n"
	for _, copied := range []bool{false, true} {
		c := giving(b)
		if copied {
			c.Copy = h.copy
		}
		if said, _, err := h.run(t, t.Context(), c); err != nil || said != elsewhere+" "+elsewhere+"\n" {
			t.Errorf("%q, %v", said, err)
		}
		if _, err := os.Stat(filepath.Join(elsewhere, envsync.BlobPath(b.Sum))); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(filepath.Join(elsewhere, ".plx")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Lstat(h.home + "/.plx"); err == nil {
		t.Error("something is in the other home")
	}
}

// If a resource limit of the shell keeps plx from starting, the error names
// the limit.
func TestResourceLimitsAreReported(t *testing.T) {
	const crash, threads = "fatal error: failed to reserve page summary memory\n\nruntime stack:", "runtime: failed to create new OS thread (have 2 already; errno=11)\nfatal error: newosproc"
	const files = "runtime: eventfd failed with 24\nfatal error: runtime: eventfd failed"
	b, _ := plxBlob(t, 1000, true)
	shells(t, func(t *testing.T, shell []string) {
		for _, c := range []struct{ limit, said, want string }{
			{"ulimit -v 500000", crash, "plx cannot start there: the shell limits the address space to 488 MiB (ulimit -v)"},
			{"ulimit -v 500000", "", "plx cannot start there: the shell limits the address space to 488 MiB (ulimit -v)"},
			{"ulimit -d 20480", "", "plx cannot start there: the shell limits the memory for data to 20 MiB (ulimit -d)"},
			{"ulimit -d 20480; ulimit -v 500000", crash, "plx cannot start there: the shell limits the address space to 488 MiB (ulimit -v) and the memory for data to 20 MiB (ulimit -d)"},
			{"ulimit -u 4000 2>/dev/null || ulimit -p 4000", threads, "plx cannot start there: the shell limits the number of processes to 4000 (ulimit -u)"},
			{"ulimit -n 20; ulimit -v 500000", files, "plx cannot start there: the shell limits the number of open files to 20 (ulimit -n)"},
			{"ulimit -d 20480", "Segmentation fault", "plx cannot start there: the shell limits the memory for data to 20 MiB (ulimit -d)"},
			{":", "Welcome\nplx agent: the shell limits the number of processes to 9 (ulimit -u), of which more\n", "plx cannot start there: the shell limits the number of processes to 9 (ulimit -u), of which more"},
			{"ulimit -v 500000", "plx agent: the job is known", ""},
			{":", crash, ""},
		} {
			h := newHost(t)
			h.shell, h.before = shell, c.limit+"\n"
			s := New(Config{Host: "h", Args: "agent start", Expected: b, Agent: giving(b).Agent})
			sh := h.start(t, s.Script())
			if err := s.Run(t.Context(), sh); err != nil {
				t.Fatal(err)
			}
			s.Done(nil)
			refused, got := s.Limited(c.said), ""
			if refused != nil {
				got = refused.Text
			}
			if got != c.want {
				t.Errorf("%s: %q, want %q", c.limit, got, c.want)
			}
			sh.close()
		}
	})
}
