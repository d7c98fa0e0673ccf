//go:build long

package e2e

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/internal/test/testhosts"
)

// On every host, a job keeps its GPUs reserved until its processes have ended,
// however they end.
func TestGPUsBooked(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 2, GPUs: []int{2, 2}})
	file := b.ResourceFile("h1: 0", "h2: 1")
	task := b.script("task", patient)
	free := func(b *bench) {
		b.t.Helper()
		b.want(0, "launch", "--hosts", file, "--ps", "none", "true")
	}
	start := func(b *bench, more ...string) *running {
		b.t.Helper()
		r := b.start(brief(file, append(more, task)...)...)
		r.up("worker:0", "worker:1")
		return r
	}
	t.Run("refused", func(t *testing.T) {
		b := b.in(t)
		r := start(b)
		blobs := func() int {
			all, err := os.ReadDir(filepath.Join(b.Hosts[1].HomeDir, ".plx", "blobs"))
			if err != nil {
				t.Fatal(err)
			}
			return len(all)
		}
		before := blobs()
		res := b.want(125, "launch", "--host", "h2", "--ps", "none", b.script("unsent", "exit 0"))
		if n := blobs(); n != before {
			t.Errorf("the refused launch sent %d files", n-before)
		}
		b.says(res, "host h2: gpu 1: GPU GPU-", "is reserved by job task-", "of user root")
		contains(t, res.stderr, "plx: hint: --exclude HOST:ID leaves a GPU out, --wait-gpus 30m waits")
		b.want(125, "launch", "--host", "h2: 1", "--ps", "none", "--share-gpus", "true")
		b.want(0, "launch", "--host", "h1: 1", "--host", "h2: 0", "--ps", "none", "true")
		r.signal(syscall.SIGTERM)
		r.wait()
		free(b)
	})
	t.Run("shared", func(t *testing.T) {
		b := b.in(t)
		r := start(b, "--share-gpus")
		b.want(0, "launch", "--hosts", file, "--ps", "none", "--share-gpus", "true")
		b.says(b.want(125, "launch", "--hosts", file, "--ps", "none", "true"), "is reserved by job task-")
		r.signal(syscall.SIGTERM)
		r.wait()
		free(b)
	})
	for name, victims := range map[string][]string{
		"supervisor killed": {"plx agent supervisor"}, "watchdog killed": {watchdog}, "both killed": {watchdog, "plx agent supervisor"},
	} {
		t.Run(name, func(t *testing.T) {
			b := b.in(t)
			r := start(b)
			var found []testhosts.Process
			for _, v := range victims {
				found = append(found, b.process(b.Hosts[1], v))
			}
			for _, p := range found { // stop all processes first, so that none can react to the end of another
				if err := p.Signal(syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
			}
			for _, p := range found {
				b.kill(p)
			}
			r.want(125)
			free(b)
		})
	}
	t.Run("not joined", func(t *testing.T) {
		b := b.in(t)
		holder := b.start(brief(b.ResourceFile("h2: 1"), task)...)
		holder.up("worker:0")
		r := b.start(brief(b.ResourceFile("h1: 0"), "--name", "grows", task)...)
		r.up("worker:0")
		res := b.want(125, "scale", "--hosts", file, b.id("grows"))
		b.says(res, "not scaled: host h2: gpu 1: GPU GPU-", "is reserved by job task-")
		contains(t, res.stderr, "plx: hint: --exclude HOST:ID leaves a GPU out; plx probe shows")
		holder.signal(syscall.SIGTERM)
		holder.wait()
		r.signal(syscall.SIGTERM)
		r.wait()
	})
	t.Run("launcher killed", func(t *testing.T) {
		b := b.in(t)
		r := start(b)
		r.signal(syscall.SIGKILL)
		r.wait()
		b.hostsGone(lease + patience.Limit)
		free(b)
	})
}
