package trainer

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
)

// until waits for something that the process says to its agent.
func (p *testProcess) until(t *testing.T, kind cluster.ControlKind) cluster.ControlMessage {
	t.Helper()
	return p.untilSaid(t, string(kind), func(m cluster.ControlMessage) bool { return m.Kind == kind })
}

func (p *testProcess) untilSaid(t *testing.T, what string, said func(cluster.ControlMessage) bool) cluster.ControlMessage {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		p.mu.Lock()
		i := slices.IndexFunc(p.heard, said)
		var m cluster.ControlMessage
		if i >= 0 {
			m = p.heard[i]
		}
		p.mu.Unlock()
		if i >= 0 {
			return m
		}
		select {
		case <-p.waited:
			t.Fatalf("%s ended with %d and did not say %s; stderr: %s", p.task, p.cmd.ProcessState.ExitCode(), what, p.stderr.String())
		default:
		}
		if time.Now().After(deadline) {
			p.cmd.Process.Signal(syscall.SIGQUIT) // to see where it stands
			<-p.waited
			t.Fatalf("%s did not say %s; stderr: %s", p.task, what, p.stderr.String())
		}
	}
}

// nextGeneration makes the processes that are left the next generation's tasks,
// those of a role in the order of their numbers, and starts what is missing.
func nextGeneration(t *testing.T, all map[string]*testProcess, program string, workers, servers int, flags ...string) map[string]*testProcess {
	t.Helper()
	secret, tasks := secretFile(t), tasksOf(workers, servers)
	spec, sockets := listeners(t, tasks)
	left := map[cluster.Role][]*testProcess{}
	for _, p := range all {
		left[p.task.Role] = append(left[p.task.Role], p)
	}
	next := map[string]*testProcess{}
	for i, task := range tasks {
		c := cluster.Contract{Job: "j1", Generation: 1, Task: task, WorldSize: workers, LocalRank: task.Index,
			LocalWorldSize: workers, Cluster: spec, SecretFile: secret, FirstWorldSize: workers, ListenFD: 3, ControlFD: 4}
		mine := left[task.Role]
		if len(mine) == 0 {
			next[task.String()] = startTask(t, c, program, sockets[i], flags)
			continue
		}
		first := slices.MinFunc(mine, func(a, b *testProcess) int { return a.task.Index - b.task.Index })
		left[task.Role] = slices.DeleteFunc(mine, func(p *testProcess) bool { return p == first })
		first.task = task
		m := cluster.ControlMessage{Kind: cluster.Begin, Next: &cluster.Next{Dir: []byte(t.TempDir())}}
		for _, pair := range c.Environ() {
			m.Next.Environ = append(m.Next.Environ, []byte(pair))
		}
		if err := first.control.SendSocket(m, int(sockets[i].Fd())); err != nil {
			t.Fatal(err)
		}
		sockets[i].Close()
		next[task.String()] = first
	}
	return next
}

var digestLine = regexp.MustCompile(`(?m)^.*[0-9a-f]{64}.*$`)

// regrouped tells the processes to give their generation up, and waits for that.
func regrouped(t *testing.T, all map[string]*testProcess) {
	t.Helper()
	for _, p := range all {
		if err := p.control.Send(cluster.ControlMessage{Kind: cluster.Regroup}); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range all {
		p.until(t, cluster.Waiting)
	}
}

func manifests(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*", "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// Who only lost a peer is there for the next generation, in the same process,
// whatever number it has then, and the weights are as if nothing had happened.
// So it is where nobody was lost.
func TestSurvivorsKeepTheirProcess(t *testing.T) {
	for arch, servers := range map[string]int{"ps": 1, "allreduce": 0} {
		want := ""
		for _, c := range []struct {
			lost    string
			workers int // in the next generation
		}{{"", 2}, {"worker:1", 2}, {"ps:0", 2}, {"worker:0", 2}, {"worker:1", 1}} {
			if c.lost == "ps:0" && servers == 0 {
				continue
			}
			t.Run(fmt.Sprintf("%s without %s to %d", arch, c.lost, c.workers), func(t *testing.T) {
				dir := t.TempDir()
				flags := []string{"--arch=" + arch, "--virtual-workers=2", "--digest", "--ckpt-dir=" + dir, "--ckpt-every-steps=10"}
				if want == "" {
					alone := launch(t, "60", 2, servers, flags[:3]...)
					for _, p := range alone {
						p.end(t)
					}
					want = digestLine.FindString(alone["worker:0"].out.String())
				}
				all := launch(t, "60@30", 2, servers, flags...)
				all["worker:0"].untilStep(t, 30)
				for deadline := time.Now().Add(30 * time.Second); len(manifests(t, dir)) == 0; time.Sleep(time.Millisecond) {
					if time.Now().After(deadline) {
						t.Fatal("no checkpoint")
					}
				}
				survivors := all
				if c.lost != "" {
					if err := all[c.lost].cmd.Process.Signal(syscall.SIGKILL); err != nil {
						t.Fatal(err)
					}
					delete(survivors, c.lost)
					for _, p := range survivors {
						if p.task.IsChief() {
							continue // it does not take the step that would fail
						}
						if m := p.until(t, cluster.Failed); !m.Keeps || m.Peer != c.lost {
							t.Errorf("%s said %+v", p.task, m)
						}
					}
				}
				regrouped(t, survivors)
				pid := 0
				if p := survivors["worker:0"]; p != nil {
					pid = p.cmd.Process.Pid
				} else {
					pid = survivors["worker:1"].cmd.Process.Pid
				}
				next := nextGeneration(t, survivors, "60@30", c.workers, servers, flags...)
				for name, p := range next {
					code, said := p.end(t)
					if code != 0 || said[len(said)-1].Kind != cluster.Finished {
						t.Errorf("%s: exit code %d, said %+v; stderr: %s", name, code, said, p.stderr.String())
					}
					if slices.ContainsFunc(said, func(m cluster.ControlMessage) bool { return m.Kind == cluster.Failed && (!m.Keeps || m.Peer != c.lost) }) {
						t.Errorf("%s said %+v", name, said)
					}
				}
				out := next["worker:0"].out.String()
				if !strings.Contains(out, fmt.Sprintf("generation 1 of process %d behind step ", pid)) || strings.Contains(out, "behind step 0\n") {
					t.Errorf("the chief, process %d, printed %q; stderr: %s", pid, out, next["worker:0"].stderr.String())
				}
				if !next["worker:0"].madeStep(t) {
					t.Errorf("the chief's agent never heard of a step behind a checkpoint's: %+v", next["worker:0"].heard)
				}
				if got := digestLine.FindString(out); got != want || got == "" {
					t.Errorf("digest %q, want %q", got, want)
				}
			})
		}
	}
}

// madeStep reports whether a process that has ended had told of a step that it
// made behind those of a checkpoint.
func (p *testProcess) madeStep(t *testing.T) bool {
	t.Helper()
	p.end(t)
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.heard, func(m cluster.ControlMessage) bool {
		return m.Kind == cluster.Heartbeat && m.From > 0 && m.Step == m.From+1
	})
}

// A process that is not to be kept, or that failed by itself, ends.
func TestWhoDoesNotWait(t *testing.T) {
	t.Run("it is to be a fresh one", func(t *testing.T) {
		all := launch(t, "forever", 2, 0, "--fresh-process")
		all["worker:0"].untilStep(t, 3)
		if err := all["worker:1"].cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		code, said := all["worker:0"].end(t)
		if last := said[len(said)-1]; code != exitFailed || said[0].Keeps || last.Keeps || last.Peer != "worker:1" {
			t.Errorf("exit code %d, said %+v", code, said)
		}
	})
	t.Run("it failed itself", func(t *testing.T) {
		all := launch(t, "fail", 1, 0)
		if code, said := all["worker:0"].end(t); code != exitFailed || said[len(said)-1].Keeps {
			t.Errorf("exit code %d, said %+v", code, said)
		}
	})
	t.Run("the job does without it", func(t *testing.T) {
		all := launch(t, "forever", 2, 1, "--sync=async")
		all["worker:0"].untilStep(t, 3)
		if err := all["ps:0"].cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if code, said := all["worker:1"].end(t); code != exitFailed || said[len(said)-1].Keeps {
			t.Errorf("exit code %d, said %+v", code, said)
		}
	})
}

// A program that goes on with the replica of the generation before fails by
// itself: that a peer was lost then is no reason to blame it again.
func TestAReplicaIsOfItsGenerationAlone(t *testing.T) {
	all := launch(t, "stale", 2, 0)
	all["worker:0"].untilStep(t, 3)
	if err := all["worker:1"].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	delete(all, "worker:1")
	if m := all["worker:0"].until(t, cluster.Failed); !m.Keeps || m.Peer != "worker:1" {
		t.Errorf("worker:0 said %+v", m)
	}
	regrouped(t, all)
	next := nextGeneration(t, all, "forever", 2, 0)
	code, said := next["worker:0"].end(t)
	if last := said[len(said)-1]; code != exitFailed || last.Keeps || last.Peer != "" || !strings.Contains(last.Cause, "generation 0 is over") {
		t.Errorf("exit code %d, said %+v; stderr: %s", code, last, next["worker:0"].stderr.String())
	}
	if said := next["worker:0"].stderr.String(); !strings.Contains(said, "plx: hint: the process has stayed") {
		t.Errorf("no hint: %s", said)
	}
}

// What a process that waits is told, or is not told any more, ends it.
func TestWaitingEnds(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(p *testProcess) error
		code int
	}{
		"told to":           {func(p *testProcess) error { return p.control.Send(cluster.ControlMessage{Kind: cluster.Stop}) }, exitStopped},
		"SIGTERM":           {func(p *testProcess) error { return p.cmd.Process.Signal(syscall.SIGTERM) }, exitStopped},
		"the agent is gone": {func(p *testProcess) error { return p.control.Close() }, exitFailed},
		"nothing is next":   {func(p *testProcess) error { return p.control.Send(cluster.ControlMessage{Kind: cluster.Begin}) }, exitFailed},
	} {
		t.Run(name, func(t *testing.T) {
			all := launch(t, "forever", 1, 0)
			all["worker:0"].untilStep(t, 3)
			regrouped(t, all)
			if err := c.do(all["worker:0"]); err != nil {
				t.Fatal(err)
			}
			if code, _ := all["worker:0"].end(t); code != c.code {
				t.Errorf("exit code %d, want %d; stderr: %s", code, c.code, all["worker:0"].stderr.String())
			}
		})
	}
}
