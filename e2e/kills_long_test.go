//go:build long

package e2e

import (
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/internal/test/testhosts"
)

// TestStubbornTasks ends jobs in every possible way, with tasks that ignore
// signals.
func TestStubbornTasks(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 2})
	file := b.ResourceFile()
	task := b.script("stubborn", stubborn)
	up := func(b *bench, more ...string) *running {
		r := b.start(append(append([]string{"launch", "--hosts", file, "--ps", "none"}, more...), task)...)
		r.up("worker:0", "worker:1")
		for _, h := range b.Hosts {
			b.process(h, "sleep 1001")
			b.process(h, "sleep 1002")
		}
		return r
	}
	t.Run("a failure elsewhere", func(t *testing.T) {
		b, shared := b.in(t), b.shared()
		r := b.start(brief(file, b.script("task", `if [ $PLX_RANK = 0 ]; then
	echo up; while [ ! -e `+shared+`/fail ]; do sleep 0.05; done; exit 3
fi
`+stubborn))...)
		r.up("worker:0", "worker:1")
		b.process(b.Hosts[1], "sleep 1002")
		if err := os.WriteFile(shared+"/fail", nil, 0o644); err != nil {
			t.Fatal(err)
		}
		failed := time.Now()
		res := r.want(3)
		b.took("to end", failed, patience.Limit)
		b.says(res, "job", "worker:0 on h1 exited with status 3")
		b.hostsGone(0)
	})
	t.Run("Ctrl-C gives the grace", func(t *testing.T) {
		b := b.in(t)
		r := up(b, "--grace", "3s")
		r.signal(syscall.SIGINT)
		asked := time.Now()
		res := r.want(130)
		if took := time.Since(asked); took < 3*time.Second {
			t.Errorf("it took %v, less than the grace", took)
		}
		b.took("to end", asked, patience.Limit)
		b.says(res, "job", "Ctrl-C")
		b.hostsGone(0)
	})
	t.Run("a second Ctrl-C ends at once", func(t *testing.T) {
		b, shared := b.in(t), b.shared()
		told := strings.Replace(stubborn, "trap '' TERM HUP INT", "trap 'touch "+shared+"/$PLX_RANK' INT\ntrap '' TERM HUP", 1)
		r := b.start("launch", "--hosts", file, "--ps", "none", "--grace", "5m", b.script("task", told))
		r.up("worker:0", "worker:1")
		r.signal(syscall.SIGINT)
		b.appear(shared+"/0", shared+"/1")
		r.signal(syscall.SIGINT)
		asked := time.Now()
		r.want(130)
		b.took("to end", asked, patience.Limit)
		b.hostsGone(0)
	})
	t.Run("children that outlive their task", func(t *testing.T) {
		b := b.in(t)
		program := strings.Replace(stubborn, "while :; do sleep 0.2; done\n", "exit 0\n", 1)
		start := time.Now()
		res := b.want(0, "launch", "--hosts", file, b.script("task", program))
		b.took("a launch with children left behind", start, patience.Limit)
		if !slices.Equal(lines(res.stdout, "worker:1"), []string{"up"}) {
			t.Errorf("stdout:\n%s", res.stdout)
		}
		b.hostsGone(0)
	})
}
