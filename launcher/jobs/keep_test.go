package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/internal/test/transporttest"
	"github.com/plx-run/plx/launcher/agent"
	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/fetch"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/launcher/transport"
)

// TestMain lets the test binary also act as a plx agent, which scripts of the
// tests call.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "answers" {
		if err := answerCalls(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) > 2 && os.Args[1] == "agent" {
		os.Exit(agent.Main(context.Background(), os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// TestPruneRemovesNothingUnfetched executes a random sequence of commands. The
// long tests execute a longer one.
func TestPruneRemovesNothingUnfetched(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { randomSteps(t, seed, 10) })
	}
}

// world is two hosts whose home directories are on this machine, with the
// files that jobs made there. Each home directory has two paths, below "real"
// and below the symbolic link "link". Some jobs ran below "gone", a link that
// does not exist any more.
type world struct {
	t     *testing.T
	rand  *rand.Rand
	homes string // folder with a subfolder for each host, which contains the host's home directory
	jobs  map[string]*madeJob
	steps []string // commands executed so far, for error messages
}

// madeJob is a job that has ended, with the files that it made.
type madeJob struct {
	id      string
	outputs []protocol.Output
	places  map[string]string    // by host: the working directory of its tasks, relative to the job's folder
	files   map[string]*madeFile // by path relative to world.homes
}

type madeFile struct {
	host, name string // name is the file's path relative to the working directory
	text       string
	fetched    bool
}

func randomSteps(t *testing.T, seed uint64, steps int) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GORACE", "atexit_sleep_ms=0")
	w := &world{t: t, rand: rand.New(rand.NewPCG(seed, 0)), homes: t.TempDir(), jobs: map[string]*madeJob{}}
	t.Setenv("HOME", filepath.Join(w.homes, "here"))
	for _, host := range []string{"h1", "h2"} {
		blobs := filepath.Join(w.homes, host, "real/.plx/blobs")
		if err := errors.Join(os.MkdirAll(blobs, 0o700), os.Symlink(exe, filepath.Join(blobs, "agent")), os.Symlink("real", filepath.Join(w.homes, host, "link")), os.Symlink("real", filepath.Join(w.homes, host, "gone"))); err != nil {
			t.Fatal(err)
		}
	}
	defer func() {
		if t.Failed() {
			t.Logf("seed %d: %s", seed, strings.Join(w.steps, "; "))
		}
	}()
	for range 3 {
		w.launch()
	}
	for _, host := range []string{"h1", "h2"} {
		if err := os.Remove(filepath.Join(w.homes, host, "gone")); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		w.write()
	}
	for range steps {
		switch w.rand.IntN(4) {
		case 0, 1:
			w.write()
		case 2:
			w.fetch(w.any(), w.rand.IntN(2) == 0)
		case 3:
			w.prune()
		}
	}
	w.prune()
	for _, id := range slices.Sorted(maps.Keys(w.jobs)) {
		w.fetch(w.jobs[id], false)
	}
	w.prune()
	if len(w.jobs) > 0 {
		t.Errorf("jobs are left of which all was fetched: %q", slices.Sorted(maps.Keys(w.jobs)))
	}
}

func (w *world) any() *madeJob {
	all := slices.Sorted(maps.Keys(w.jobs))
	if len(all) == 0 {
		return nil
	}
	return w.jobs[all[w.rand.IntN(len(all))]]
}

func (w *world) did(format string, args ...any) {
	w.steps = append(w.steps, fmt.Sprintf(format, args...))
}

// launch creates the files of a job that ended long ago.
func (w *world) launch() {
	w.t.Helper()
	j := &madeJob{id: fmt.Sprintf("j%d", len(w.jobs)), places: map[string]string{}, files: map[string]*madeFile{}}
	j.outputs = [][]protocol.Output{nil, {{Pattern: "*.pt"}}, {{Pattern: "**"}}}[w.rand.IntN(3)]
	long := time.Now().Add(-2 * time.Hour)
	r := Record{Job: j.id, Created: long, Verdict: &protocol.Verdict{Ended: long}, Outputs: j.outputs}
	for i, host := range []string{"h1", "h2"} {
		if i > 0 && w.rand.IntN(3) == 0 {
			continue
		}
		f := jobfolder.Folder(filepath.Join(w.homes, host, []string{"real", "link", "gone"}[w.rand.IntN(3)], ".plx/jobs", j.id, host))
		j.places[host] = []string{"work", "tasks/worker-0"}[w.rand.IntN(2)]
		state := protocol.State{Job: j.id, Folder: host, Phase: protocol.Over, Products: protocol.Products{Outputs: j.outputs}}
		if err := errors.Join(os.MkdirAll(filepath.Join(string(f), j.places[host]), 0o700), f.RecordTaskFolder(filepath.Join(string(f), j.places[host])),
			f.WriteState(state), os.Chtimes(f.State(), long, long), os.WriteFile(f.Blobs(), []byte("agent\n"), 0o600)); err != nil {
			w.t.Fatal(err)
		}
		r.Hosts = append(r.Hosts, HostRecord{Line: host, Folder: host, Binary: ".plx/blobs/agent"})
		w.did("%s on %s in %s", j.id, f, j.places[host])
	}
	w.jobs[j.id] = j
	if err := r.Save(); err != nil {
		w.t.Fatal(err)
	}
}

// write creates a file of a job, or appends to an existing one.
func (w *world) write() {
	w.t.Helper()
	j := w.any()
	if j == nil {
		return
	}
	hosts := slices.Sorted(maps.Keys(j.places))
	host, name := hosts[w.rand.IntN(len(hosts))], w.name()
	path := filepath.Join(host, "real/.plx/jobs", j.id, host, j.places[host], name)
	if all := slices.Sorted(maps.Keys(j.files)); len(all) > 0 && w.rand.IntN(3) == 0 {
		path = all[w.rand.IntN(len(all))]
	}
	if j.files[path] == nil {
		j.files[path] = &madeFile{host: host, name: name}
	}
	f := j.files[path]
	f.text, f.fetched = f.text+fmt.Sprint(w.rand.Uint64()), false
	file := filepath.Join(w.homes, path)
	w.did("%q", path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(f.text), 0o600)); err != nil {
		w.t.Fatal(err)
	}
}

// name returns a random path. Folders and files never have equal names.
func (w *world) name() string {
	parts := []string{"a", "caf\xe9", "café", `caf\xe9`, "\n", "%0a", `\x0a`, " ", "'", "\x1b[2J", "\\", "\xff\xfe"}
	name := ""
	for range w.rand.IntN(3) {
		name += "dir" + parts[w.rand.IntN(len(parts))] + "/"
	}
	name += parts[w.rand.IntN(len(parts))] + parts[w.rand.IntN(len(parts))]
	return name + []string{"", ".pt"}[w.rand.IntN(2)]
}

// open returns an opener that connects to hosts whose home directories have
// the given one of their paths.
func (w *world) open(spelling string) opener {
	return func(_ context.Context, r Record, printer *console.Printer, _ hosts.Reach) (*Job, error) {
		j := &Job{Record: r, printer: printer, set: &hosts.Set{}}
		for _, h := range r.Hosts {
			home := filepath.Join(w.homes, h.Line, spelling)
			host := hosts.NewHost(hostfile.Host{Name: h.Line}, func(context.Context) (transport.Transport, error) { return transporttest.Shell(home), nil })
			j.set.Hosts = append(j.set.Hosts, host)
			j.agents = append(j.agents, &hosts.AgentHost{Host: host, Job: r.Job, Folder: h.Folder, Binary: h.Binary})
		}
		return j, nil
	}
}

// run executes a command of plx with hosts whose home directories have a
// random one of their paths.
func (w *world) run(what string, command func(opener, console.Terminal) error) {
	w.t.Helper()
	spelling := []string{"real", "link"}[w.rand.IntN(2)]
	w.did("%s with HOME %s", what, spelling)
	var out bytes.Buffer
	if err := command(w.open(spelling), console.Terminal{Stdout: &out, Stderr: &out}); err != nil {
		w.t.Errorf("%s: %v; it said %s", what, err, out.String())
	}
}

// fetch fetches a job's files twice, and only those that match a pattern if
// some is true.
func (w *world) fetch(j *madeJob, some bool) {
	w.t.Helper()
	if j == nil {
		return
	}
	wanted := protocol.Wanted{Made: true}
	if some {
		wanted = protocol.Wanted{Patterns: []string{"**/*.pt"}}
	}
	want := map[string]string{}
	for _, f := range j.files {
		if !some || strings.HasSuffix(f.name, ".pt") {
			f.fetched = true
			place := map[string]string{"work": "shared", "tasks/worker-0": "worker-0"}[j.places[f.host]]
			want[filepath.Join("outputs", f.host, place, protocol.EscapeName(f.name))] = f.text
		}
	}
	if len(want) == 0 {
		return // which is an error
	}
	dir := w.t.TempDir()
	for _, what := range []string{"fetch ", "fetch again "} {
		w.run(fmt.Sprintf("%s%s, some %v,", what, j.id, some), func(open opener, terminal console.Terminal) error {
			r, _ := byID(j.id)
			printer := console.NewPrinter(terminal)
			opened, err := open(w.t.Context(), r, printer, hosts.Reach{})
			if err != nil {
				return err
			}
			for _, a := range opened.agents {
				if err := a.Dial(w.t.Context()); err != nil {
					return err
				}
			}
			return fetch.Job(w.t.Context(), fetch.Request{Hosts: opened.agents, Name: j.id, Outputs: j.outputs, Wanted: wanted, Dir: dir, Printer: printer})
		})
		if got := texts(w.t, dir); !maps.Equal(got, want) {
			w.t.Errorf("%s%s: got %q, want %q", what, j.id, got, want)
		}
	}
}

// prune runs plx prune and checks that every file that was not fetched is
// still there.
func (w *world) prune() {
	w.t.Helper()
	w.run("prune", func(open opener, terminal console.Terminal) error {
		return prune(w.t.Context(), PruneConfig{Query: Query{Terminal: terminal}, Older: time.Hour}, open)
	})
	for id, j := range w.jobs {
		_, known := byID(id)
		for path, f := range j.files {
			text, err := os.ReadFile(filepath.Join(w.homes, path))
			if there := err == nil && string(text) == f.text; !there && (known || !f.fetched) {
				w.t.Errorf("%q is gone, fetched %v, job known %v", path, f.fetched, known)
			}
		}
		if !known {
			delete(w.jobs, id)
		}
	}
}

// texts returns the contents of all files below a folder, by path.
func texts(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	if err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path) // path is below dir
		all[name] = string(text)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return all
}
