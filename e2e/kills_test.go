package e2e

import (
	"syscall"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/testhosts"
)

// TestLauncherKilled kills two launchers at once; the tasks of one ignore
// signals. Within the lease, all processes must be gone on every host. The
// test measures seconds, so it does not run in parallel with others.
func TestLauncherKilled(t *testing.T) {
	b := newBench(t, testhosts.Options{Hosts: 2}).withPlx()
	file, shared := b.ResourceFile(), b.shared()
	const lease = 6 * time.Second
	start := func(name, text string) *running {
		// An agent kills its tasks before the lease ends, by the length of the
		// grace period.
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
	// The agent kills these tasks 2 s before the lease ends. Otherwise they
	// would get the grace period after the lease.
	b.hostsGone(lease + 2*time.Second)
	b.took("until nothing was left", killed, lease+2*time.Second)
	for _, rank := range []string{"/0", "/1"} {
		if !exists(shared + rank) {
			t.Errorf("worker %s was killed without being asked to end", rank)
		}
	}
}
