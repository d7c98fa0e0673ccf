package event

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// Each event is one line, with only fields that docs/output.md names.
func TestEvents(t *testing.T) {
	var stdout bytes.Buffer
	e := New(func(_ Kind, line []byte) { stdout.Write(line) })
	worker := func(i int) cluster.Task { return cluster.Task{Role: cluster.Worker, Index: i} }
	server := cluster.Task{Role: cluster.PS, Index: 0}
	plan := []protocol.HostPlan{{Host: "h1", Tasks: []protocol.TaskSpec{{Task: worker(0), Devices: "0"}}}, {Host: "h2"}}
	e.Begin("j-1", "j", "./train", plan)
	e.Started("h1", protocol.Started{PIDs: map[cluster.Task]int{worker(10): 3, worker(2): 2, server: 1}})
	e.Exited("h1", protocol.Exit{Task: worker(2), Code: 143, Signal: 15})
	e.Exited("h1", protocol.Exit{Task: worker(2), Code: 143, Signal: 15}) // after a lost connection
	e.Exited("h1", protocol.Exit{Task: worker(2), Generation: 1})
	e.Restarted(1, plan)
	e.Hung(protocol.Hang{After: 5 * time.Second, Culprit: "worker:1", Host: "h2", Why: "it \x1b sleeps\u202e"})
	e.Noted("restarting in 1s")
	e.Ended(1, "failed", 1500*time.Millisecond, errors.New("a\nb"))
	got := regexp.MustCompile(`"time":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z","job":"j-1"`).ReplaceAllString(stdout.String(), "AT")
	const want = `{"v":1,"event":"begin",AT,"name":"j","program":"./train","hosts":[{"host":"h1","tasks":[{"task":"worker:0","devices":"0"}]}]}
{"v":1,"event":"start",AT,"generation":0,"host":"h1","task":"ps:0"}
{"v":1,"event":"start",AT,"generation":0,"host":"h1","task":"worker:2"}
{"v":1,"event":"start",AT,"generation":0,"host":"h1","task":"worker:10"}
{"v":1,"event":"exit",AT,"generation":0,"host":"h1","task":"worker:2","status":143,"signal":15}
{"v":1,"event":"exit",AT,"generation":1,"host":"h1","task":"worker:2","status":0}
{"v":1,"event":"restart",AT,"generation":1,"hosts":[{"host":"h1","tasks":[{"task":"worker:0","devices":"0"}]}]}
{"v":1,"event":"hang",AT,"host":"h2","seconds":5,"culprit":"worker:1","why":"it \u001b sleeps\u202e"}
{"v":1,"event":"note",AT,"text":"restarting in 1s"}
{"v":1,"event":"end",AT,"status":1,"seconds":1.5,"verdict":"failed","error":"a\nb"}
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	var none *Log
	none.Begin("", "", "", nil)
	none.Started("", protocol.Started{})
	none.Exited("", protocol.Exit{})
	none.Restarted(1, nil)
	none.Noted("")
	none.Hung(protocol.Hang{})
	none.Ended(0, "", 0, nil)
}

// An event file has mode 0600 and a size limit that leaves room for the end
// event. A truncated line is skipped.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	l := New(File(path))
	l.Begin("j-1", "", "./train", nil)
	for range 2000 {
		l.Noted(strings.Repeat("x", 1024))
	}
	l.Ended(0, "done", time.Second, nil)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 || info.Size() > MaxFile || info.Size() < fileRoom-2048 {
		t.Fatalf("%v, %v", info, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all := Parse(append(text[:len(text):len(text)], "{\"v\":1,\"event\":\"exit\",\"ti\n{\"v\":2,\"event\":\"x\"}\nnull\n"...))
	if n := len(all); n < 1000 || all[0].Event != Begin || all[n-1].Event != End || all[n-1].Verdict != "done" {
		t.Errorf("%d events, the last is %+v", n, all[n-1])
	}
	if none, err := ReadFile(path + ".none"); none != nil || err != nil {
		t.Errorf("no file: %v, %v", none, err)
	}
	if again, err := ReadFile(path); err != nil || len(again) != len(all) {
		t.Errorf("%d of %d events, %v", len(again), len(all), err)
	}
}

// For any content, Parse returns only events of this version.
func FuzzParse(f *testing.F) {
	f.Add([]byte("{\"v\":1,\"event\":\"begin\",\"hosts\":[{}]}\n{"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, e := range Parse(text) {
			if e.Version != version || e.Event == "" {
				t.Errorf("%+v", e)
			}
		}
	})
}
