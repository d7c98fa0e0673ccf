package driver_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// tell sends the driver a message that was not asked for.
func (a *agent) tell(m protocol.Message) {
	a.mu.Lock()
	conn := a.conn
	a.mu.Unlock()
	if err := conn.Send(m); err != nil {
		a.t.Error(err)
	}
}

// The driver ignores messages of an agent about other hosts' tasks, about
// other generations, and replies without a request.
func TestLyingAgentCannotAffectOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		honest, liar := two(t)
		j := start(t, honest, liar)
		time.Sleep(time.Minute)
		chief, own := task("worker:0"), task("worker:1")
		failed := cluster.ControlMessage{Kind: cluster.Failed, Cause: "a lie", Peer: "worker:0 on h1"}
		for _, m := range []protocol.Message{
			{Exited: &protocol.Exit{Task: chief, Code: 9, Started: true}},
			{Exited: &protocol.Exit{Task: own, Generation: 7, Code: 9, Started: true}},
			{Exited: &protocol.Exit{Task: task("worker:99"), Code: 9, Started: true}},
			{TaskReport: &protocol.TaskMessage{Task: chief, Message: failed}},
			{TaskReport: &protocol.TaskMessage{Task: own, Generation: 7, Message: failed}},
			{TaskReport: &protocol.TaskMessage{Task: chief, Message: cluster.ControlMessage{Kind: cluster.Checkpoint, Step: 5}}},
			{Prepared: &protocol.Prepared{Generation: 7, Error: "a lie"}},
			{Prepared: &protocol.Prepared{Open: map[cluster.Task]string{chief: "h2:1"}}},
			{Checked: &protocol.Checked{Generation: 7, Failures: []protocol.Unreached{{Cause: "a lie"}}}},
			{Started: &protocol.Started{Generation: 7, PIDs: map[cluster.Task]int{chief: 1}}},
			{Seen: &protocol.ActivityReport{ID: 99, Tasks: map[cluster.Task]*protocol.Activity{chief: {Idle: 1000 * time.Hour}}}},
			{State: &protocol.State{Host: "h1", Generation: 7, Phase: protocol.Running, Tasks: map[string]*protocol.TaskState{
				"worker:0": {Exit: &protocol.Exit{Task: chief, Code: 9, Started: true}}, "": nil, "worker:-1": {}}}},
			{State: &protocol.State{Host: "h1", Phase: protocol.Running, Tasks: map[string]*protocol.TaskState{
				"worker:0": {Exit: &protocol.Exit{Task: chief, Code: 9, Started: true}, Failed: &failed}}}},
			{Renewed: &protocol.Renew{Sent: 1 << 60}},
			{End: &protocol.End{}}, {Drive: &protocol.Drive{}}, {Spec: &protocol.Spec{}}, {},
		} {
			liar.tell(m)
		}
		synctest.Wait()
		if stops, _ := honest.heard(isStop); len(stops) > 0 {
			t.Errorf("the other host was told to stop: %+v", stops)
		}
		finish(time.Minute, honest, liar)
		j.wait(0, "done")
		j.noError()
		if strings.Contains(fmt.Sprint(j.notes), "a lie") {
			t.Errorf("notes %q", j.notes)
		}
	})
}

// An agent that sends messages endlessly does not fill the memory. The other
// agents still get the verdict, which names its host.
func TestEndlessMessagesDoNotFillMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		honest, liar := two(t)
		j := start(t, honest, liar)
		time.Sleep(time.Minute)
		before := heap()
		long := strings.Repeat("x", 100<<10)
		for range 30 {
			liar.tell(protocol.Message{Notice: long})
		}
		synctest.Wait()
		if grown := heap() - before; grown > 2<<20 {
			t.Errorf("%d KiB more after 3 MiB of notices", grown>>10)
		}
		liar.exit(protocol.Exit{Task: task("worker:1"), Code: 9, Started: true, Cause: long, Tail: long, OOM: long, Shm: long})
		j.wait(9, "worker:1 on h2 exited with status 9")
		j.noError()
		if ends, _ := honest.heard(isEnd); len(ends) == 0 || ends[0].End.Verdict.Host != "h2" || len(ends[0].End.Verdict.Notices) == 0 {
			t.Errorf("the other host hears %d verdicts", len(ends))
		}
	})
}

// If an agent sends invalid messages, the driver closes the connection and
// redials. In the end the error names the host.
func TestInvalidMessagesAreReported(t *testing.T) {
	for name, bytes := range map[string]string{
		"no JSON":    "\x04\x00\x00\x00{{{{",
		"too long":   "\xff\xff\xff\xff",
		"other type": "\x13\x00\x00\x00{\"exited\":\"worker\"}",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				honest, liar := two(t)
				liar.raw = bytes
				j := start(t, honest, liar)
				j.wait(125, "host h2: ")
				if n := liar.dials; n < 2 {
					t.Errorf("%d dials", n)
				}
				if starts, _ := honest.heard(isStart); len(starts) > 0 {
					t.Error("the job was started")
				}
			})
		})
	}
}

// heap returns the number of bytes of heap that this process uses.
func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
