//go:build long

package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/internal/test/testhosts"
)

// earlierPlx builds plx from the source of an earlier commit.
func earlierPlx(t *testing.T, commit string) string {
	t.Helper()
	dir := t.TempDir()
	for _, line := range []string{
		"git -C .. archive " + commit + " | tar -x -C " + dir,
		"cd " + dir + " && CGO_ENABLED=0 GOFLAGS= go build -buildvcs=false -trimpath -o earlier .",
	} {
		if out, err := exec.Command("sh", "-c", line).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
	return filepath.Join(dir, "earlier")
}

// Commands of the current plx work with a running job of an earlier plx, which
// did not have agent calls yet, and with the files of such a job. plx refuses
// agents of two versions in one job.
func TestJobOfAnEarlierPlx(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 3})
	old := b.in(t)
	old.plx = earlierPlx(t, "1637f4c")
	two, three := b.ResourceFile("h1", "h2"), b.ResourceFile("h1", "h2", "h3")
	training, finish := old.paced("--ckpt-dir=saved", "--virtual-workers=6", "--batch=12", "--steps=800", "--digest")
	defer finish()
	b.want(0, "launch", "--hosts", two, "--name", "newer", "true")
	old.detach(append([]string{"--hosts", two, "--name", "model"}, training...)...)
	made := old.detach("--hosts", two, "--ps", "none", "--name", "made", "--output", "out.txt", "sh", "-c", "echo hello; echo made >out.txt; until [ -e $HOME/go ]; do sleep 0.1; done")
	b.trains("model")
	for _, job := range []string{"model", "made"} {
		contains(t, b.want(0, "status", job).stdout, "running", "worker:0", "worker:1")
		for deadline := time.Now().Add(patience.Limit); ; time.Sleep(100 * time.Millisecond) { // wait until the agents have examined their tasks
			if res := b.run("stacks", job); res.code == 0 {
				break
			} else if time.Now().After(deadline) {
				t.Fatalf("plx stacks: %s", res.stderr)
			}
		}
	}
	contains(t, b.want(0, "jobs").stdout, "model", "made", "newer")
	contains(t, b.want(0, "logs", made).stdout, "hello")
	follow := b.start("attach", "model")
	follow.await(follow.stderr, "attached to job")
	b.says(b.run("scale", "model", "--hosts", three), "host h3: its agent is of another version of plx", "use the plx that launched the job")
	b.says(b.want(0, "stop", "model"), "stopped on 2 hosts")
	follow.want(143)
	b.gone(patience.Limit, b.Hosts[2])
	for _, h := range b.Hosts[:2] {
		if out, err := h.Command(t.Context(), "sh", "-c", "touch $HOME/go").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	b.want(0, "attach", made)
	b.want(0, "fetch", made, t.TempDir())
	contains(t, b.want(0, "status", "made").stdout, "done")
	b.want(0, "launch", "--resume", "model", "--hosts", two, "--name", "again", "true")
	b.want(0, "prune", "--older", "1ns", "--outputs")
	if out := b.want(0, "jobs").stdout; strings.Contains(out, made) {
		t.Errorf("after plx prune there is still job %s:\n%s", made, out)
	}
	b.hostsGone(patience.Limit)
}
