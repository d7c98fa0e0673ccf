package e2e

import (
	"syscall"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/testhosts"
)

// TestLauncherKilled kills two launchers at once, of which one has tasks that
// do not want to end: all is gone on every host within the lease. As it
// measures a promise of seconds it runs by itself.
func TestLauncherKilled(t *testing.T) {
	b := newBench(t, testhosts.Options{Hosts: 2}).withPlx()
	file, shared := b.ResourceFile(), b.shared()
	const lease = 6 * time.Second
	start := func(name, text string) *running {
		// An agent kills some time before the lease ends, at the grace's cost.
		return b.start(brief(file, "--lease", lease.String(), "--grace", "2s", b.script(name, text))...)
	}
	bad := start("stubborn", stubborn)
	good := start("obedient", "trap 'touch "+shared+"/$PLX_RANK; exit 0' TERM\n"+patient)
	bad.up("worker:0", "worker:1")
	good.up("worker:0", "worker:1")
	for _, h := range b.Hosts {
		b.process(h, "sleep 1001")
		b.process(h, "sleep 1002")
	}
	bad.signal(syscall.SIGKILL)
	good.signal(syscall.SIGKILL)
	killed := time.Now()
	// They are killed 2 s before the lease ends. Without that they would have the grace
	// after it.
	b.hostsGone(lease + 2*time.Second)
	b.took("until nothing was left", killed, lease+2*time.Second)
	for _, rank := range []string{"/0", "/1"} {
		if !exists(shared + rank) {
			t.Errorf("worker %s was killed without being asked to end", rank)
		}
	}
}
