package choose

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/optimizer"
)

func worker(i int) cluster.Task { return cluster.Task{Role: cluster.Worker, Index: i} }

// folders implements Folders for tests, with fixed listings and a set of
// damaged copies.
type folders struct {
	places []checkpoint.Place
	bad    map[string]bool // keys are "task checkpoint-ID": copies that Verify reports as damaged

	mu   sync.Mutex
	read []string // by whom, sorted
}

func (f *folders) Places(context.Context) ([]checkpoint.Place, error) { return f.places, nil }

func (f *folders) Verify(_ context.Context, by cluster.Task, id string, file checkpoint.File) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.read = append(f.read, fmt.Sprint(by, " ", file.Name))
	slices.Sort(f.read)
	if f.bad[fmt.Sprint(by, " ", id)] {
		return fmt.Errorf("%s: damaged", by)
	}
	return nil
}

// held returns a checkpoint with these files, as a folder that has all of them
// lists it.
func held(t *testing.T, step uint64, files ...string) checkpoint.FolderCopy {
	t.Helper()
	m := &checkpoint.Manifest{ID: fmt.Sprintf("%012d-g0-00000001", step), Step: step, Time: time.Unix(int64(step), 0), VirtualWorkers: 1,
		Optimizer: optimizer.Settings{Rule: optimizer.SGD}, Variables: []checkpoint.Variable{{Name: "w", Dtype: "float32", Shape: []int{1}}}}
	sizes := map[string]int64{}
	for _, name := range files {
		m.Files = append(m.Files, checkpoint.File{Name: name, Task: "worker:0", Size: 100, Sum: strings.Repeat("0", 64)})
		sizes[name] = 100
	}
	m.Parts = []checkpoint.Part{{Variable: "w", File: files[0], Tensor: "w", Count: 1, Rows: -1}}
	return checkpoint.FolderCopy{ID: m.ID, Manifest: m, Files: sizes}
}

func TestNewest(t *testing.T) {
	old, now := held(t, 10, "a"), held(t, 20, "a", "b")
	lost := now
	lost.Files = map[string]int64{"a": 100}
	unfinished := checkpoint.FolderCopy{ID: "000000000030-g0-00000001", Damage: "no manifest: it was not finished"}
	both := []cluster.Task{worker(0), worker(1)}
	all := func(*checkpoint.Manifest) error { return nil }
	for name, test := range map[string]struct {
		holding []checkpoint.FolderCopies // by folder
		fits    func(*checkpoint.Manifest) error
		bad     map[string]bool
		step    uint64 // zero: nothing is chosen
		holders map[string][]cluster.Task
		want    string // text expected in the error, or in the log if there is no error
	}{
		"nothing":        {[]checkpoint.FolderCopies{nil, nil}, all, nil, 0, nil, "begins anew"},
		"the newest":     {[]checkpoint.FolderCopies{{now, old}, {now, old}}, all, nil, 20, map[string][]cluster.Task{"a": {worker(0), worker(1), worker(2)}, "b": {worker(0), worker(1), worker(2)}}, ""},
		"a file is lost": {[]checkpoint.FolderCopies{{lost, old}, nil}, all, nil, 10, map[string][]cluster.Task{"a": both}, "b is on no host"},
		"a bad copy":     {[]checkpoint.FolderCopies{{now}, {now}}, all, map[string]bool{"worker:2 " + now.ID: true}, 20, map[string][]cluster.Task{"a": both, "b": both}, "ignored an unusable copy: worker:2: damaged"},
		"all copies bad": {[]checkpoint.FolderCopies{{old}, {now}}, all, map[string]bool{"worker:2 " + now.ID: true}, 10, map[string][]cluster.Task{"a": both}, "a has no intact copy on any host: worker:2: damaged"},
		"another program": {[]checkpoint.FolderCopies{{old}, {now}}, func(m *checkpoint.Manifest) error {
			if m.Step == 20 {
				return errors.New("of another program")
			}
			return nil
		}, nil, 10, map[string][]cluster.Task{"a": both}, "skipped: of another program"},
		"none is good":    {[]checkpoint.FolderCopies{{old}, nil}, func(*checkpoint.Manifest) error { return errors.New("of another program") }, nil, 0, nil, "no checkpoint is good to resume from: of another program"},
		"only unfinished": {[]checkpoint.FolderCopies{{unfinished}, nil}, all, nil, 0, nil, "begins anew"},
	} {
		f := &folders{bad: test.bad, places: []checkpoint.Place{{Tasks: both, Host: "x", Holding: test.holding[0]}, {Tasks: []cluster.Task{worker(2)}, Host: "y", Holding: test.holding[1]}}}
		var log strings.Builder
		c, err := Newest(t.Context(), f, test.fits, func(_ slog.Level, format string, args ...any) { fmt.Fprintf(&log, format+"\n", args...) })
		if err != nil {
			fmt.Fprint(&log, err)
		}
		switch {
		case (c.Manifest == nil) != (test.step == 0) || c.Manifest != nil && c.Manifest.Step != test.step:
			t.Errorf("%s: chosen %+v, %v", name, c.Manifest, err)
		case c.Manifest != nil && !reflect.DeepEqual(c.Holders, test.holders):
			t.Errorf("%s: holders %v", name, c.Holders)
		case !strings.Contains(log.String(), test.want):
			t.Errorf("%s: says %q, want %q", name, log.String(), test.want)
		}
	}
}

// Tasks that share a folder take turns at verifying its files.
func TestTasksOfAFolderShareVerification(t *testing.T) {
	f := &folders{places: []checkpoint.Place{{Tasks: []cluster.Task{worker(0), worker(1)}, Host: "x", Holding: checkpoint.FolderCopies{held(t, 10, "a", "b", "c")}}}}
	if _, err := Newest(t.Context(), f, func(*checkpoint.Manifest) error { return nil }, func(slog.Level, string, ...any) {}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"worker:0 a", "worker:0 c", "worker:1 b"}; !slices.Equal(f.read, want) {
		t.Errorf("read %q, want %q", f.read, want)
	}
}
