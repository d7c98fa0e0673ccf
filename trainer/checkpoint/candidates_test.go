package checkpoint

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
)

var (
	worker0 = cluster.Task{Role: cluster.Worker}
	worker1 = cluster.Task{Role: cluster.Worker, Index: 1}
	ps0     = cluster.Task{Role: cluster.PS}
)

// twoFiles returns the manifest of a checkpoint with two files: a by worker:0
// and b by ps:0.
func twoFiles(id string) *Manifest {
	sum := strings.Repeat("0", 64)
	return manifest(id, File{Name: "a", Task: "worker:0", Size: 1, Sum: sum}, File{Name: "b", Task: "ps:0", Size: 2, Sum: sum})
}

func places(on0, on1, onPS FolderCopies) []Place {
	return []Place{{[]cluster.Task{worker0}, "gpu0", on0}, {[]cluster.Task{worker1}, "gpu1", on1}, {[]cluster.Task{ps0}, "store", onPS}}
}

func TestCandidates(t *testing.T) {
	m := twoFiles(id(40))
	other := twoFiles(id(40))
	other.Job = "other"
	a, b, both := map[string]int64{"a": 1}, map[string]int64{"b": 2}, map[string]int64{"a": 1, "b": 2}
	for name, test := range map[string]struct {
		places     []Place
		missing    string // after "checkpoint ID: "
		holders    map[string][]cluster.Task
		unfinished bool
	}{
		"each its own": {places: places(FolderCopies{{ID: id(40), Manifest: m, Files: a}}, nil, FolderCopies{{ID: id(40), Manifest: m, Files: b}}),
			holders: map[string][]cluster.Task{"a": {worker0}, "b": {ps0}}},
		"copies": {places: places(FolderCopies{{ID: id(40), Manifest: m, Files: both}}, FolderCopies{{ID: id(40), Manifest: twoFiles(id(40)), Files: a}}, FolderCopies{{ID: id(40), Manifest: m, Files: both}}),
			holders: map[string][]cluster.Task{"a": {worker0, worker1, ps0}, "b": {worker0, ps0}}},
		"the manifest on one host only": {places: places(FolderCopies{{ID: id(40), Damage: unfinished, Files: a}}, FolderCopies{{ID: id(40), Manifest: m}}, FolderCopies{{ID: id(40), Damage: "manifest: it was cut short", Files: b}}),
			holders: map[string][]cluster.Task{"a": {worker0}, "b": {ps0}}},
		"a copy cut short": {places: places(FolderCopies{{ID: id(40), Manifest: m, Files: both}}, FolderCopies{{ID: id(40), Manifest: m, Files: map[string]int64{"b": 1}}}, nil),
			holders: map[string][]cluster.Task{"a": {worker0}, "b": {worker0}}},
		"a lost host": {places: places(FolderCopies{{ID: id(40), Manifest: m, Files: a}}, nil, nil),
			missing: "b is on no host, ps:0 wrote it"},
		"all are lost": {places: places(FolderCopies{{ID: id(40), Manifest: m}}, nil, nil),
			missing: "a is on no host, worker:0 wrote it, b is on no host, ps:0 wrote it"},
		"cut short everywhere": {places: places(FolderCopies{{ID: id(40), Manifest: m, Files: map[string]int64{"a": 1, "b": 0}}}, FolderCopies{{ID: id(40), Files: map[string]int64{"b": 3}}}, nil),
			missing: "b has the right size on no host: worker:0 on host gpu0 has 0 bytes of it, not 2, worker:1 on host gpu1 has 3 bytes of it, not 2"},
		"no manifest": {places: places(FolderCopies{{ID: id(40), Damage: unfinished, Files: a}}, nil, FolderCopies{{ID: id(40), Damage: unfinished, Files: b}}),
			missing: "its manifest is on no host: it was not finished", unfinished: true},
		"no good manifest": {places: places(FolderCopies{{ID: id(40), Damage: unfinished, Files: a}}, FolderCopies{{ID: id(40), Damage: "manifest: it was cut short"}}, nil),
			missing: "worker:1 on host gpu1: manifest: it was cut short"},
		"two manifests": {places: places(FolderCopies{{ID: id(40), Damage: unfinished, Files: a}}, FolderCopies{{ID: id(40), Manifest: m, Files: both}}, FolderCopies{{ID: id(40), Manifest: other, Files: both}}),
			missing: "ps:0 on host store has a different manifest of it than worker:1 on host gpu1: another job wrote it"},
	} {
		all := Candidates(test.places)
		if len(all) != 1 || all[0].ID != id(40) {
			t.Errorf("%s: got %+v", name, all)
			continue
		}
		c, want := all[0], ""
		if test.missing != "" {
			want = "checkpoint " + id(40) + ": " + test.missing
		}
		if c.Missing != want || c.Unfinished != test.unfinished {
			t.Errorf("%s: unfinished %t, got %q, want %q", name, c.Unfinished, c.Missing, want)
		}
		if want == "" && !maps.EqualFunc(c.Holders, test.holders, slices.Equal[[]cluster.Task]) {
			t.Errorf("%s: held by %v, want %v", name, c.Holders, test.holders)
		}
		if want == "" && c.Manifest == nil {
			t.Errorf("%s: no manifest", name)
		}
	}
}

func TestCandidatesAreNewestFirst(t *testing.T) {
	late, early := formatID(30, 1, "00000000"), formatID(30, 1, "ffffffff")
	of := func(id string, at time.Duration) FolderCopy {
		m := twoFiles(id)
		m.Time = epoch.Add(at)
		return FolderCopy{ID: id, Manifest: m}
	}
	got := Candidates(places(
		FolderCopies{of(early, 1), {ID: id(20)}, {ID: "../x"}},
		FolderCopies{of(id(10), 9), {ID: id(40), Damage: unfinished}},
		FolderCopies{of(late, 2), of(early, 1), of(id(20), 0)}))
	var order []string
	for _, c := range got {
		order = append(order, c.ID)
	}
	if want := []string{id(40), late, early, id(20), id(10)}; !slices.Equal(order, want) {
		t.Errorf("got %v, want %v", order, want)
	}
	if Candidates(nil) != nil || Candidates(places(nil, nil, nil)) != nil {
		t.Error("candidates of nothing")
	}
}

func TestCandidateListsAtMostThreeReasons(t *testing.T) {
	m := twoFiles(id(40))
	for _, name := range []string{"c", "d", "e"} {
		m.Files = append(m.Files, File{Name: name, Task: "ps:1", Size: 1, Sum: m.Files[0].Sum})
	}
	got := Candidates([]Place{{[]cluster.Task{worker0}, "gpu0", FolderCopies{{ID: id(40), Manifest: m}}}})[0].Missing
	if want := "c is on no host, ps:1 wrote it, and 2 more"; !strings.HasSuffix(got, want) {
		t.Errorf("got %q, want it to end in %q", got, want)
	}
}
