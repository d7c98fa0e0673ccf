package fetch

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/internal/test/transporttest"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/transport"
)

// homes stands for several hosts: each has a home folder on this machine, and
// this test binary as its agent.
type homes struct {
	t      *testing.T
	dirs   []string
	agents []*hosts.AgentHost
	said   bytes.Buffer
}

func newHomes(t *testing.T, n int) *homes {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GORACE", "atexit_sleep_ms=0") // without this, each agent that is built with -race takes a second to exit
	h := &homes{t: t}
	for i := range n {
		dir := t.TempDir()
		h.dirs = append(h.dirs, dir)
		h.write(i, ".plx/blobs/agent", "")
		if err := errors.Join(os.Remove(filepath.Join(dir, ".plx/blobs/agent")), os.Symlink(exe, filepath.Join(dir, ".plx/blobs/agent"))); err != nil {
			t.Fatal(err)
		}
		h.agents = append(h.agents, &hosts.AgentHost{Host: &hosts.Host{Resource: hostfile.Host{Name: fmt.Sprintf("h%d", i+1)}}, Job: "j", Folder: "h", Binary: ".plx/blobs/agent"})
		h.anew(i)
	}
	return h
}

// anew replaces a host by one without a running agent, and returns the
// connection between it and plx.
func (h *homes) anew(host int) *wire {
	w := &wire{Transport: transporttest.Shell(h.dirs[host])}
	h.dials(host, func(context.Context) (transport.Transport, error) { return w, nil })
	return w
}

func (h *homes) dials(host int, dial transport.Dialer) {
	r := hosts.NewHost(h.agents[host].Resource, dial)
	h.t.Cleanup(func() { r.Close() })
	h.agents[host].Host = r
}

// wire is the connection between a host and plx, which a test can observe and
// break.
type wire struct {
	transport.Transport
	in   func(p []byte)       // called with all data for the host before it is sent; may be nil
	out  func(p []byte) error // called with all data from the host; if it returns an error, the connection breaks
	runs atomic.Int64         // commands
	came atomic.Int64         // number of bytes received from the host
}

func (w *wire) Run(ctx context.Context, command string, stdin io.Reader, stdout, stderr io.Writer) error {
	w.runs.Add(1)
	ctx, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	if in := w.in; in != nil {
		from := stdin
		stdin = readerFunc(func(p []byte) (int, error) {
			n, err := from.Read(p)
			in(p[:n])
			return n, err
		})
	}
	ended := make(chan error, 1)
	go func() {
		ended <- w.Transport.Run(ctx, command, stdin, writerFunc(func(p []byte) (int, error) {
			w.came.Add(int64(len(p)))
			if w.out != nil {
				if err := w.out(p); err != nil {
					lose(&transport.LostError{Host: "it", Cause: err})
					return 0, err
				}
			}
			return stdout.Write(p)
		}), stderr)
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

type (
	readerFunc func([]byte) (int, error)
	writerFunc func([]byte) (int, error)
)

func (f readerFunc) Read(p []byte) (int, error)  { return f(p) }
func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func (h *homes) write(host int, name, content string) {
	h.t.Helper()
	path := filepath.Join(h.dirs[host], name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// checkpoint creates a checkpoint on the hosts. Each argument names the files
// that one host gets, one letter per file, such as "pw"; all hosts get the
// manifest.
func (h *homes) checkpoint(folder string, hosts ...string) {
	h.t.Helper()
	var files []map[string]any
	for _, name := range []string{"p", "w"} {
		files = append(files, map[string]any{"name": name, "size": len(content(folder, name)), "sum": sumOf(content(folder, name))})
	}
	body, err := json.Marshal(map[string]any{"files": files})
	if err != nil {
		h.t.Fatal(err)
	}
	for i, has := range hosts {
		h.write(i, ".plx/ckpt/mnist/"+folder+"/manifest.json", fmt.Sprintf(`{"sum":%q,"checkpoint":%s}`, sumOf(string(body)), body))
		for _, name := range strings.Split(has, "") {
			h.write(i, ".plx/ckpt/mnist/"+folder+"/"+name, content(folder, name))
		}
	}
}

func content(folder, name string) string { return strings.Repeat(folder+name, 10_000) }

func sumOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func (h *homes) fetch(dir string) error {
	h.t.Helper()
	h.said.Reset()
	v := console.NewPrinter(console.Terminal{Stderr: &h.said})
	return (&fetcher{from: Request{Hosts: h.agents, Name: "mnist", Dir: dir, Printer: v}}).checkpoints(h.t.Context())
}

// lose makes a host unreachable.
func (h *homes) lose(host int) {
	h.dials(host, func(context.Context) (transport.Transport, error) { return nil, errors.New("no route to host") })
}

// tree returns the paths of all files below a folder.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	found := map[string]bool{}
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			name, _ := filepath.Rel(dir, path)
			found[filepath.ToSlash(name)] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(found))
}

func (h *homes) says(text string) {
	h.t.Helper()
	if !strings.Contains(h.said.String(), text) {
		h.t.Errorf("plx said %q, want %q in it", h.said.String(), text)
	}
}

const (
	older = "sub/000000000010-g0-aaaaaaaa"
	newer = "sub/000000000020-g0-bbbbbbbb"
)

func TestFetchGathersFromAllHosts(t *testing.T) {
	h := newHomes(t, 3)
	h.checkpoint(older, "p", "pw", "w")
	h.checkpoint(newer, "p", "", "w")
	h.write(0, ".plx/ckpt/mnist/"+newer+"x/p", "no manifest")
	dir := t.TempDir()
	if err := h.fetch(dir); err != nil {
		t.Fatal(err)
	}
	want := []string{older + "/manifest.json", older + "/p", older + "/w", newer + "/manifest.json", newer + "/p", newer + "/w"}
	if got := tree(t, dir); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, folder := range []string{older, newer} {
		for _, name := range []string{"p", "w"} {
			if text, err := os.ReadFile(filepath.Join(dir, folder, name)); err != nil || string(text) != content(folder, name) {
				t.Errorf("%s/%s: %d bytes, %v", folder, name, len(text), err)
			}
		}
	}
	h.says("fetched 2 checkpoints of mnist into " + dir + ": 6 files, ")
	if err := h.fetch(dir); err != nil {
		t.Errorf("again: %v", err)
	}
	h.says("6 files, 0 B, 6 of them there already")
}

func TestFetchWithHostsOutOfReach(t *testing.T) {
	for name, c := range map[string]struct {
		newest []string // files of the newest checkpoint on each host; h2 cannot be reached
		want   string   // error
		files  int
	}{
		"other hosts have all files": {[]string{"p", "pw", "w"}, "", 6},
		"the newest is incomplete":   {[]string{"p", "w", "p"}, "checkpoint " + newer + ", the newest: no host that was reached has w", 3},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHomes(t, 3)
			h.checkpoint(older, "p", "", "w")
			h.checkpoint(newer, c.newest...)
			h.lose(1)
			dir := t.TempDir()
			err := h.fetch(dir)
			if fmt.Sprint(err) != c.want && (c.want != "" || err != nil) {
				t.Errorf("%v, want %q", err, c.want)
			}
			h.says("host h2: its checkpoints are not fetched: no route to host")
			if got := tree(t, dir); len(got) != c.files {
				t.Errorf("%d files: %q, want %d", len(got), got, c.files)
			}
		})
	}
}

func TestFetchSkipsAnOlderOneThatIsIncomplete(t *testing.T) {
	h := newHomes(t, 2)
	h.checkpoint(older, "p", "p")
	h.checkpoint(newer, "p", "w")
	dir := t.TempDir()
	if err := h.fetch(dir); err != nil {
		t.Error(err)
	}
	h.says("checkpoint " + older + ": not fetched: no host that was reached has w")
	if got := tree(t, dir); len(got) != 3 {
		t.Errorf("%q", got)
	}
}

func TestFetchTakesAnotherCopyOfADamagedFile(t *testing.T) {
	h := newHomes(t, 2)
	h.checkpoint(newer, "pw", "pw")
	flipped := []byte(content(newer, "p"))
	flipped[7] ^= 1
	h.write(0, ".plx/ckpt/mnist/"+newer+"/p", string(flipped))
	dir := t.TempDir()
	if err := h.fetch(dir); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, newer, "p")); err != nil || string(text) != content(newer, "p") {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	h.write(1, ".plx/ckpt/mnist/"+newer+"/p", string(flipped))
	dir = t.TempDir()
	err := h.fetch(dir)
	if err == nil || !strings.Contains(err.Error(), "host h1: p: its checksum is wrong") || !strings.Contains(err.Error(), "host h2: p: its checksum is wrong") {
		t.Errorf("%v, want both hosts and the file", err)
	}
	if got := tree(t, dir); slices.Contains(got, newer+"/manifest.json") || slices.Contains(got, newer+"/p") || len(got) > 1 {
		t.Errorf("%q: want neither the damaged file nor a manifest", got)
	}
}

// A running job removes its newest checkpoint before that is fetched, and has
// written a newer one. The newer one is fetched without an error.
func TestFetchFollowsRunningJob(t *testing.T) {
	const newest = "sub/000000000030-g0-cccccccc"
	h := newHomes(t, 1)
	h.checkpoint(newer, "pw")
	h.anew(0).in = func(asked []byte) {
		if strings.Contains(string(asked), newer) {
			h.checkpoint(newest, "pw")
			if err := os.RemoveAll(filepath.Join(h.dirs[0], ".plx/ckpt/mnist", newer)); err != nil {
				t.Error(err)
			}
		}
	}
	dir := t.TempDir()
	if err := h.fetch(dir); err != nil {
		t.Error(err)
	}
	h.says("fetched 1 checkpoint of mnist into " + dir + ": 3 files, ")
	if got := tree(t, dir); len(got) != 3 || !slices.Contains(got, newest+"/manifest.json") {
		t.Errorf("%q", got)
	}
	if strings.Contains(h.said.String(), newer) {
		t.Errorf("plx said %q", h.said.String())
	}
}

func TestFetchReplacesNothing(t *testing.T) {
	h := newHomes(t, 1)
	h.checkpoint(newer, "pw")
	dir := t.TempDir()
	mine := filepath.Join(dir, newer, "w")
	if err := os.MkdirAll(filepath.Dir(mine), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(mine, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.fetch(dir); err == nil || !strings.Contains(err.Error(), mine+" already exists with other content") {
		t.Errorf("%v", err)
	}
	if text, _ := os.ReadFile(mine); string(text) != "mine" {
		t.Errorf("it was replaced by %d bytes", len(text))
	}
	if slices.Contains(tree(t, dir), newer+"/manifest.json") {
		t.Error("a manifest makes a checkpoint of it")
	}
}

func TestFetchWithoutCheckpointsFails(t *testing.T) {
	h := newHomes(t, 2)
	if err := h.fetch(t.TempDir()); err == nil || !strings.Contains(err.Error(), "no host has checkpoints under the name mnist") {
		t.Errorf("%v", err)
	}
	h.lose(0)
	if err := h.fetch(t.TempDir()); err == nil || !strings.Contains(err.Error(), "no host that was reached") {
		t.Errorf("%v", err)
	}
	if err := os.Remove(filepath.Join(h.dirs[1], ".plx/blobs/agent")); err != nil {
		t.Fatal(err)
	}
	h.anew(1)
	h.fetch(t.TempDir()) // fails as above
	h.says("host h2: its checkpoints are not fetched: the agent of the job was pruned")
}

func TestFetchShowsItsProgress(t *testing.T) {
	h := newHomes(t, 1)
	h.checkpoint(newer, "pw")
	screen := &screen{}
	h.anew(0).in = func(asked []byte) { // delay each file until the progress display shows that plx waits for it
		for strings.Contains(string(asked), `"name":`) && !strings.Contains(screen.text(), "fetching: 0%") && t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
	}
	term := console.Terminal{Stderr: screen, StderrTTY: true}
	v := console.NewPrinter(term)
	if err := (&fetcher{from: Request{Hosts: h.agents, Name: "mnist", Dir: t.TempDir(), Printer: v}}).checkpoints(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.said.WriteString(screen.text())
	h.says("fetching: 0% of ")
	if last := h.said.String()[strings.LastIndex(h.said.String(), "\r")+1:]; !strings.HasPrefix(last, "\x1b[Kplx: fetched 1 checkpoint") {
		t.Errorf("the last line is %q, want the bar gone", last)
	}
}

// screen stores all that plx prints. It may be used by any goroutine.
type screen struct {
	mu      sync.Mutex
	written bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written.Write(p)
}

func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written.String()
}
