package launcher

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"testing"
	"time"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// Each event is one line, with the fields that docs/output.md names and no others.
func TestEvents(t *testing.T) {
	var stdout bytes.Buffer
	e := newEvents(true, console.NewPrinter(console.Terminal{Stdout: &stdout, Stderr: io.Discard}))
	worker := func(i int) cluster.Task { return cluster.Task{Role: cluster.Worker, Index: i} }
	server := cluster.Task{Role: cluster.PS, Index: 0}
	plan := []protocol.HostPlan{{Host: "h1", Tasks: []protocol.TaskSpec{{Task: worker(0), Devices: "0"}}}, {Host: "h2"}}
	e.begin("j-1", "j", "./train", plan)
	e.start("h1", protocol.Started{PIDs: map[cluster.Task]int{worker(10): 3, worker(2): 2, server: 1}})
	e.exit("h1", protocol.Exit{Task: worker(2), Code: 143, Signal: 15})
	e.exit("h1", protocol.Exit{Task: worker(2), Code: 143, Signal: 15}) // after a lost connection
	e.exit("h1", protocol.Exit{Task: worker(2), Generation: 1})
	e.restart(1, plan)
	e.hang(protocol.Hang{After: 5 * time.Second, Culprit: "worker:1", Host: "h2", Why: "it \x1b sleeps\u202e"})
	e.end(1, "failed", 1500*time.Millisecond, errors.New("a\nb"))
	got := regexp.MustCompile(`"time":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z","job":"j-1"`).ReplaceAllString(stdout.String(), "AT")
	const want = `{"v":1,"event":"begin",AT,"name":"j","program":"./train","hosts":[{"host":"h1","tasks":[{"task":"worker:0","devices":"0"}]}]}
{"v":1,"event":"start",AT,"generation":0,"host":"h1","task":"ps:0"}
{"v":1,"event":"start",AT,"generation":0,"host":"h1","task":"worker:2"}
{"v":1,"event":"start",AT,"generation":0,"host":"h1","task":"worker:10"}
{"v":1,"event":"exit",AT,"generation":0,"host":"h1","task":"worker:2","status":143,"signal":15}
{"v":1,"event":"exit",AT,"generation":1,"host":"h1","task":"worker:2","status":0}
{"v":1,"event":"restart",AT,"generation":1,"hosts":[{"host":"h1","tasks":[{"task":"worker:0","devices":"0"}]}]}
{"v":1,"event":"hang",AT,"host":"h2","seconds":5,"culprit":"worker:1","why":"it \u001b sleeps\u202e"}
{"v":1,"event":"end",AT,"status":1,"seconds":1.5,"verdict":"failed","error":"a\nb"}
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	none := newEvents(false, nil)
	none.begin("", "", "", nil)
	none.start("", protocol.Started{})
	none.exit("", protocol.Exit{})
	none.restart(1, nil)
	none.hang(protocol.Hang{})
	none.end(0, "", 0, nil)
}
