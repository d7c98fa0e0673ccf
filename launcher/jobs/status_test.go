package jobs

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/metrics"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/logs/style"
	"github.com/plx-run/plx/trainer/cluster"
)

// ended returns the status of a job that hung. Each text that comes from a
// host contains word.
func ended(word string) (status, *Job) {
	record := Record{Job: "j-1", Hosts: []HostRecord{{Tasks: []string{"worker:0", "worker:1"}}}}
	v := protocol.Verdict{Code: 124, Reason: "hung: " + word, Culprit: "worker:1", Host: "h2" + word, Victims: []string{"worker:3 on h4" + word}, Notices: []string{"a notice" + word},
		First: &protocol.Exit{Task: cluster.Task{Role: cluster.Worker, Index: 1}, Code: 137, Signal: 9, Tail: "first\nlast" + word + "\n", OOM: "the log" + word, Shm: "full" + word},
		Ends: []protocol.TaskEnd{{Task: "worker:1", Host: "h2" + word, Part: protocol.Culprit, Code: 137, Signal: 9, Cause: "why" + word},
			{Task: "worker:0", Host: "h1", Part: protocol.Unknown}}, MoreEnds: 3,
		Hang: &protocol.Hang{After: time.Minute, Culprit: "worker:1" + word, Host: "h2" + word, Why: word, Waits: []string{"worker:0 waits" + word}, Stack: []string{word}, File: "/a/stacks/worker-1.0.txt" + word}}
	return status{row: row{Job: "j-1", State: "hung", Reason: v.Reason, Code: &v.Code}, Verdict: &v}, &Job{Record: record}
}

func TestStatusOfAnEndedJob(t *testing.T) {
	for _, word := range []string{"", "\x1b[2J\x07\r\u009b5n"} {
		s, j := ended(word)
		var stdout, stderr bytes.Buffer
		terminal := console.Terminal{Stdout: &stdout, Stderr: &stderr}
		j.printer = console.NewPrinter(terminal)
		if err := s.print(terminal, j); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsAny(stdout.String()+stderr.String(), "\x1b\x07\r\u009b") {
			t.Errorf("control characters of a host: %q\n%q", stdout.String(), stderr.String())
		}
		if word != "" {
			continue
		}
		for _, want := range []string{"worker:1    h2    culprit  137   SIGKILL  why\n", "worker:0    h1    unknown\n", "and 3 more\n"} {
			if !strings.Contains(stdout.String(), want) {
				t.Errorf("no %q in\n%s", want, stdout.String())
			}
		}
		const want = "plx: worker:0 waits\nplx: a notice\nplx: stacks of worker:1: /a/stacks/worker-1.0.txt on h2\nplx: last lines of worker:1 on h2:\nplx:   first\nplx:   last\n" +
			"plx: failed because of it: worker:3 on h4\nplx: job j-1: hung: \nplx: hint: plx stacks j-1 prints where its tasks were\nplx: hint: plx exec --host h2 -- free -h"
		if !strings.HasPrefix(stderr.String(), want) {
			t.Errorf("stderr:\n%s", stderr.String())
		}
	}
}

// A parameter server that ended because it stores no variables is shown as not
// needed, not as exited.
func TestIdleServerIsNotNeeded(t *testing.T) {
	well := protocol.Exit{Native: true, Finished: true}
	for want, now := range map[string]struct {
		task string
		exit protocol.Exit
	}{
		notNeeded: {"ps:0", well}, exited(0): {"worker:1", well}, exited(3): {"ps:0", protocol.Exit{Native: true, Code: 3}},
	} {
		r := taskStatus{Task: now.task, Code: &now.exit.Code, idle: idleServer(now.task, now.exit)}
		if got := stateOf(r); got != want {
			t.Errorf("%s: %q, want %q", now.task, got, want)
		}
	}
	if taskLevel("STATE", notNeeded) != style.Good {
		t.Error("it looks like a failure")
	}
}

// A metric may be NaN, which JSON encodes as a string. The agent of an older
// plx reports no metrics.
func TestStatusHasMetrics(t *testing.T) {
	text, err := json.Marshal([]taskStatus{{Metrics: map[string]metrics.Number{"loss": metrics.Number(math.NaN()), "step": 3}}, {}})
	want := `[{"task":"","host":"","still":0,"quiet":0,"metrics":{"loss":"NaN","step":3}},{"task":"","host":"","still":0,"quiet":0}]`
	if err != nil || string(text) != want {
		t.Errorf("%s, %v, want %s", text, err, want)
	}
}

// The names of the JSON fields are those in docs/launching.md.
func TestStatusJSONFields(t *testing.T) {
	s, _ := ended("")
	s.TaskRows, s.Unreachable = []taskStatus{{Task: "worker:0", Host: "h1", PID: 7, Step: 3, Age: 9.5, Idle: 1, IOIdle: 2}}, []string{"h3"}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"job":"j-1"`, `"state":"hung"`, `"culprit":"worker:1","host":"h2"`, `"part":"culprit","code":137,"signal":9,"cause":"why"`, `"moreEnds":3`,
		`"oom":"the log"`, `"hang":{"after":60000000000,"culprit":"worker:1"`, `"file":"/a/stacks/worker-1.0.txt"`, `"notices":["a notice"]`,
		`"taskStatus":[{"task":"worker:0","host":"h1","pid":7,"step":3,"age":9.5,"still":1,"quiet":2}]`, `"unheard":["h3"]`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
}
