//go:build long

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEmbeddedDetached launches a detached job on an embedded cluster, whose
// hosts are this machine itself.
func TestEmbeddedDetached(t *testing.T) {
	b := local(t)
	program := b.holder("local")
	job := b.detach("--local", "2x2", "--ps", "all", program.path)
	follow := b.start("logs", "-f")
	for _, task := range []string{"worker:0", "worker:3", "ps:1"} {
		follow.awaitLine(task, "up")
	}
	if home := strings.TrimSpace(string(read(t, filepath.Join(program.dir, "home")))); home != b.home {
		t.Errorf("tasks have HOME=%s, plx %s", home, b.home)
	}
	attached := b.start("attach")
	attached.awaitLine("worker:2", "up")
	b.want(0, "stop")
	follow.want(0)
	attached.want(143)
	res := b.want(0, "logs", job, "--task", "worker:3")
	if got := lines(res.stdout, "worker:3"); len(got) != 4 {
		t.Errorf("worker:3: %q", got)
	}
	b.want(0, "prune", "--older", "0s")
	if entries, err := os.ReadDir(filepath.Join(b.home, ".plx", "jobs")); err != nil || len(entries) != 0 {
		t.Errorf("left in ~/.plx/jobs: %v, %v", entries, err)
	}
}
