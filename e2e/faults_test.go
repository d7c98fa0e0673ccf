//go:build long

package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/internal/test/testhosts"
)

// TestHostsThatFail has a host that another host cannot reach, and a frozen
// host. The fault grid covers hosts that are powered off or disconnected.
func TestHostsThatFail(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 3})
	file := b.ResourceFile()
	run := func(name string, test func(b *bench, file string)) {
		t.Run(name, func(t *testing.T) { test(b.in(t), file) })
	}
	run("a firewall between two hosts", firewalled)
	run("frozen", frozen)
}

func firewalled(b *bench, file string) {
	h1, h3 := b.Hosts[0], b.Hosts[2]
	b.misdirect(h1, h3.Addr)
	defer b.direct(h1, h3.Addr)
	linear := testhosts.Binary(b.t, "github.com/plx-run/plx/examples/linear")
	start := time.Now()
	res := b.want(125, brief(file, linear, "--arch", "allreduce")...)
	b.took("a launch across a firewall", start, 15*time.Second+patience.Limit)
	b.says(res, "cannot reach host", "h1", "h3", "--port-range")
	if res.stdout != "" {
		b.t.Errorf("a task was started:\n%s", clip(res.stdout))
	}
	// A program that is not a trainer may run tasks that never connect to each
	// other.
	res = b.want(0, brief(file, b.script("task", "echo here"))...)
	b.says(res, "warning: host h", "cannot reach host h", "--port-range", "the program starts all the same")
	if n := strings.Count(res.stderr, "cannot reach"); n != 1 || strings.Count(res.stdout, "here") != 3 {
		b.t.Errorf("%d warnings, and\n%s", n, clip(res.stdout))
	}
	b.hostsGone(0)
}

// misdirect makes packets from host h to an address disappear on the way, like
// a firewall that drops them.
func (b *bench) misdirect(h *testhosts.Host, addr string) {
	b.t.Helper()
	b.ip(h, "neigh", "replace", addr, "lladdr", "02:00:00:00:00:01", "dev", "eth0", "nud", "permanent")
}

func (b *bench) direct(h *testhosts.Host, addr string) {
	b.t.Helper()
	b.ip(h, "neigh", "del", addr, "dev", "eth0")
}

func (b *bench) ip(h *testhosts.Host, args ...string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience.Limit)
	defer cancel()
	if out, err := h.Command(ctx, "ip", args...).CombinedOutput(); err != nil {
		b.t.Fatalf("host %s: ip %q: %v: %s", h.Name, args, err, out)
	}
}

func frozen(b *bench, file string) {
	r := b.start(brief(file, b.script("task", stubborn))...)
	r.up("worker:0", "worker:1", "worker:2")
	b.Hosts[1].Freeze()
	defer b.Hosts[1].Thaw() // a second time, in case the test ends before the call below
	froze := time.Now()
	res := r.want(125)
	b.took("to notice a frozen host", froze, lease+patience.Limit)
	b.says(res, "job", "host h2")
	b.gone(0, b.Hosts[0], b.Hosts[2])
	b.Hosts[1].Thaw()
	// The host's lease has expired while the host was frozen.
	b.gone(lease-time.Second, b.Hosts[1])
}
