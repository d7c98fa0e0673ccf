package bootstrap

import (
	"bytes"
	"context"
	"encoding/hex"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/internal/test/executable"
)

// host is a simulated host whose home directory is a local directory.
type host struct {
	home   string
	env    []string
	shell  []string            // shell command that gets the script as its last argument; nil means sh -c
	stdin  func(string) string // returns what the shell reads on stdin before the stream, from the script; nil: nothing
	before string              // runs before the script
	// write, if set, handles every write to the host.
	write func(s *shell, p []byte) (int, error)
}

func newHost(t testing.TB) *host {
	t.Helper()
	return &host{home: t.TempDir()}
}

// shell is a Stream to a local process. Like the stream of an SSH session it
// buffers nothing: a write blocks until the other side reads.
type shell struct {
	write   func(s *shell, p []byte) (int, error)
	in, out *end
	cmd     *exec.Cmd
	errs    bytes.Buffer
	heard   strings.Builder // output of the script so far
	sent    atomic.Int64    // bytes
	hangUp  func()          // closes the process's stdout, so that its writes fail
	done    chan struct{}
}

// end is a pipe.
type end struct {
	*io.PipeReader
	*io.PipeWriter
}

func pipe() *end {
	r, w := io.Pipe()
	return &end{r, w}
}

func (h *host) start(t testing.TB, script string) *shell {
	t.Helper()
	words, first := h.shell, ""
	if words == nil {
		words = []string{"sh", "-c"}
	}
	if script = h.before + script; h.stdin != nil {
		first = h.stdin(script)
	} else {
		words = append(slices.Clone(words), script)
	}
	s := &shell{write: h.write, in: pipe(), out: pipe(), done: make(chan struct{}), cmd: exec.Command(words[0], words[1:]...)}
	s.cmd.Dir = h.home
	s.cmd.Env = append([]string{"HOME=" + h.home, "PATH=" + os.Getenv("PATH")}, h.env...)
	s.cmd.Stderr = &s.errs
	stdin, err := s.cmd.StdinPipe()
	stdout, failed := s.cmd.StdoutPipe()
	s.hangUp = func() { stdout.Close() }
	if err := firstError(err, failed, s.cmd.Start()); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = io.Copy(stdin, io.MultiReader(strings.NewReader(first), s.in.PipeReader)) // copies until the stream or the process ends
		stdin.Close()
	}()
	go func() {
		_, _ = io.Copy(s.out.PipeWriter, stdout) // copies until the stream or the process ends
		stdout.Close()
		_ = s.cmd.Wait() // error ignored: the tests do not need the exit status
		s.out.PipeWriter.Close()
		s.in.PipeReader.Close()
		close(s.done)
	}()
	t.Cleanup(s.close)
	return s
}

func (s *shell) Read(p []byte) (int, error) {
	n, err := s.out.Read(p)
	s.heard.Write(p[:n])
	return n, err
}

func (s *shell) Write(p []byte) (int, error) {
	if s.write != nil {
		return s.write(s, p)
	}
	return s.put(p)
}

func (s *shell) put(p []byte) (int, error) {
	n, err := s.in.Write(p)
	s.sent.Add(int64(n))
	return n, err
}

func (s *shell) Cancel(why error) {
	_ = s.in.PipeReader.CloseWithError(why)  // never fails
	_ = s.out.PipeWriter.CloseWithError(why) // never fails
	s.hangUp()
}

// close ends the session and waits until the process has exited.
func (s *shell) close() {
	s.in.PipeWriter.Close()
	s.out.PipeReader.Close()
	s.hangUp()
	<-s.done
}

// run runs the script, and returns what plx then prints.
func (h *host) run(t testing.TB, ctx context.Context, c Config) (said string, sh *shell, err error) {
	t.Helper()
	if c.Host == "" {
		c.Host, c.Args = "h", "agent start"
	}
	s := New(c)
	sh = h.start(t, s.Script())
	if err := s.Run(ctx, sh); err != nil {
		sh.close()
		return "", sh, err
	}
	s.Done(nil)
	return h.finish(t, sh), sh, nil
}

// finish talks with plx.
func (h *host) finish(t testing.TB, sh *shell) string {
	t.Helper()
	if _, err := io.WriteString(sh, "hello\n"); err != nil {
		t.Error(err)
	}
	sh.in.PipeWriter.Close()
	said, err := io.ReadAll(sh)
	if err != nil {
		t.Error(err)
	}
	sh.close()
	if sh.errs.Len() > 0 {
		t.Logf("stderr: %s", sh.errs.String())
	}
	return string(said)
}

const ran = "ran agent start\nhello\n" // what plx says

// must runs the script, and checks what plx prints and whether plx was sent.
func (h *host) must(t testing.TB, c Config, sends bool) *shell {
	t.Helper()
	said, sh, err := h.run(t, t.Context(), c)
	if err != nil || said != ran {
		t.Fatalf("%q, %v", said, err)
	}
	if c.Expected.Sum != "" && sh.sent.Load() > 1000 != sends {
		t.Errorf("%d bytes were sent", sh.sent.Load())
	}
	if left := h.leftovers(t); len(left) != 0 {
		t.Errorf("left over: %v", left)
	}
	return sh
}

// refuses runs the script, and fails the test unless that returns an error
// with all of words.
func (h *host) refuses(t testing.TB, c Config, words ...string) error {
	t.Helper()
	said, _, err := h.run(t, t.Context(), c)
	for _, want := range words {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q, plx says %q", err, want, said)
		}
	}
	return err
}

// leftovers returns the temporary files that the script should have removed.
func (h *host) leftovers(t testing.TB) (left []string) {
	t.Helper()
	for _, pattern := range []string{".plx/.*", ".plx/blobs/.*"} {
		files, err := filepath.Glob(filepath.Join(h.home, pattern))
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, files...)
	}
	return left
}

func (h *host) path(b envsync.Blob) string { return filepath.Join(h.home, envsync.BlobPath(b.Sum)) }

// put writes content as the file of blob b on the host.
func (h *host) put(t testing.TB, b envsync.Blob, content []byte, mode fs.FileMode) {
	t.Helper()
	if err := firstError(os.MkdirAll(filepath.Dir(h.path(b)), 0o700), executable.Write(h.path(b), content, mode)); err != nil {
		t.Fatal(err)
	}
}

// copy writes a file on the host, for use as Config.Copy.
func (h *host) copy(_ context.Context, r io.Reader, path string) error {
	content, err := io.ReadAll(r)
	return firstError(err, os.WriteFile(path, content, 0o600))
}

// flipPayload damages one byte of the binary that is sent after an order.
func flipPayload(s *shell, p []byte) (int, error) {
	if len(p) > 1000 {
		p = bytes.Clone(p)
		p[len(p)/2] ^= 1
	}
	return s.put(p)
}

var tools = []string{"sh", "cat", "head", "gzip", "chmod", "mkdir", "rm", "mv", "ln", "ls", "uname", "df", "sed", "tail", "wc", "sync", "sleep", "sha256sum"}

func without(names ...string) []string {
	return slices.DeleteFunc(slices.Clone(tools), func(name string) bool { return slices.Contains(names, name) })
}

// withPrograms gives the host its own PATH. It contains only the real programs
// listed, and scripts that replace others.
func (h *host) withPrograms(t testing.TB, real []string, scripts map[string]string) *host {
	t.Helper()
	bin := t.TempDir()
	for _, name := range real {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Skip(err)
		}
		if scripts[name] == "" {
			if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, script := range scripts {
		if err := executable.Write(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	h.env = append(h.env, "PATH="+bin)
	return h
}

// smallHome mounts a small file system as the host's home directory. It needs
// the permission to mount.
func smallHome(t *testing.T, flags uintptr, size string) *host {
	t.Helper()
	h := newHost(t)
	if err := syscall.Mount("plx-test", h.home, "tmpfs", flags, "size="+size+",mode=700"); err != nil {
		t.Skipf("needs root, to mount a small file system: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(h.home, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return h
}

// plxBlob returns a fake plx: a shell script that prints its arguments and
// echoes its input, followed by size bytes. These compress to half their size,
// or not at all if random is set.
func plxBlob(t testing.TB, size int, random bool) (envsync.Blob, []byte) {
	t.Helper()
	behind := make([]byte, size)
	rand.NewChaCha8([32]byte{byte(size)}).Read(behind)
	if !random {
		behind = []byte(hex.EncodeToString(behind[:size/2]))
	}
	content := append([]byte("#!/bin/sh\necho \"ran $*\"\nexec cat\n"), behind...)
	return blobOf(t, content), content
}

func blobOf(t testing.TB, content []byte) envsync.Blob {
	t.Helper()
	path := filepath.Join(t.TempDir(), "plx")
	b, err := envsync.Blob{}, os.WriteFile(path, content, 0o755)
	if err == nil {
		b, err = envsync.FileBlob(path)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// giving returns a Config that sends blob b to hosts that lack it.
func giving(b envsync.Blob) Config {
	return Config{Expected: b, Agent: func(context.Context, envsync.Platform) (envsync.Blob, error) { return b, nil }}
}

func strict(c Config) Config {
	c.Strict = true
	return c
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
