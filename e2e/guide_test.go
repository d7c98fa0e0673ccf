//go:build long

package e2e

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/testhosts"
)

// TestGuide runs every command of docs/guide.md in the order of the page, as
// one user would.
func TestGuide(t *testing.T) {
	needTorch(t)
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 2})
	b.clonesThis()
	n := b.newcomer("")
	for _, command := range commandsOf(t, "../docs/guide.md") {
		begun := time.Now()
		n.follow(command)
		t.Logf("%.1f s: %s", time.Since(begun).Seconds(), command)
	}
	n.all(map[string]int{"plx launch": 7, "plx exec": 2, "plx attach": 1, "plx stop": 1, "plx logs": 3, "plx jobs": 1, "plx prune": 1})
	b.hostsGone(0)
}

// guideSays maps a part of a command in docs/guide.md to texts that the
// command's output must contain. A command contains at most one of these
// parts.
var guideSays = map[string][]string{
	"plx version":                            {"plx "},
	"plx launch bash":                        {"| rank 0 of 2 on Linux\n", "| rank 1 of 2 on Linux\n", ": done\n"},
	"plx probe":                              {"\nh1 ", "\nh2 ", " ok\n"},
	"-- python3":                             {"h[1-2] (2)", "Python 3"},
	"--dry-run --hosts":                      {"worker:3"},
	"launch --hosts resources.txt --workdir": {"worker:0 h1 | 4 ranks begin after step 0", "| done after step 300 ", ": done\n"},
	"--niters 301":                           {"worker:0 h1 | step 300 | train_loss ", ": done\n"},
	"import nonsense":                        {"4 workers 2 hosts ! ModuleNotFoundError: No module named 'nonsense'", "; its traceback is above\n", "exit status 1\n"},
	"plx launch --detach":                    {"runs detached", "digits-"},
	"plx jobs":                               {"digits-"},
	"plx logs --tail":                        {"worker:0 h1 "},
	"plx stop":                               {"saved at step ", ": stopped"},
}

// follow runs one command of the guide and compares its output with the guide.
func (n *newcomer) follow(command string) {
	n.t.Helper()
	if strings.Contains(command, "pkill") {
		n.watch("plx logs -f", "| step 300 ") // there are checkpoints
	}
	if strings.Contains(command, "plx logs --tail") {
		n.watch("plx logs -f", "worker:0 h1 ") // there is output
	}
	switch {
	case command == "plx attach":
		n.watch(command, "! plx: going on after step ")
	case strings.HasPrefix(command, "plx launch --name digits"):
		n.watch(command, "worker:0 h1 | step ", "this job resumes from the checkpoints")
	default:
		res := n.run(command).want(0)
		for part, says := range guideSays {
			if strings.Contains(command, part) {
				contains(n.t, res.stdout+res.stderr, says...)
			}
		}
	}
}

// watch runs a command until it has printed a given text, and then sends
// Ctrl-C.
func (n *newcomer) watch(command, until string, says ...string) {
	n.t.Helper()
	n.ran = append(n.ran, command)
	r := n.shell(n.dir, "exec "+command+" 2>&1")
	r.await(r.stdout, until)
	r.signal(syscall.SIGINT)
	contains(n.t, r.wait().stdout, says...)
}
