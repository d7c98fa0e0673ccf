//go:build long

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/plx-run/plx/internal/test/testhosts"
)

// TestOutOfMemory has a task that uses more memory than its host's control
// group allows, so the kernel kills it. The verdict must say how plx knows
// that the kernel did this.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 1})
	mount, root, limit := "mount -t tmpfs none /sys/fs/cgroup; mkdir /sys/fs/cgroup/memory; mount -t cgroup -o memory none /sys/fs/cgroup/memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		mount, root, limit = "mount -t cgroup2 none /sys/fs/cgroup; echo +memory >/sys/fs/cgroup/cgroup.subtree_control", "/sys/fs/cgroup", "memory.max"
	}
	name := fmt.Sprintf("plx-e2e-%d", os.Getpid())
	group := filepath.Join(root, name)
	inside := func(format string, args ...any) {
		line := fmt.Sprintf(format, args...)
		if out, err := b.Hosts[0].Command(context.Background(), "sh", "-ec", line).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", line, err, out)
		}
	}
	inside("%s; mkdir %[2]s; echo 400M >%[2]s/%[3]s; echo 1 >%[2]s/cgroup.procs", mount, group, limit)
	t.Cleanup(func() {
		inside("while read -r pid; do echo $pid >%[2]s/cgroup.procs || true; done <%[1]s/cgroup.procs; rmdir %[1]s", group, root)
	})
	res := b.want(137, "launch", "--hosts", b.ResourceFile(), "--name", "greedy", b.script("task", `x=$(head -c 900M /dev/zero | tr '\0' x)`))
	reason := "worker:0 on h1 was ended by signal 9 (killed): out of memory: the kernel killed 1 process of its control group /" + name + ", whose memory limit is 400 MiB"
	contains(t, res.stderr, reason+"\n", "hint: plx exec --host h1 -- free -h ")
	b.hostsGone(0)
	contains(t, b.want(0, "status", "greedy").stdout, "worker:0  h1    culprit  137   SIGKILL  the kernel killed 1 process of its control group ")
}
