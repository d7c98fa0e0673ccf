package e2e

import (
	"path/filepath"
	"syscall"
	"testing"
)

// Ctrl-Z stops plx for longer than the lease. The hosts end their tasks, and
// plx reports itself as the cause, not the hosts.
func TestSuspendedPlx(t *testing.T) {
	t.Parallel()
	b := local(t)
	dir := t.TempDir()
	r := b.start("launch", "--lease", "5s", "--grace", "1s",
		b.script("told", "trap 'touch "+dir+"/told$RANK; exit 143' TERM\necho up\nwhile :; do sleep 0.1; done"))
	r.awaitLine("worker:0", "up")
	r.awaitLine("worker:1", "up")
	r.signal(syscall.SIGSTOP)
	b.appear(filepath.Join(dir, "told0"))
	b.appear(filepath.Join(dir, "told1"))
	r.signal(syscall.SIGCONT)
	res := r.want(125)
	contains(t, res.stderr, "plx was suspended for ", "(--lease)", "hint: plx launch --detach ")
}
