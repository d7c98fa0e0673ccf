package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

// blames checks that err is a PeerError about the task and contains all texts
// in what.
func blames(t testing.TB, err error, task cluster.Task, what ...string) {
	t.Helper()
	var peer *peers.PeerError
	if !errors.As(err, &peer) || peer.Task != task {
		t.Errorf("got %v, want %s to blame", err, task)
	}
	for _, w := range what {
		if !strings.Contains(fmt.Sprint(err), w) {
			t.Errorf("got %v, want %q", err, w)
		}
	}
}

// If a task never opens its store, the errors of all other tasks name it.
func TestOpenNamesMissingTask(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, absent := range []cluster.Task{ps(0), worker(1)} {
		j := newJob(t, t.TempDir(), shape{servers: 1, workers: 3, hosts: []string{"a", "b"}})
		for task, c := range j.configs {
			c.Start = 500 * time.Millisecond
			if !task.IsChief() {
				c.Start = patience.Limit // the chief tells them
			}
			j.configs[task] = c
		}
		errs := j.open(absent)
		if len(errs) != 3 {
			t.Fatalf("%d tasks", len(errs))
		}
		for _, err := range errs {
			blames(t, err, absent, "not there within 500ms", "no sign of")
		}
	}
}

func TestOpenNamesMissingChief(t *testing.T) {
	j := newJob(t, t.TempDir(), shape{servers: 1, workers: 2, hosts: []string{"a"}})
	for task, c := range j.configs {
		c.Start = 300 * time.Millisecond
		j.configs[task] = c
	}
	j.listeners[cluster.Chief].Close()
	for _, err := range j.open(cluster.Chief) {
		blames(t, err, cluster.Chief, "not there within 300ms")
	}
}

// If a task connects and then disconnects, the other tasks' Open fails at
// once.
func TestOpenFailsIfATaskIsLost(t *testing.T) {
	j := newJob(t, t.TempDir(), shape{workers: 3, hosts: []string{"a"}})
	ended := make(chan error, 1)
	go func() {
		_, err := Open(t.Context(), j.configs[cluster.Chief])
		ended <- err
	}()
	conn := j.control(worker(1))
	if err := send(conn, message{Kind: hello, Token: "t"}); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	blames(t, within(t, ended), worker(1), "connection lost")
}

// send sends one message, receive reads one.
func send(s *peers.Session, m message) error { return s.SendJSON(wire.Message, m, maxMessage) }

func receive(s *peers.Session) (m message, err error) {
	err = s.NextJSON(wire.Message, &m, maxMessage)
	return m, err
}

// control connects to the chief's store and authenticates as the given task.
func (j *testJob) control(as cluster.Task) *peers.Session { return j.dial(as, cluster.Chief, purpose) }

func (j *testJob) dial(as, to cluster.Task, purpose string) *peers.Session {
	j.t.Helper()
	c := j.configs[as]
	conn, err := peers.Open(soon(j.t), c.Peers, to, c.Cluster.Addr(to), purpose, c.Silence)
	if err != nil {
		j.t.Fatal(err)
	}
	j.t.Cleanup(func() { conn.Close() })
	return conn
}

func TestInvalidHelloIsRefused(t *testing.T) {
	j := opened(t, t.TempDir(), shape{workers: 2, hosts: []string{"a"}})
	for name, first := range map[string]message{
		"a second time": {Kind: hello, Token: "t"},
		"no hello":      {Kind: leave},
		"no token":      {Kind: hello},
	} {
		conn := j.control(worker(1))
		if err := send(conn, first); err != nil {
			t.Fatal(err)
		}
		if m, err := receive(conn); err == nil {
			t.Errorf("%s: heard %v", name, m.Kind)
		}
	}
	if got := j.lines("WARN", "refused worker:1"); len(got) != 3 {
		t.Errorf("%q", got)
	}
	j.choose()
	j.end()
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	alone := peers.Config{Self: cluster.Chief, Workers: 1}
	for want, c := range map[string]Config{
		"no folder is given":        {Peers: alone},
		"want at least 1":           {Peers: alone, Dir: dir, Keep: -1},
		"is negative":               {Peers: alone, Dir: dir, Silence: -1},
		"no listener":               {Peers: peers.Config{Self: cluster.Chief, Workers: 2}, Dir: dir},
		"no listener for the other": {Peers: peers.Config{Self: ps(0), Servers: 1}, Dir: dir},
		"is a file, not a fold":     {Peers: alone, Dir: file},
	} {
		if _, err := Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A job of one task needs no listener and waits for no other task.
func TestSingleTaskNeedsNoListener(t *testing.T) {
	dir, random := t.TempDir(), rand.New(rand.NewPCG(1, 2))
	w := newTwin(random, optimizer.Adam)
	for step := range uint64(2) {
		c := Config{Peers: peers.Config{Self: cluster.Chief, Generation: int(step)}, Dir: dir}
		d, err := Open(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		j := &testJob{t: t, tasks: []cluster.Task{cluster.Chief}, stores: map[cluster.Task]*Store{cluster.Chief: d}}
		m := j.choose()
		if (m != nil) != (step > 0) {
			t.Fatalf("chosen %v at step %d", m, step)
		}
		if m != nil {
			j.restores(w, w.Declare(random, j.tasks, m.ID))
		}
		j.save(w, step, w.Declare(random, j.tasks, ""))
		j.end()
	}
	if probes := files(t, filepath.Dir(dir), ".probe*"); len(probes) > 0 {
		t.Errorf("left behind: %q", probes)
	}
}

func TestTasksAreGroupedByFolder(t *testing.T) {
	for _, test := range []struct {
		seen []string // by task, whose tokens
		want [][]int
	}{
		{[]string{"a", "b", "c"}, [][]int{{0}, {1}, {2}}},
		{[]string{"abc", "abc", "abc"}, [][]int{{0, 1, 2}}},
		{[]string{"ac", "bd", "ac", "bd"}, [][]int{{0, 2}, {1, 3}}},
		{[]string{"a", "ab", "bc", "d"}, [][]int{{0, 1, 2}, {3}}}, // a task may not see all tokens of its group yet, as on a slow network file system
		{[]string{"ad", "bc", "c", "bd"}, [][]int{{0, 1, 2, 3}}},
		{[]string{"", "x", "ca"}, [][]int{{0, 2}, {1}}},
	} {
		tokens := []string{"a", "b", "c", "d"}[:len(test.seen)]
		var seen [][]string
		for _, s := range test.seen {
			seen = append(seen, strings.Split(s, ""))
		}
		if got := grouped(tokens, seen); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%q: %v, want %v", test.seen, got, test.want)
		}
	}
}

func TestBuddyIsOnAnotherHost(t *testing.T) {
	j := testJob{hosts: map[cluster.Task]string{ps(0): "a", worker(0): "a", worker(1): "b", worker(2): "b", worker(3): "a", ps(1): "c"}}
	plan := copyPlan{host: func(t cluster.Task) string { return j.hosts[t] }}
	group := func(tasks ...cluster.Task) (g []*member) {
		for _, t := range tasks {
			g = append(g, &member{task: t})
		}
		return g
	}
	for name, test := range map[string]struct {
		groups [][]*member
		want   map[cluster.Task]cluster.Task
	}{
		"one":    {[][]*member{group(ps(0), worker(1))}, map[cluster.Task]cluster.Task{}},
		"spread": {[][]*member{group(ps(0), worker(0)), group(worker(1), worker(2))}, map[cluster.Task]cluster.Task{ps(0): worker(1), worker(0): worker(2), worker(1): ps(0), worker(2): worker(0)}},
		"ring":   {[][]*member{group(ps(0), worker(0)), group(worker(1)), group(ps(1))}, map[cluster.Task]cluster.Task{ps(0): worker(1), worker(0): worker(1), worker(1): ps(1), ps(1): ps(0)}},
		"other host": {[][]*member{group(worker(0)), group(worker(3)), group(worker(1))},
			map[cluster.Task]cluster.Task{worker(0): worker(1), worker(3): worker(1), worker(1): worker(0)}},
		"one host": {[][]*member{group(worker(0)), group(worker(3))}, map[cluster.Task]cluster.Task{worker(0): worker(3), worker(3): worker(0)}},
	} {
		for task := range j.hosts {
			got := plan.buddy(test.groups, task)
			if want, ok := test.want[task]; ok != (got != nil) || ok && *got != want {
				t.Errorf("%s: %s has %v, want %v, %t", name, task, got, want, ok)
			}
		}
	}
}

// The chief recognizes a folder that tasks share. A copy of that folder with
// all its content, on another host, must not count as shared.
func TestCopiedFolderIsNotTakenForShared(t *testing.T) {
	root := t.TempDir()
	j := opened(t, root, shape{workers: 2, hosts: []string{"a"}})
	if g := j.chief().chief.roster.groups; !reflect.DeepEqual(g, [][]cluster.Task{{worker(0), worker(1)}}) {
		t.Errorf("groups %v", g)
	}
	j.says("DEBUG+2", "checkpoints lie on a alone")
	random := rand.New(rand.NewPCG(3, 4))
	w := newTwin(random, optimizer.SGD)
	j.choose()
	j.save(w, 5, w.Declare(random, j.tasks, ""))
	j.end()
	if got := files(t, filepath.Join(root, "a"), "*.json"); len(got) != 1 {
		t.Errorf("manifests %q", got)
	}
	if err := os.CopyFS(filepath.Join(root, "b"), os.DirFS(filepath.Join(root, "a"))); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "b", ".probe-old"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	j = opened(t, root, shape{workers: 2, hosts: []string{"a", "b"}, generation: 1})
	if g := j.chief().chief.roster.groups; !reflect.DeepEqual(g, [][]cluster.Task{{worker(0)}, {worker(1)}}) {
		t.Errorf("groups %v", g)
	}
	m := j.choose()
	j.restores(w, w.Declare(random, j.tasks, m.ID))
	j.save(w, 6, w.Declare(random, j.tasks, ""))
	j.end()
	for _, host := range []string{"a", "b"} { // both hosts have all files, because each keeps the other's second copy
		if got := names(files(t, filepath.Join(root, host), "*")); len(got) != 2*len(slices.Compact(slices.Clone(got))) {
			t.Errorf("%s: %q", host, got)
		}
	}
	j = newJob(t, root, shape{workers: 2, hosts: []string{"a", "b"}, generation: 2})
	for task, c := range j.configs { // two hosts share one folder, as on a network file system
		c.Dir = filepath.Join(root, "a")
		j.configs[task] = c
	}
	j.open()
	j.says("DEBUG+2", "one folder that 2 hosts share")
	j.choose()
	for _, d := range j.stores {
		d.Restored()
	}
	j.save(w, 7, w.Declare(random, j.tasks, ""))
	j.says("checkpoint of step 7", "on 2 hosts")
	j.end()
}

// Chosen returns when its context ends or the connection to the chief ends.
func TestChosenEndsWithContextOrChief(t *testing.T) {
	j := opened(t, t.TempDir(), shape{workers: 2, hosts: []string{"a"}})
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := j.stores[worker(1)].Chosen(ctx); !errors.Is(err, why) {
		t.Errorf("%v", err)
	}
	if _, err := j.stores[worker(1)].Choose(t.Context(), anything); err == nil {
		t.Error("a worker has chosen")
	}
	if err := j.stores[worker(1)].Expect(Expected{}); err == nil {
		t.Error("a worker has saved")
	}
	waiting := make(chan error, 1)
	go func() {
		_, err := j.stores[worker(1)].Chosen(soon(t))
		waiting <- err
	}()
	j.chief().Close()
	blames(t, within(t, waiting), cluster.Chief, "it has ended")
}
