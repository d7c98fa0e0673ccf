package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/peers"
)

func ps(i int) cluster.Task     { return cluster.Task{Role: cluster.PS, Index: i} }
func worker(i int) cluster.Task { return cluster.Task{Role: cluster.Worker, Index: i} }

// testJob is a job whose tasks all run in the test process. Every task has a
// listener and a store.
type testJob struct {
	t         testing.TB
	hosts     map[cluster.Task]string
	dirs      map[string]string // by host
	configs   map[cluster.Task]Config
	listeners map[cluster.Task]*peers.Listener
	stores    map[cluster.Task]*Store
	tasks     []cluster.Task

	mu     sync.Mutex
	logged []string
	faults map[cluster.Task]func(place string) error
}

// fault installs f as the hook of one task's store; nil removes it.
func (j *testJob) fault(at cluster.Task, f func(place string) error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.faults[at] = f
}

// at returns a hook that calls f at one place, and does nothing at other
// places.
func at(place string, f func() error) func(string) error {
	return func(here string) error {
		if here != place {
			return nil
		}
		return f()
	}
}

// hook returns the function that a task's store calls at each place; fault
// changes what it does.
func (j *testJob) hook(task cluster.Task) func(string) error {
	return func(place string) error {
		j.mu.Lock()
		f := j.faults[task]
		j.mu.Unlock()
		if f == nil {
			return nil
		}
		return f(place)
	}
}

// shape describes a test job. Of all tasks, servers first, task i runs on host
// i modulo the number of hosts.
type shape struct {
	servers, workers, generation int
	hosts                        []string      // names of the hosts, which are also the names of their folders below the test's root
	silence                      time.Duration // 0: patience.Limit
}

// newJob starts the listeners of a job's tasks; testJob.open opens their
// stores.
func newJob(t testing.TB, root string, l shape) *testJob {
	t.Helper()
	j := &testJob{t: t, hosts: map[cluster.Task]string{}, dirs: map[string]string{}, configs: map[cluster.Task]Config{},
		listeners: map[cluster.Task]*peers.Listener{}, stores: map[cluster.Task]*Store{},
		faults: map[cluster.Task]func(string) error{}}
	var spec cluster.Spec
	listeners := map[cluster.Task]net.Listener{}
	for i := range l.servers {
		j.tasks = append(j.tasks, ps(i))
	}
	for i := range l.workers {
		j.tasks = append(j.tasks, worker(i))
	}
	for i, task := range j.tasks {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners[task] = ln
		spec.Set(task, ln.Addr().String())
		host := l.hosts[i%len(l.hosts)]
		j.hosts[task], j.dirs[host] = host, filepath.Join(root, host)
	}
	for _, task := range j.tasks {
		pc := peers.Config{Self: task, Key: cluster.PeerKey([]byte("secret"), l.generation), Generation: l.generation,
			Workers: l.workers, Servers: l.servers}
		c := Config{Peers: pc, Cluster: spec, Dir: j.dirs[j.hosts[task]], Job: "job", Start: patience.Limit, Silence: cmp.Or(l.silence, patience.Limit),
			Host: func(t cluster.Task) string { return j.hosts[t] },
			Logf: func(level slog.Level, format string, args ...any) {
				j.mu.Lock()
				defer j.mu.Unlock()
				j.logged = append(j.logged, fmt.Sprintf("%v %s: ", level, task)+fmt.Sprintf(format, args...))
			}}
		c.Listener = peers.Listen(listeners[task], pc)
		j.listeners[task], j.configs[task] = c.Listener, c
		t.Cleanup(func() { c.Listener.Close() })
	}
	return j
}

// open opens the stores of all tasks except but, and returns the errors by
// task.
func (j *testJob) open(but ...cluster.Task) map[cluster.Task]error {
	errs := map[cluster.Task]error{}
	var mu sync.Mutex
	var opening sync.WaitGroup
	for _, task := range j.tasks {
		if slices.Contains(but, task) {
			continue
		}
		opening.Go(func() {
			d, err := open(j.t.Context(), j.configs[task], j.hook(task))
			mu.Lock()
			defer mu.Unlock()
			errs[task] = err
			if err == nil {
				j.stores[task] = d
				j.t.Cleanup(func() { d.Close() })
			}
		})
	}
	opening.Wait()
	return errs
}

// opened returns a job whose stores are all open.
func opened(t testing.TB, root string, l shape) *testJob {
	t.Helper()
	j := newJob(t, root, l)
	for task, err := range j.open() {
		if err != nil {
			t.Fatalf("%s: %v", task, err)
		}
	}
	return j
}

func (j *testJob) chief() *Store { return j.stores[cluster.Chief] }

// end ends all tasks in good order: every task calls Wait, then Close.
func (j *testJob) end() {
	j.t.Helper()
	ctx := soon(j.t)
	var ending sync.WaitGroup
	for task, d := range j.stores {
		if d.chief != nil {
			continue
		}
		ending.Go(func() {
			if err := d.Wait(ctx); err != nil {
				j.t.Errorf("%s: wait: %v", task, err)
			}
			if err := d.Close(); err != nil {
				j.t.Errorf("%s: close: %v", task, err)
			}
		})
	}
	if err := j.chief().Wait(ctx); err != nil {
		j.t.Errorf("wait: %v", err)
	}
	if err := j.chief().Close(); err != nil {
		j.t.Errorf("close: %v", err)
	}
	ending.Wait()
	for _, l := range j.listeners {
		l.Close()
	}
}

// kill ends all tasks at the same time without Wait, as if their processes
// were killed.
func (j *testJob) kill() {
	for _, d := range j.stores {
		d.life.Cancel()
	}
	for _, d := range j.stores {
		d.Close()
	}
	for _, l := range j.listeners {
		l.Close()
	}
}

// lines returns the log lines that contain all words.
func (j *testJob) lines(words ...string) (lines []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, line := range j.logged {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			lines = append(lines, line)
		}
	}
	return lines
}

// says checks that exactly one log line contains all words.
func (j *testJob) says(words ...string) {
	j.t.Helper()
	if got := j.lines(words...); len(got) != 1 {
		j.t.Errorf("%d lines with %q in\n%s", len(got), words, strings.Join(j.lines(), "\n"))
	}
}

func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience.Limit, errors.New("nothing happened"))
	t.Cleanup(cancel)
	return ctx
}

func within[T any](t testing.TB, ch <-chan T) T {
	t.Helper()
	select {
	case got := <-ch:
		return got
	case <-time.After(patience.Limit):
		t.Fatal("nothing happened")
		panic("unreachable")
	}
}

// eventually waits until ok returns true, and fails the test after a time
// limit.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience.Limit); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience.Limit, what)
		}
	}
}

func anything(*checkpoint.Manifest) error { return nil }

// choose makes the chief choose a checkpoint, and checks that all tasks
// receive the same.
func (j *testJob) choose() *checkpoint.Manifest {
	j.t.Helper()
	ctx := soon(j.t)
	m, err := j.chief().Choose(ctx, anything)
	if err != nil {
		j.t.Fatal(err)
	}
	for task, d := range j.stores {
		other, err := d.Chosen(ctx)
		if err != nil || (m == nil) != (other == nil) || m != nil && m.ID != other.ID {
			j.t.Fatalf("%s: chosen %v, %v, want %v", task, other, err, m)
		}
	}
	return m
}

// files returns the paths that match pattern in the folders directly below
// dir. If pattern is "", it returns those folders.
func files(t testing.TB, dir, pattern string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "*", pattern))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func names(paths []string) (names []string) {
	for _, p := range paths {
		names = append(names, filepath.Base(p))
	}
	slices.Sort(names)
	return names
}

func remove(t testing.TB, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}
