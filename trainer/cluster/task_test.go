package cluster

import (
	"encoding/json"
	"reflect"
	"testing"
)

func TestParseTask(t *testing.T) {
	for text, want := range map[string]Task{
		"worker:0": {Worker, 0}, "worker:12": {Worker, 12}, "ps:3": {PS, 3},
	} {
		got, err := ParseTask(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("ParseTask(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", ":", "worker", "worker:", "worker:-1", "worker:+1", "worker:01", "worker: 1", "worker:1 ", "Worker:1",
		"chief:0", "ps:1:2", "ps:99999999999999999999", ":0",
	} {
		if got, err := ParseTask(text); err == nil || got != (Task{}) {
			t.Errorf("ParseTask(%q) = %v, %v; want an error", text, got, err)
		}
	}
}

func TestChiefIsWorkerZero(t *testing.T) {
	if !(Task{Worker, 0}).IsChief() || (Task{PS, 0}).IsChief() || (Task{Worker, 1}).IsChief() {
		t.Error("the chief is worker 0 and no other")
	}
}

func FuzzParseTask(f *testing.F) {
	for _, s := range []string{"worker:0", "ps:12", "worker:-1", "worker:007", "ps:", "\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		task, err := ParseTask(s)
		if err != nil {
			return
		}
		if task.String() != s || task.Index < 0 || (task.Role != Worker && task.Role != PS) {
			t.Errorf("ParseTask(%q) = %#v", s, task)
		}
		text, err := json.Marshal(map[Task]int{task: 1})
		back := map[Task]int{}
		if err != nil || json.Unmarshal(text, &back) != nil || back[task] != 1 {
			t.Errorf("%v does not survive JSON: %s, %v", task, text, err)
		}
	})
}

func TestSpecAddresses(t *testing.T) {
	var s Spec
	s.Set(Task{Worker, 2}, "c:3")
	s.Set(Task{PS, 0}, "p:1")
	s.Set(Task{Worker, 0}, "a:1")
	if want := (Spec{PS: []string{"p:1"}, Worker: []string{"a:1", "", "c:3"}}); !reflect.DeepEqual(s, want) {
		t.Fatalf("got %+v, want %+v", s, want)
	}
	if task, ok := s.unaddressed(); !ok || task != (Task{Worker, 1}) {
		t.Errorf("without an address: %v, %v; want worker:1", task, ok)
	}
	for task, want := range map[Task]string{{Worker, 2}: "c:3", {PS, 0}: "p:1", {Worker, 3}: "", {PS, 1}: "", {Worker, -1}: ""} {
		if got := s.Addr(task); got != want {
			t.Errorf("Addr(%v) = %q, want %q", task, got, want)
		}
	}
}
