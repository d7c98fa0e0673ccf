package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/testhosts"
)

// TestHang launches a program without code for plx. One of its two tasks
// sleeps, and the other waits to read from it. plx names the sleeping task and
// ends the job. Meanwhile another job has a stopped task, and two jobs are
// slower than the hang timeout but make progress.
func TestHang(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 2}).withPlx()
	program, err := filepath.Abs("testdata/pair.py")
	if err != nil {
		t.Fatal(err)
	}
	quiet := filepath.Join(b.shared(), "quiet")
	const verdict = "culprit: worker:1 on h2: it sleeps: pair.py (pid "
	r := b.start("launch", "--hosts", b.ResourceFile(), "--name", "pair", "--hang-timeout", "5s", "--on-hang", "stop", "--grace", "1s", program, quiet)
	r.await(r.stdout, "step 1") // now the hosts have plx, so the other launches need not send it
	others := map[string]*running{}
	for _, what := range []string{"stops", "computes", "saves"} {
		others[what] = b.start("launch", "--hosts", b.ResourceFile("h1: cpu", "h2: cpu"), "--name", what, "--hang-timeout", "5s", "--on-hang", "stop", "--grace", "1s", program, "/", what)
	}
	running := b.want(0, "status", "pair")
	for _, task := range []string{"worker:0 +h1 +\\d+ +\\d+s ", "worker:1 +h2 +\\d+ +\\d+s "} {
		if !regexp.MustCompile(task).MatchString(running.stdout) {
			t.Errorf("plx status of a running job: %s", running.stdout)
		}
	}
	if places := b.want(0, "stacks", "pair").stdout; !regexp.MustCompile(`^rank 0 on h1: \w+ \(pair\.py:\d+\)\nrank 1 on h2: time\.sleep \(pair\.py:\d+\)\n$`).MatchString(places) {
		t.Errorf("plx stacks: %s", places)
	}
	stacks := b.want(0, "stacks", "--full", "pair").stdout
	for _, text := range []string{"host h1:", "worker:1, ", "first thread: read", "socket ", "Python, process", `", line `} {
		if !strings.Contains(stacks, text) {
			t.Errorf("plx stacks has no %q:\n%s", text, stacks)
		}
	}
	put(t, quiet, "", 0o644)
	res := r.want(124)
	for _, text := range []string{"nothing has moved for ", verdict, "plx:   pair.py (pid ", "plx: rank 0 on h1: readinto (pair.py:", "plx: rank 1 on h2: time.sleep (pair.py:", ": hung: nothing moved for "} {
		if !strings.Contains(res.stderr, text) {
			t.Errorf("no %q in\n%s", text, res.stderr)
		}
	}
	contains(t, others["stops"].want(124).stderr, "culprit: worker:1 on h2: pair.py (pid ", " is stopped, by SIGSTOP or a debugger")
	for _, what := range []string{"computes", "saves"} {
		if res := others[what].want(0); strings.Contains(res.stderr, "nothing has moved") {
			t.Errorf("%s: %s", what, res.stderr)
		}
	}
	b.hostsGone(0)
	contains(t, b.want(0, "stacks", "pair").stdout, "rank 0 on h1: readinto (pair.py:", "rank 1 on h2: time.sleep (pair.py:")
	if kept := b.want(0, "stacks", "--full", "pair").stdout; !strings.Contains(kept, `", line `) {
		t.Errorf("plx stacks of the ended job: %s", kept)
	}
	if jobs := b.want(0, "jobs"); !strings.Contains(jobs.stdout, "hung") {
		t.Errorf("plx jobs: %s", jobs.stdout)
	}
	var status struct {
		State   string
		Code    int
		Seconds float64
		Verdict struct {
			Culprit, Host string
			First         *struct{ Signal int }
			Ends          []struct{ Task, Host, Part string }
			Hang          struct {
				Culprit, Host, File string
				Stack               []string
			}
		}
	}
	if err := json.Unmarshal([]byte(b.want(0, "status", "--json", "pair").stdout), &status); err != nil {
		t.Fatal(err)
	}
	if status.State != "hung" || status.Code != 124 || status.Verdict.Hang.Culprit != "worker:1" || status.Verdict.Hang.Host != "h2" || status.Seconds < 5 {
		t.Errorf("plx status --json: %+v", status)
	}
	if v := status.Verdict; v.Culprit != "worker:1" || v.Host != "h2" || v.First == nil || v.First.Signal != 15 || fmt.Sprint(v.Ends) != "[{worker:1 h2 culprit} {worker:0 h1 torn down}]" {
		t.Errorf("the record: %+v", v)
	}
	if h := status.Verdict.Hang; len(h.Stack) != 1 || !regexp.MustCompile(`^pair\.py \(pid \d+\): pair\.py:\d+ in <lambda>, called from pair\.py:\d+ in <module>$`).MatchString(h.Stack[0]) || !strings.HasSuffix(h.File, "/stacks/worker-1.0.txt") {
		t.Errorf("the culprit's stacks: %+v", h)
	}
	ended := b.want(0, "status", "pair")
	contains(t, ended.stderr, verdict, "plx:   pair.py (pid ", "plx: stacks of worker:1: /", "hint: plx stacks pair-")
	if !regexp.MustCompile(`(?m)^worker:1 +h2 +culprit +143 +SIGTERM *$`).MatchString(ended.stdout) {
		t.Errorf("plx status: %s", ended.stdout)
	}
}
