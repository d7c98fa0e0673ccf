package store

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/checkpoint/choose"
	"github.com/plx-run/plx/trainer/cluster"
)

// Every folder that has files of a save needs its manifest. So while manifests
// are written, the save survives only the loss of a task whose folder has none
// of its files.
func TestSaveSurvivesLossOfUninvolvedTask(t *testing.T) {
	there, lost := newMember(worker(0), message{}), newMember(worker(1), message{})
	lost.gone.take(nil)
	keeper := worker(1)
	for name, c := range map[string]struct {
		group   []*member
		buddies map[cluster.Task]*cluster.Task // by task that writes
		want    bool
	}{
		"another folder":          {[]*member{there, lost}, map[cluster.Task]*cluster.Task{ps(0): nil}, true},
		"it has written":          {[]*member{there, lost}, map[cluster.Task]*cluster.Task{worker(1): nil}, false},
		"its neighbour has":       {[]*member{there, lost}, map[cluster.Task]*cluster.Task{worker(0): nil}, false},
		"it has the second copy":  {[]*member{there, lost}, map[cluster.Task]*cluster.Task{ps(0): &keeper}, false},
		"nobody is lost":          {[]*member{there}, map[cluster.Task]*cluster.Task{ps(0): nil}, false},
		"a folder of nobody else": {[]*member{lost}, map[cluster.Task]*cluster.Task{ps(0): nil}, true},
	} {
		if got := new(chief).lostWithoutPart(&save{buddies: c.buddies}, c.group); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// A manifest lists files and parts in sorted order, regardless of the order of
// the reports.
func TestManifestIsSorted(t *testing.T) {
	var tasks []cluster.Task
	for i := range 9 {
		tasks = append(tasks, ps(i))
	}
	s := newSave(Expected{Holders: tasks}, 0)
	for i, task := range slices.Backward(tasks) {
		r := report{File: &checkpoint.File{Task: task.String(), Name: fmt.Sprintf("ps-%d.safetensors", i)},
			Parts: []checkpoint.Part{{Variable: "w", Offset: 10 * i}, {Variable: "b", Offset: i}}}
		s.take(task, &r, cluster.Task.String)
	}
	m, err := s.manifest(0)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Files) != 9 || !slices.IsSortedFunc(m.Files, func(a, b checkpoint.File) int { return strings.Compare(a.Name, b.Name) }) {
		t.Errorf("files %+v", m.Files)
	}
	if len(m.Parts) != 18 || !slices.IsSortedFunc(m.Parts, func(a, b checkpoint.Part) int {
		return cmp.Or(strings.Compare(a.Variable, b.Variable), cmp.Compare(a.Offset, b.Offset))
	}) {
		t.Errorf("parts %+v", m.Parts)
	}
}

// After a timeout of ask, no trace of the request remains, and a late answer
// is dropped.
func TestLateAnswerIsDropped(t *testing.T) {
	m := newMember(ps(0), message{})
	if _, err := m.ask(t.Context(), message{Kind: list}, time.Millisecond); err == nil || !strings.Contains(err.Error(), "no answer within 1ms") {
		t.Errorf("%v, want no answer", err)
	}
	if len(m.requests) > 0 {
		t.Errorf("%d requests wait for their answers", len(m.requests))
	}
	m.answer(message{Kind: answer, Number: 1})
}

// Carried returns an error for rows outside of the checkpoint's batch, instead
// of zeros or fewer rows.
func TestCarriedRefusesRowsOutsideBatch(t *testing.T) {
	s := &Store{decision: decision{event: newEvent()}}
	s.decision.choice = choose.Choice{Manifest: &checkpoint.Manifest{ID: "000000000007-0", Batch: 8, Carried: []checkpoint.Carried{{Name: "h", Hi: 8, Shape: []int{8, 2}}}}}
	s.decision.take(nil)
	for _, rows := range [][2]int{{-1, 2}, {3, 2}, {7, 9}, {9, 9}} {
		if _, _, err := s.Carried(t.Context(), "h", rows[0], rows[1]); err == nil || !strings.Contains(err.Error(), `of "h": it has 8`) {
			t.Errorf("rows %v: %v, want that there are 8", rows, err)
		}
	}
}
