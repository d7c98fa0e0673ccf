//go:build long

package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/testhosts"
)

// slow are the lines about work that takes longer than 3 s, such as a build on a slow
// machine. They come again every minute.
var slow = regexp.MustCompile(`(?m)^plx: (preparing|building|connecting|probing|sending|starting agents)\b.*\n`)

// TestREADME runs every command of README.md in its order, for somebody with an empty
// home: it clones this repository, builds plx, installs it, and launches on this machine
// and on two hosts.
func TestREADME(t *testing.T) {
	needTorch(t)
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 2})
	b.clonesThis()
	r := b.newcomer(filepath.Join(b.home, ".local", "bin"))
	for _, command := range commandsOf(t, "../README.md") {
		r.checked(command, r.run(command).want(0))
	}
	r.all(map[string]int{"install ": 1, "plx launch bash": 1, "plx launch ./examples/mlp": 1, "plx probe": 1, "python3 train.py": 1, "resources.txt ./examples/mlp": 1})
	b.hostsGone(0)
}

// checked compares what a command of README printed with what README says of it.
func (r *newcomer) checked(command string, res result) {
	r.t.Helper()
	switch {
	case strings.HasPrefix(command, "plx version"):
		contains(r.t, res.stdout, "plx ")
	case strings.HasPrefix(command, "plx launch bash"):
		contains(r.t, res.stdout, "| rank 0 of 2\n", "| rank 1 of 2\n")
	case strings.HasPrefix(command, "plx launch ./examples/mlp"):
		r.trained(res)
	case strings.HasPrefix(command, "plx probe"):
		contains(r.t, res.stdout, "\nh1 ", "\nh2 ", " ok\n")
	case strings.Contains(command, "python3 train.py"):
		contains(r.t, res.stdout, "worker:0 h1 | 4 ranks begin after step 0")
		finalLoss(r.t, res.stdout)
	case strings.Contains(command, "resources.txt ./examples/mlp"):
		contains(r.t, res.stdout, "worker:0 h1 | step 300 | train_loss ")
	}
}

// trained looks at a first training on this machine: it prints few lines of plx, and the
// rest is in the job's record and logs.
func (r *newcomer) trained(res result) {
	r.t.Helper()
	contains(r.t, res.stderr, "plx: no --hosts: embedded cluster of 2 hosts x 1 worker (--local 2x1)", ": done\n")
	if n := strings.Count(slow.ReplaceAllString(res.stderr, ""), "\n"); n > 6 {
		r.t.Errorf("%d lines on stderr, want 6 at most:\n%s", n, res.stderr)
	}
	losses := trainLosses(r.t, res.stdout)
	if len(losses) < 2 || strings.Count(res.stdout, "\n") != 1+len(losses) || losses[len(losses)-1] > 0.1*losses[0] {
		r.t.Errorf("losses %v in\n%s", losses, res.stdout)
	}
	again := r.run("plx logs -v").want(0)
	contains(r.t, again.stderr, "TASK ", "worker:1 127.0.0.3 cpu", "! plx: 2 workers, allreduce", `! plx: variable "w0" `, "busiest link, measured over ")
	if again.stdout != res.stdout {
		r.t.Errorf("plx logs prints\n%s\nthe launch printed\n%s", again.stdout, res.stdout)
	}
}

// A link of README.md and of the documentation leads to a file that is there.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	for _, page := range pages(t) {
		for _, found := range link.FindAllStringSubmatch(string(read(t, page)), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), found[1])); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
}
