//go:build long

package e2e

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/patience"
	"github.com/plx-run/plx/internal/testhosts"
)

// TestSavesAndRestarts has jobs that may be restarted be saved before their
// end, and lets that cross with a failure.
func TestSavesAndRestarts(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 2})
	saver := b.saver()
	run := func(name string, test func(b *bench, saver string)) {
		t.Run(name, func(t *testing.T) { test(b.in(t), saver) })
	}
	run("a later generation is saved", laterIsSaved)
	run("a failure while the job is saved", failsWhileSaved)
	run("a save between two generations", savedBetween)
	run("a save while a host is waited for", savedWhileWaiting)
}

// saves launches the saver as a job that may be restarted.
func (b *bench) saves(more ...string) *running {
	b.t.Helper()
	r := b.start(again(b.ResourceFile(), more...)...)
	r.awaitLine("worker:0", `had \[\]`)
	r.awaitLine("worker:1", `had \[\]`)
	return r
}

func laterIsSaved(b *bench, saver string) {
	dir := b.t.TempDir()
	r := b.saves("--fetch", dir, saver, "run")
	b.kill(b.process(b.Hosts[1], "saver run"))
	r.awaitLine("worker:0", `had \[`+at5+`\]`)
	r.awaitLine("worker:1", `had \[`+at5+`\]`)
	r.signal(syscall.SIGTERM)
	res := r.want(143)
	b.says(res, "generation 1 starts on 2 hosts")
	b.says(res, "job", "stopped by signal terminated, saved at step 7")
	whole(b.t, filepath.Join(dir, "run"), at5, at7)
	b.hostsGone(0)
}

func failsWhileSaved(b *bench, saver string) {
	r := b.saves(saver, "--hang")
	r.signal(syscall.SIGTERM)
	r.awaitLine("worker:0", "asked")
	b.kill(b.process(b.Hosts[1], "saver --hang"))
	failed := time.Now()
	res := r.want(137)
	b.took("to end", failed, patience.Limit)
	b.says(res, "job", "worker:1 on h2 was ended by signal 9 (killed)", "not restarted: the job was asked to end")
	b.hostsGone(0)
}

func savedBetween(b *bench, saver string) {
	r := b.saves("--restart-backoff", "10m", "--name", "between", saver, "run")
	b.kill(b.process(b.Hosts[1], "saver run"))
	r.await(r.stderr, "restarting in 10m0s (attempt 1 of 2)")
	asked := time.Now()
	res := b.want(125, "stop", "--checkpoint", "between")
	b.took("to stop", asked, patience.Limit)
	b.says(res, "stopped on 2 hosts, not saved: it was being restarted")
	b.says(r.want(143), "job", "stopped by plx stop")
	b.hostsGone(0)
}

func savedWhileWaiting(b *bench, saver string) {
	r := b.saves("--wait-host", "5m", saver)
	b.Hosts[1].Cut()
	r.await(r.stderr, "waiting up to 5m0s for hosts to come back (--wait-host); host h2:")
	r.signal(syscall.SIGTERM)
	asked := time.Now()
	res := r.want(143)
	b.took("to stop", asked, patience.Limit)
	b.says(res, "not saved: it was being restarted")
	b.says(res, "job", "stopped by signal terminated")
	b.Hosts[1].Heal()
	b.hostsGone(patience.Limit)
}
