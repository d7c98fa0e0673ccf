//go:build long

package e2e

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/plx-run/plx/internal/test/testhosts"
)

// Several launches want the same GPUs at the same moment, but tasks of two
// launches never run at the same time. To check this, each task creates a
// folder that must not exist yet, and removes it. Half of the launches wait
// for GPUs, and all of these get the GPUs.
func TestRacingLaunches(t *testing.T) {
	const launches = 20
	b := newBench(t, testhosts.Options{Hosts: 2, GPUs: []int{2, 2}})
	file, shared := b.ResourceFile("h1: 0,1", "h2: 0,1"), b.shared()
	program := b.script("task", `d=`+shared+`/$(cat /etc/hostname)-$CUDA_VISIBLE_DEVICES
mkdir $d || exit 9
sleep 0.3
rmdir $d`)
	var all []*running
	for i := range launches {
		args := []string{"launch", "--hosts", file, "--ps", "none"}
		if i%2 == 0 {
			args = append(args, "--wait-gpus", "10m")
		}
		all = append(all, b.start(append(args, program)...))
	}
	won := 0
	for i, r := range all {
		res := r.wait()
		refused := strings.Contains(res.stderr, "is reserved by") || strings.Contains(res.stderr, "ahead in the queue")
		switch {
		case res.code == 0:
			won++
		case res.code != 125 || !refused || i%2 == 0:
			t.Errorf("launch %d ended with status %d:\n%s", i, res.code, res.stderr)
		}
	}
	t.Logf("%d of %d launches had the GPUs", won, launches)
	b.want(0, "launch", "--hosts", file, "--ps", "none", program)
}

// Launches that wait for GPUs get them in the order in which they started to
// wait.
func TestGPUsAwaited(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 2, GPUs: []int{2, 2}})
	file, shared := b.ResourceFile("h1: 0", "h2: 1"), b.shared()
	wait := func(b *bench, name string, place int) *running {
		b.t.Helper()
		r := b.start("launch", "--hosts", file, "--ps", "none", "--wait-gpus", "5m", b.script(name, "if [ $RANK = 0 ]; then echo "+name+" >> "+shared+"/order; fi"))
		r.await(r.stderr, fmt.Sprintf("waiting for GPUs: place %d in the queue", place))
		return r
	}
	t.Run("in order", func(t *testing.T) {
		b := b.in(t)
		r := b.start(brief(file, b.script("task", patient))...)
		r.up("worker:0", "worker:1")
		first := wait(b, "first", 1)
		first.await(first.stderr, "host h1: gpu 0: GPU GPU-")
		first.await(first.stderr, "is reserved by job task-")
		lost := wait(b, "lost", 2)
		third := wait(b, "third", 3)
		res := b.want(125, "launch", "--hosts", file, "--ps", "none", "--wait-gpus", "1s", "true")
		b.says(res, "no GPUs within 1s: place 4 in the queue")
		contains(t, res.stderr, "plx: hint: --exclude HOST:ID leaves a GPU out")
		lost.signal(syscall.SIGKILL)
		lost.wait()
		third.await(third.stderr, "place 2 in the queue")
		r.signal(syscall.SIGTERM)
		r.wait()
		first.want(0)
		third.want(0)
		if order, err := os.ReadFile(shared + "/order"); err != nil || string(order) != "first\nthird\n" {
			t.Errorf("they ran in the order %q, %v", order, err)
		}
	})
	t.Run("for other programs", func(t *testing.T) {
		b := b.in(t)
		b.Hosts[1].SetGPUs(2, "app GPU-d6de6afc-bdfe-75c4-5273-0544439153fc|4711|python|500")
		r := wait(b, "patient", 1)
		r.await(r.stderr, "GPUs are in use: host h2: GPU 1 by python")
		b.Hosts[1].SetGPUs(2)
		r.want(0)
	})
	b.want(0, "launch", "--hosts", file, "--ps", "none", "true")
}
