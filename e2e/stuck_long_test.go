//go:build long

package e2e

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/testhosts"
)

// stuck lists ways to make worker:2 hang in programs written in Go, with the
// text that plx must report for each. The last argument names the cause.
var stuck = []struct {
	flags []string // of plx launch
	args  []string // of internal/test/testhosts/cmd/fake
	who   string
	why   string
}{
	{nil, []string{"--arch", "ps", "select"}, "worker:2 on h3", "does not take part in the step that the others wait for: goroutine 1 [select (no cases)]: main.go:"},
	{nil, []string{"--arch", "ps", "deadlock"}, "worker:2 on h3", "goroutine 1 [sync.Mutex.Lock]: main.go:"},
	{nil, []string{"--arch", "ps", "a server is stopped"}, "ps:0 on h1", "is stopped"},
	{[]string{"--ps", "none"}, []string{"--arch", "allreduce", "select"}, "worker:2 on h3", "goroutine 1 [select (no cases)]: main.go:"},
	{[]string{"--ps", "none"}, []string{"--arch", "allreduce", "deadlock"}, "worker:2 on h3", "goroutine 1 [sync.Mutex.Lock]: main.go:"},
	{[]string{"--ps", "none"}, []string{"--arch", "allreduce", "loader"}, "worker:2 on h3", "goroutine 1 [chan receive]: main.go:"},
	{[]string{"--ps", "none"}, []string{"--arch", "allreduce", "sleeps"}, "worker:2 on h3", "goroutine 1 [sleep]: main.go:"},
	{[]string{"--ps", "none"}, []string{"--arch", "allreduce", "spins"}, "worker:2 on h3", "it computes"},
	{[]string{"--ps", "none"}, []string{"--plain", "select"}, "worker:2 on h3", "waits for a lock or condition of its own"},
	{[]string{"--ps", "none"}, []string{"--plain", "deadlock"}, "worker:2 on h3", "waits for a lock or condition of its own"},
	{[]string{"--ps", "none"}, []string{"--plain", "sleeps"}, "worker:2 on h3", "waits for a lock or condition of its own"},
	{[]string{"--ps", "none"}, []string{"--plain", "spins"}, "worker:2 on h3", "it computes"},
}

// TestPlantedGoHangs counts how often plx names the task that caused a hang,
// in Go programs with and without plx's trainer. It logs the table of
// docs/reliability.md.
func TestPlantedGoHangs(t *testing.T) {
	b := newBench(t, testhosts.Options{Hosts: 3})
	program := testhosts.Binary(t, "github.com/plx-run/plx/internal/test/testhosts/cmd/fake")
	named, late := 0, 0
	for _, s := range stuck {
		t.Run(strings.Join(s.args, " "), func(t *testing.T) {
			b := b.in(t)
			args := append([]string{"launch", "--hosts", b.ResourceFile("h1: cpu", "h2: cpu", "h3: cpu"),
				"--grace", "1s", "--hang-timeout", hangTime.String(), "--on-hang", "stop"}, s.flags...)
			r := b.start(append(append(args, program), s.args...)...)
			r.await(r.stdout, "step 4")
			begun := time.Now()
			if s.args[len(s.args)-1] == "a server is stopped" {
				b.stopTask(s.who)
			}
			r.await(r.stderr, "culprit: ")
			took := time.Since(begun)
			res := r.want(124)
			b.hostsGone(0)
			said := regexp.MustCompile(`culprit: (.*)`).FindStringSubmatch(res.stderr)[1]
			t.Logf("| %s | %s | %.0f |", s.args, said, took.Seconds())
			if took > hangTime+time.Minute {
				late++
			}
			if strings.HasPrefix(said, s.who+": ") && strings.Contains(said, s.why) {
				named++
			} else {
				t.Logf("NOT NAMED, want %s: %s\n%s", s.who, s.why, clip(res.stderr))
			}
		})
	}
	if named < len(stuck)-1 || late > 0 {
		t.Errorf("%d of %d culprits were named, %d of them late", named, len(stuck), late)
	}
}

// stopTask sends SIGSTOP to the process of a task of the newest job; who names
// the task, such as "ps:1 on h2".
func (b *bench) stopTask(who string) {
	b.t.Helper()
	var status struct {
		TaskStatus []struct {
			Task, Host string
			PID        int
		}
	}
	if err := json.Unmarshal([]byte(b.want(0, "status", "--json").stdout), &status); err != nil {
		b.t.Fatal(err)
	}
	for _, task := range status.TaskStatus {
		if task.Task+" on "+task.Host != who {
			continue
		}
		for _, h := range b.Hosts {
			if h.Name == task.Host {
				if out, err := h.Command(b.t.Context(), "kill", "-STOP", strconv.Itoa(task.PID)).CombinedOutput(); err != nil {
					b.t.Fatalf("stop %s: %v\n%s", who, err, out)
				}
				return
			}
		}
	}
	b.t.Fatalf("%s does not run: %+v", who, status)
}
