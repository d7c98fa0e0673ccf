package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/executable"
	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/internal/test/testhosts"
)

// bench is a cluster and the plx binary that is tried on it.
type bench struct {
	*testhosts.Cluster
	t      *testing.T
	plx    string
	env    []string // further NAME=VALUE for plx
	home   string
	dir    string    // where plx runs; "": a folder of its own
	merged io.Writer // takes what plx writes to both streams, in order; nil: a buffer each
	*allocation
}

// allocation is what differs in an allocation of Slurm, whose login node runs plx. The hosts of
// the bench are the nodes. Nil: plx runs on this machine.
type allocation struct {
	nodes []*testhosts.Host
	plx   func(args ...string) *exec.Cmd
	login *bench // the same home, without the allocation
}

// on are the hosts that plx runs tasks on.
func (b *bench) on() []*testhosts.Host {
	if b.allocation != nil {
		return b.nodes
	}
	return b.Hosts
}

func newBench(t *testing.T, o testhosts.Options) *bench {
	t.Helper()
	c := testhosts.Start(t, o)
	return &bench{Cluster: c, t: t, plx: testhosts.Binary(t, "github.com/plx-run/plx"), home: c.Home}
}

// withPlx gives the hosts this plx before a test that is not about sending it: an earlier
// launch has left it there.
func (b *bench) withPlx() *bench {
	b.t.Helper()
	program := read(b.t, b.plx)
	for _, h := range b.Hosts {
		path := filepath.Join(h.HomeDir, ".plx", "blobs", fmt.Sprintf("%x", sha256.Sum256(program)))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), executable.Write(path, program, 0o700)); err != nil {
			b.t.Fatal(err)
		}
	}
	return b
}

// local is a bench without hosts, for the embedded cluster and for mistakes.
func local(t *testing.T) *bench {
	t.Helper()
	return &bench{t: t, plx: testhosts.Binary(t, "github.com/plx-run/plx"), home: t.TempDir()}
}

// in returns the same bench for a subtest.
func (b *bench) in(t *testing.T) *bench {
	c := *b
	c.t = t
	return &c
}

// result is how a plx ended.
type result struct {
	stdout, stderr string
	code           int
}

// running is a plx that has not ended.
type running struct {
	t              *testing.T
	cmd            *exec.Cmd
	stdout, stderr *watched
	done           chan struct{}
	args           []string
}

// start starts plx. It is killed when the test ends, if it has not ended.
func (b *bench) start(args ...string) *running {
	b.t.Helper()
	if b.allocation != nil {
		return b.begin(b.allocation.plx(args...), args)
	}
	cmd := exec.Command(b.plx, args...)
	cmd.Env = append(environ(), "HOME="+b.home)
	cmd.Env = append(cmd.Env, b.env...)
	if cmd.Dir = b.dir; b.dir == "" {
		cmd.Dir = b.t.TempDir()
	}
	return b.begin(cmd, args)
}

// begin starts a command, which is plx or runs it. It is killed when the test ends, if it has
// not ended.
func (b *bench) begin(cmd *exec.Cmd, args []string) *running {
	b.t.Helper()
	r := &running{t: b.t, cmd: cmd, stdout: newWatched(), stderr: newWatched(), done: make(chan struct{}), args: args}
	r.cmd.Stdout, r.cmd.Stderr = r.stdout, r.stderr
	if b.merged != nil {
		r.cmd.Stdout, r.cmd.Stderr = b.merged, b.merged
	}
	r.cmd.WaitDelay = 5 * time.Second
	if err := r.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	go func() {
		r.cmd.Wait() // the state is read from r.cmd
		close(r.done)
	}()
	b.t.Cleanup(func() {
		r.cmd.Process.Kill() // it may have ended
		<-r.done
	})
	return r
}

// environ is this process's environment without what would steer plx, and
// with the go tool's own folders in place of those under HOME.
func environ() []string {
	var env []string
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if name == "HOME" || name == "TERM" || name == "NO_COLOR" || name == "SSH_AUTH_SOCK" || strings.HasPrefix(name, "PLX_") ||
			strings.HasPrefix(name, "OPENBLAS_") { // which decide bits, and do not travel to hosts
			continue
		}
		env = append(env, v)
	}
	return append(env, goEnv()...)
}

// goEnv keeps the go tool's caches when HOME is another.
var goEnv = sync.OnceValue(func() []string {
	var env []string
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPATH"} {
		if out, err := exec.Command("go", "env", name).Output(); err == nil {
			env = append(env, name+"="+strings.TrimSpace(string(out)))
		}
	}
	return env
})

// run runs plx to its end.
func (b *bench) run(args ...string) result {
	b.t.Helper()
	return b.start(args...).wait()
}

// want runs plx and fails the test unless it exits with code.
func (b *bench) want(code int, args ...string) result {
	b.t.Helper()
	return b.start(args...).want(code)
}

func (r *running) wait() result {
	r.t.Helper()
	select {
	case <-r.done:
	case <-time.After(patience.Limit):
		r.cmd.Process.Signal(syscall.SIGABRT) // its goroutines say where it hangs; SIGQUIT is a wish to stop
		<-r.done
		r.t.Fatalf("plx %q did not end\nstdout:\n%s\nstderr:\n%s", r.args, clip(r.stdout.String()), clip(r.stderr.String()))
	}
	return result{r.stdout.String(), r.stderr.String(), exitCode(r.cmd.ProcessState)}
}

func (r *running) want(code int) result {
	r.t.Helper()
	res := r.wait()
	if res.code != code {
		r.t.Fatalf("plx %q: exit status %d, want %d\nstdout:\n%s\nstderr:\n%s", r.args, res.code, code, clip(res.stdout), clip(res.stderr))
	}
	return res
}

func exitCode(s *os.ProcessState) int {
	if ws, ok := s.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return s.ExitCode()
}

func clip(s string) string {
	const most = 8 << 10
	if len(s) > most {
		return s[:most/2] + "\n[...]\n" + s[len(s)-most/2:]
	}
	return s
}

// await waits until plx has written text to the given stream.
func (r *running) await(w *watched, text string) {
	r.t.Helper()
	r.awaitTimes(w, text, 1)
}

// saves waits until n checkpoints are made. After which steps that is depends on the
// disk: one that is due while another is being written comes later.
func (r *running) saves(n int) {
	r.t.Helper()
	r.awaitTimes(r.stderr, "checkpoint of step ", n)
}

func (r *running) awaitTimes(w *watched, text string, n int) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience.Limit)
	defer cancel()
	if !w.await(ctx, text, n, r.done) {
		r.t.Fatalf("plx %q has not written %q %d times\nstdout:\n%s\nstderr:\n%s", r.args, text, n, clip(r.stdout.String()), clip(r.stderr.String()))
	}
}

// watched is a buffer that can be waited on.
type watched struct {
	mu      sync.Mutex
	buf     bytes.Buffer
	changed chan struct{}
	pause   time.Duration // before each write
}

func newWatched() *watched { return &watched{changed: make(chan struct{})} }

// delay makes whoever writes wait each time, as for a slow reader.
func (w *watched) delay(pause time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pause = pause
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	time.Sleep(w.pause)
	w.buf.Write(p)
	close(w.changed)
	w.changed = make(chan struct{})
	return len(p), nil
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}

// await waits until n times text was written.
func (w *watched) await(ctx context.Context, text string, n int, done <-chan struct{}) bool {
	for {
		w.mu.Lock()
		found, changed := strings.Count(w.buf.String(), text) >= n, w.changed
		w.mu.Unlock()
		if found {
			return true
		}
		select {
		case <-changed:
		case <-done:
			return strings.Count(w.String(), text) >= n
		case <-ctx.Done():
			return false
		}
	}
}

// hostsGone fails the test unless every host's process table is empty but for
// its SSH server, within limit.
func (b *bench) hostsGone(limit time.Duration) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for _, h := range b.on() {
		idle := h.AwaitIdle
		if b.allocation != nil {
			idle = func(ctx context.Context) error { return b.awaitIdle(ctx, h) }
		}
		if err := idle(ctx); err != nil {
			b.t.Error(err)
		}
	}
}

// script writes an executable shell script and returns its path.
func (b *bench) script(name, text string) string {
	b.t.Helper()
	dir := b.t.TempDir()
	if b.allocation != nil {
		dir = b.shared() // the login node sees it
	}
	path := filepath.Join(dir, name)
	if err := executable.Write(path, []byte("#!/bin/bash\n"+text), 0o755); err != nil {
		b.t.Fatal(err)
	}
	return path
}

// shared returns a folder that the hosts see too: they have their own home
// and /tmp, but the machine's /var/tmp.
func (b *bench) shared() string {
	b.t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "plx-e2e-")
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// killOne sends SIGKILL to the one process of h that is meant.
func (b *bench) killOne(h *testhosts.Host, meant func(testhosts.Process) bool) {
	b.t.Helper()
	all, err := h.Strays()
	if err != nil {
		b.t.Fatal(err)
	}
	var found []testhosts.Process
	for _, p := range all {
		if meant(p) {
			found = append(found, p)
		}
	}
	if len(found) != 1 {
		b.t.Fatalf("host %s: %d processes are meant, not one, of %v", h.Name, len(found), all)
	}
	if err := found[0].Signal(syscall.SIGKILL); err != nil {
		b.t.Fatal(err)
	}
}
