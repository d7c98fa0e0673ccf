//go:build linux

package agent

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/agent/program"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// saves sends a checkpoint request and returns the reply.
func (l *line) saves() protocol.TaskMessage {
	l.t.Helper()
	l.send(protocol.Message{Checkpoint: &protocol.Checkpoint{}})
	return *l.wait("Said checkpoint", func(m protocol.Message) bool {
		return m.TaskReport != nil && m.TaskReport.Message.Kind == cluster.Checkpoint
	}).TaskReport
}

func TestCheckpointGoesToTheChief(t *testing.T) {
	for name, c := range map[string]struct {
		words []string
		want  cluster.ControlMessage
	}{
		"saved":     {[]string{"save=7"}, cluster.ControlMessage{Kind: cluster.Checkpoint, Step: 7}},
		"not saved": {[]string{"refuse=disk full"}, cluster.ControlMessage{Kind: cluster.Checkpoint, Cause: "disk full"}},
		// A checkpoint that the task has reported before the request is no
		// reply to it.
		"said before": {[]string{"saved", "save=7"}, cluster.ControlMessage{Kind: cluster.Checkpoint, Step: 7}},
	} {
		t.Run(name, func(t *testing.T) {
			// The task would exit with status 1 if it received a second
			// request.
			h := newHost(t, 1, append(append([]string{"native"}, c.words...), "stop", "finished")...)
			l, _ := h.launch()
			h.greets(0)
			if name == "said before" {
				eventually(t, "the agent has heard that", func() bool {
					l.send(protocol.Message{Attach: &protocol.Attach{Driver: true}})
					return l.wait("State", func(m protocol.Message) bool { return m.State != nil }).State.Tasks["worker:0"].Step == 3
				})
			}
			for range 2 { // the second time as after a lost connection
				if said := l.saves(); said.Task != cluster.Chief || !reflect.DeepEqual(said.Message, c.want) {
					t.Errorf("%+v, want %+v", said, c.want)
				}
			}
			l.send(protocol.Message{Stop: &protocol.Stop{Grace: time.Minute}})
			if e := l.exits(1)[worker(0)]; e.Code != 0 || !e.Finished {
				t.Errorf("%+v, want finished when told to stop after the checkpoint", e)
			}
			if said := l.saves(); !reflect.DeepEqual(said.Message, c.want) {
				t.Errorf("after its end: %+v, want %+v", said, c.want)
			}
			l.end(h, 0)
		})
	}
}

func TestAgentRefusesCheckpointIfChiefCannotSave(t *testing.T) {
	for name, c := range map[string]struct {
		task  cluster.Task
		words []string
		want  string
	}{
		"foreign":   {worker(0), []string{"wait"}, "cannot be asked for a checkpoint"},
		"elsewhere": {worker(1), []string{"wait"}, "worker:0 does not run on this host"},
		"dies":      {worker(0), []string{"native", "asked", "exit=3"}, "worker:0 ended before it had saved"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, 1, c.words...)
			h.spec.Tasks[0].Task = c.task
			l, _ := h.launch()
			h.prints(fmt.Sprintf("worker-%d.stdout", c.task.Index), "ready")
			if c.words[0] == "native" {
				h.greets(0)
			}
			if said := l.saves(); !strings.Contains(said.Message.Cause, c.want) {
				t.Errorf("%+v, want %q", said, c.want)
			}
			l.end(h, 0)
		})
	}
}

func TestNoCheckpointRequestBeforeStartOrAfterEnd(t *testing.T) {
	h := newHost(t, 1, "exit", "0")
	l, _ := h.start()
	go l.renew(h.spec.Lease / 5)
	if said := l.saves(); !strings.Contains(said.Message.Cause, "does not run") {
		t.Errorf("%+v", said)
	}
	l.run(0)
	l.exits(1)
	if said := l.saves(); !strings.Contains(said.Message.Cause, "worker:0 has ended") {
		t.Errorf("%+v", said)
	}
	l.end(h, 0)
}

func TestPreemptionNoticeAsksTheDriver(t *testing.T) {
	for _, who := range []string{"watchdog", "supervisor"} {
		t.Run(who, func(t *testing.T) {
			h := newHost(t, 1, "wait")
			h.spec.SaveTime = time.Minute
			l, _ := h.launch()
			h.prints("worker-0.stdout", "ready")
			state, _ := h.folder().ReadState()
			pid := map[string]int{"watchdog": state.Watchdog, "supervisor": state.Supervisor}[who]
			if err := unix.Kill(pid, unix.SIGUSR1); err != nil {
				t.Fatal(err)
			}
			ask := *l.wait("StopAsk", func(m protocol.Message) bool { return m.StopAsk != nil }).StopAsk
			want := protocol.Stop{Reason: "preempted on host gpu01", Code: 143, Grace: h.spec.Grace, SaveTime: time.Minute}
			if fmt.Sprint(ask) != fmt.Sprint(want) {
				t.Errorf("%+v, want %+v", ask, want)
			}
			l.end(h, 0)
		})
	}
}

// If a host of a detached job is preempted, the chief on another host saves a
// checkpoint, and the job ends.
func TestPreemptionOfADetachedJobSavesAndEndsIt(t *testing.T) {
	a, b := detached(t, patience.Limit, "native", "save=7", "stop", "finished")
	a.greets(0)
	b.prints("worker-1.stdout", "ready")
	eventually(t, "the job runs", func() bool {
		state, err := a.folder().ReadState()
		return err == nil && state.JobPhase == protocol.Running
	})
	state, _ := b.folder().ReadState()
	if err := unix.Kill(state.Supervisor, unix.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	for _, h := range []*testHost{a, b} {
		v := over(t, h).Verdict
		if v.Code != 143 || v.Reason != "preempted on host gpu02, saved at step 7" || v.Saved == nil || v.Saved.Step != 7 {
			t.Errorf("%s: verdict %+v", h.spec.Host, v)
		}
	}
}

func TestStopWithoutADriverSavesNothing(t *testing.T) {
	h, l, _ := ready(t, "wait")
	v, _ := h.attach(false)
	l.leave()
	v.send(protocol.Message{Stop: &protocol.Stop{Grace: time.Second, Reason: "stopped by alice", Code: 143, SaveTime: time.Minute}})
	saved := over(t, h).Verdict.Saved
	if saved == nil || !strings.Contains(saved.Cause, "the launcher is not connected") {
		t.Errorf("%+v, want the cause why nothing was saved", saved)
	}
}

// newJob returns another job in the same home that saves checkpoints under the
// given name.
func (h *testHost) newJob(name string) *testHost {
	other := newHost(h.t, 1, "wait")
	other.home, other.spec.Checkpoints = h.home, name
	return other
}

// refusedStart starts the agent and returns the error with which it refuses
// the job.
func (h *testHost) refusedStart() string {
	h.t.Helper()
	l := h.dial("start")
	l.send(protocol.Message{Spec: &h.spec})
	select {
	case <-l.ended:
	case <-time.After(patience.Limit):
		h.t.Fatal("the agent was started")
	}
	return l.stderr.String()
}

func TestSecondJobWithTheNameOfARunningJobIsRefused(t *testing.T) {
	first := newHost(t, 1, "wait")
	first.spec.Checkpoints = "mnist"
	l, _ := first.launch()
	first.prints("worker-0.stdout", "ready")

	second := first.newJob("mnist")
	if why := second.refusedStart(); !strings.Contains(why, "job "+first.spec.Job+" runs here") || !strings.Contains(why, "plx stop "+first.spec.Job) {
		t.Errorf("%s: want the other job and how to end it", why)
	}
	asker := first.dial("start")
	for name, want := range map[string]*protocol.Failure{"mnist": {Code: protocol.CodeTaken}, "cifar": nil, "..": {}} {
		got := asker.call(protocol.DoCheckName, protocol.CheckName{Name: name}).Err
		if (got == nil) != (want == nil) || got != nil && (got.Code != want.Code || got.Text == "") {
			t.Errorf("%q: %+v, want %+v", name, got, want)
		}
	}
	other := first.newJob("cifar")
	lo, _ := other.launch()
	lo.end(other, 0)

	// This is a second host of the same job, with the same home.
	again := first.newJob("mnist")
	again.spec.Job, again.spec.Folder = first.spec.Job, "gpu02"
	la, _ := again.launch()
	la.send(protocol.Message{End: &protocol.End{}})
	<-la.ended

	l.end(first, 0)
	l, _ = second.launch()
	l.end(second, 0)
}

// If several jobs with one name start at once, at most one of them runs.
func TestOnlyOneOfTwoConcurrentJobsGetsTheName(t *testing.T) {
	first := newHost(t, 1, "wait")
	first.spec.Checkpoints = "mnist"
	jobs := []*testHost{first, first.newJob("mnist"), first.newJob("mnist")}
	lines := make([]*line, len(jobs))
	for i, h := range jobs {
		lines[i] = h.dial("start")
	}
	for i, h := range jobs {
		lines[i].send(protocol.Message{Spec: &h.spec})
	}
	up := 0
	for i, h := range jobs {
		select {
		case m, open := <-lines[i].in:
			if open && m.State != nil {
				up++
				defer lines[i].end(h, 0)
				continue
			}
		case <-time.After(patience.Limit):
			t.Fatal("neither started nor refused")
		}
		if <-lines[i].ended; lines[i].code != codeNoAgent {
			t.Errorf("exit status %d: %s", lines[i].code, lines[i].stderr)
		}
	}
	if up > 1 {
		t.Errorf("%d jobs run at once", up)
	}
}

func TestKilledAgentDoesNotBlockItsName(t *testing.T) {
	first := newHost(t, 1, "wait")
	first.spec.Checkpoints = "mnist"
	first.launch()
	first.prints("worker-0.stdout", "ready")
	state, _ := first.folder().ReadState()
	for _, pid := range []int{state.Watchdog, state.Supervisor} {
		if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	kill(t, state.Watchdog)
	kill(t, state.Supervisor)
	eventually(t, "both are gone", func() bool { return jobfolder.LifeOf(state) == jobfolder.Dead })
	if state, _ := first.folder().ReadState(); state.Phase == protocol.Over {
		t.Fatal("somebody has recorded the end: the test proves nothing")
	}
	second := first.newJob("mnist")
	l, _ := second.launch()
	l.end(second, 0)
}

// Whether a job on another machine with the same home still runs can only be
// found out by connecting to its agent.
func TestAgentOfAnotherMachineBlocksItsNameWhileItAnswers(t *testing.T) {
	far := newHost(t, 1, "wait")
	far.spec.Checkpoints = "mnist"
	l, state := far.start()
	go l.renew(far.spec.Lease / 5)
	l.run(0)
	near := newHost(t, 1, "wait")
	near.spec.Checkpoints = "mnist"
	state.Machine = "elsewhere boot pid:[1]"
	seen := &testHost{home: near.home, spec: far.spec}
	if err := os.MkdirAll(string(seen.folder()), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(seen.folder().Secret(), []byte(hex.EncodeToString(far.spec.Secret)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := seen.folder().WriteState(state); err != nil {
		t.Fatal(err)
	}
	if why := near.refusedStart(); !strings.Contains(why, far.spec.Job) {
		t.Errorf("%s: want the job of the other machine", why)
	}
	l.end(far, 0) // the agent ends, but the state file in the shared home still says that it runs
	ln, _ := near.launch()
	ln.end(near, 0)
}

func TestInvalidCheckpointNamesAreRefused(t *testing.T) {
	for _, name := range []string{"..", "a/b", "a\nb", strings.Repeat("x", 201)} {
		h := newHost(t, 1, "wait")
		h.spec.Checkpoints = name
		if why := h.refusedStart(); !strings.Contains(why, "not a valid name") {
			t.Errorf("%q: %s", name, why)
		}
	}
}

func TestTaskGetsTheCheckpointFolder(t *testing.T) {
	h := newHost(t, 1, "echo")
	h.spec.Checkpoints = "mnist"
	l, _ := h.launch()
	l.exits(1)
	env := asText(decode[seen](t, h.spool("worker-0.stdout")).Env)
	want := filepath.Join(h.home, ".plx", "ckpt", "mnist")
	if got, _ := program.Lookup(env, "PLX_CHECKPOINTS"); got != want {
		t.Errorf("PLX_CHECKPOINTS=%q, want %q", got, want)
	}
	l.end(h, 0)
}
