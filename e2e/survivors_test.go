package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/testhosts"
)

// trainers are the pids of a host's tasks, by the roles that they were started
// in.
func (b *bench) trainers(h *testhosts.Host) map[string]int {
	b.t.Helper()
	pids := map[string]int{}
	for _, p := range b.processes(h) {
		if i := slices.IndexFunc(p.Environ, func(e string) bool { return strings.HasPrefix(e, "PLX_ROLE=") }); i >= 0 {
			pids[strings.TrimPrefix(p.Environ[i], "PLX_ROLE=")] = p.PID
		}
	}
	return pids
}

// TestSurvivorsKeepTheirProcess has a language model on three hosts lose a
// process, and then a whole host, whose loss changes the numbers of the tasks on
// the next: all who were not lost go on in the processes that they have, and end
// with the bits of one process that nothing happened to.
func TestSurvivorsKeepTheirProcess(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 3})
	path := testhosts.Binary(t, "github.com/plx-run/plx/examples/lm")
	flags := []string{"--vocabulary=2000", "--width=16", "--hidden=16", "--length=4", "--batch-size=12", "--samples=50",
		"--digest", "--seed=3", "--steps=3000"}
	want := b.digest(nil, path, append(slices.Clone(flags), "--virtual-workers=3")...)
	launch := []string{"launch", "--hosts", b.ResourceFile(), "--lease", lease.String(), "--max-restarts", "2", "--restart-backoff", "200ms", "--min-workers", "2", path}
	r := b.start(append(launch, append(flags, "--ckpt-dir=.", "--ckpt-every-steps=100")...)...)
	r.saves(2)
	var before []map[string]int
	servers := 0
	for i, h := range b.Hosts {
		before = append(before, b.trainers(h))
		if before[i]["worker"] == 0 {
			t.Fatalf("host %s: no worker", h.Name)
		}
		if before[i]["ps"] != 0 { // one that owns nothing has ended
			servers++
		}
	}
	if servers == 0 {
		t.Fatalf("no server: %v\n%s", before, clip(r.stderr.String()))
	}
	kept := func(role string, hosts ...int) {
		for _, i := range hosts {
			if now := b.trainers(b.Hosts[i]); now[role] != before[i][role] && before[i][role] != 0 {
				t.Errorf("host %s: %s has pid %d, %d before\n%s", b.Hosts[i].Name, role, now[role], before[i][role], clip(r.stderr.String()))
			}
		}
	}

	for _, p := range b.processes(b.Hosts[1]) {
		if p.PID == before[1]["worker"] {
			b.kill(p)
		}
	}
	r.await(r.stderr, "going on after step ")
	kept("ps", 0, 1, 2)
	kept("worker", 0, 2)

	r.await(r.stderr, "generation 1 goes on behind step ") // a generation without a step leaves no process
	b.Hosts[1].PowerOff()
	r.await(r.stderr, "generation 2 starts on 2 hosts with 2 workers, without h2")
	r.until("all train again", func() bool { return strings.Count(r.stderr.String(), "going on after step ") == 2 })
	kept("worker", 0, 2)
	res := r.want(0)
	b.says(res, "done, after 2 restarts")
	if got := digestLine.FindString(res.stdout); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	b.gone(0, b.Hosts[0], b.Hosts[2])
}
