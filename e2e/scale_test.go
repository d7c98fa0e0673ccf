//go:build long

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/testhosts"
)

func TestSixteenHosts(t *testing.T) {
	const hosts = 16
	b := newBench(t, testhosts.Options{Hosts: hosts})
	ready := b.shared()
	// plx ends servers when the workers are done, so the workers wait for the
	// servers.
	show := b.script("show", fmt.Sprintf(`echo "on $(cat /etc/hostname) of ${WORLD_SIZE:-all}"; [ $PLX_ROLE = ps ] && touch %s/$PLX_TASK_INDEX
while [ "$(ls %[1]s | wc -l)" -lt %d ]; do sleep 0.1; done`, ready, hosts))
	for earlier, run := range []string{"first", "second"} {
		begun := time.Now()
		res := b.want(0, "launch", "--hosts", b.ResourceFile(), "--ps", "all", show)
		t.Logf("%s launch on %d hosts: %.1f s", run, hosts, time.Since(begun).Seconds())
		if sent := strings.Contains(res.stderr, "plx: sent "); sent != (run == "first") {
			t.Errorf("%s launch: sent: %v\n%s", run, sent, res.stderr)
		}
		oneLogin(b, earlier+1)
		if run == "second" {
			break // the servers have written their files by now, so they may end
		}
		for i := range hosts {
			for task, want := range map[string]string{"worker": fmt.Sprintf("on h%d of %d", i+1, hosts), "ps": fmt.Sprintf("on h%d of all", i+1)} {
				if got := strings.Join(lines(res.stdout, fmt.Sprintf("%s:%d", task, i)), "\n"); got != want {
					t.Errorf("%s:%d printed %q, want %q", task, i, got, want)
				}
			}
		}
		b.hostsGone(0)
	}
	b.hostsGone(0)
}

// oneLogin fails the test unless each of the launches has made exactly one
// connection to each host.
func oneLogin(b *bench, launches int) {
	b.t.Helper()
	for _, h := range b.Hosts {
		if n, err := h.Logins(); n != launches || err != nil {
			b.t.Errorf("host %s: %d connections by %d launches, %v", h.Name, n, launches, err)
		}
	}
}
