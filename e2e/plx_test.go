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

// bench is a cluster of test hosts, and the plx binary that is tested on it.
type bench struct {
	*testhosts.Cluster
	t      *testing.T
	plx    string
	env    []string // further NAME=VALUE for plx
	home   string
	dir    string    // working directory of plx; "" uses a new folder
	merged io.Writer // receives stdout and stderr of plx, in order; nil keeps them in two buffers
	*allocation
}

// allocation describes a Slurm allocation in which plx runs on the login node.
// The hosts of the bench are the nodes. A nil allocation means that plx runs
// on this machine.
type allocation struct {
	nodes []*testhosts.Host
	plx   func(args ...string) *exec.Cmd
	login *bench // a bench with the same home directory, but outside of the allocation
}

// on returns the hosts on which plx runs tasks.
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

// withPlx installs this version of plx on all hosts, as an earlier launch
// would. Tests use it if they do not test how plx sends itself.
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

// local returns a bench without hosts, for tests of the embedded cluster and
// of user mistakes.
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

// result is the exit status and the output of a plx process that has ended.
type result struct {
	stdout, stderr string
	code           int
}

// running is a plx process that the test has started.
type running struct {
	t              *testing.T
	cmd            *exec.Cmd
	stdout, stderr *watched
	done           chan struct{}
	args           []string
	limit          time.Duration // wait fails the test after this time
}

// start starts plx. If plx still runs at the end of the test, it is killed.
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

// begin starts a command that is plx or runs plx. If the command still runs at
// the end of the test, it is killed.
func (b *bench) begin(cmd *exec.Cmd, args []string) *running {
	b.t.Helper()
	r := &running{t: b.t, cmd: cmd, stdout: newWatched(), stderr: newWatched(), done: make(chan struct{}), args: args, limit: patience.Limit}
	r.cmd.Stdout, r.cmd.Stderr = r.stdout, r.stderr
	if b.merged != nil {
		r.cmd.Stdout, r.cmd.Stderr = b.merged, b.merged
	}
	r.cmd.WaitDelay = 5 * time.Second
	if err := r.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	go func() {
		r.cmd.Wait() // ignore the error: r.cmd contains the exit state
		close(r.done)
	}()
	b.t.Cleanup(func() {
		r.cmd.Process.Kill() // it may have ended
		<-r.done
	})
	return r
}

// environ returns this process's environment without variables that influence
// plx. The go command keeps its own folders, although HOME changes.
func environ() []string {
	var env []string
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if name == "HOME" || name == "TERM" || name == "NO_COLOR" || name == "SSH_AUTH_SOCK" || strings.HasPrefix(name, "PLX_") ||
			strings.HasPrefix(name, "OPENBLAS_") { // these variables change the bits of a training, and plx does not pass them to hosts
			continue
		}
		env = append(env, v)
	}
	return append(env, goEnv()...)
}

// goEnv returns variables with which the go command keeps its caches if HOME
// changes.
var goEnv = sync.OnceValue(func() []string {
	var env []string
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPATH"} {
		if out, err := exec.Command("go", "env", name).Output(); err == nil {
			env = append(env, name+"="+strings.TrimSpace(string(out)))
		}
	}
	return env
})

// run runs plx and waits for its end.
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
	case <-time.After(r.limit):
		r.cmd.Process.Signal(syscall.SIGABRT) // SIGABRT prints the goroutines, which show where plx hangs; SIGQUIT would only ask plx to stop
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

// saves waits until n checkpoints are complete. Their steps depend on the
// speed of the disk, because a checkpoint that is due while another is being
// written is delayed.
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

// watched is a buffer with functions that wait for its content.
type watched struct {
	mu      sync.Mutex
	buf     bytes.Buffer
	changed chan struct{}
	pause   time.Duration // before each write
}

func newWatched() *watched { return &watched{changed: make(chan struct{})} }

// delay makes each write take this additional time, like a slow reader.
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

// await waits until text was written n times.
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

// hostsGone fails the test unless, within limit, every host runs no process
// other than its SSH server.
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
		dir = b.shared() // the login node can read this folder
	}
	path := filepath.Join(dir, name)
	if err := executable.Write(path, []byte("#!/bin/bash\n"+text), 0o755); err != nil {
		b.t.Fatal(err)
	}
	return path
}

// shared returns a folder that all hosts can access, too. Hosts have their own
// home directory and /tmp, but share the machine's /var/tmp.
func (b *bench) shared() string {
	b.t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "plx-e2e-")
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// killOne sends SIGKILL to the only process of host h for which meant returns
// true.
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
