//go:build long

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/internal/test/testhosts"
)

// lives is a program whose generations differ. Until the last generation it
// runs a script that fails. In the last generation it waits for a file and
// succeeds.
type lives struct {
	path, goAhead string
}

// lives writes the program. Generations before the generation last run the
// script first.
func (b *bench) lives(last, first string) lives {
	b.t.Helper()
	l := lives{goAhead: filepath.Join(b.shared(), "go")}
	l.path = b.script("lives", "echo generation $PLX_GENERATION, rank $RANK of $WORLD_SIZE, first $PLX_FIRST_WORLD_SIZE\n"+
		"if [ $PLX_GENERATION -lt "+last+" ]; then\n"+first+"\nfi\n"+
		"while [ ! -e "+l.goAhead+" ]; do sleep 0.05; done\n")
	return l
}

// end makes the last generation succeed.
func (l lives) end(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(l.goAhead, nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

// says waits until a task has printed the given line.
func (r *running) says(task, line string) {
	r.t.Helper()
	r.until(task+" says "+line, func() bool { return slices.Contains(lines(r.stdout.String(), task), line) })
}

// nothingOld fails the test if a child process of a stubborn task still runs
// on the hosts.
func (b *bench) nothingOld(hosts ...*testhosts.Host) {
	b.t.Helper()
	for _, h := range hosts {
		for _, p := range b.processes(h) {
			if command := strings.Join(p.Args, " "); strings.Contains(command, "sleep 100") {
				b.t.Errorf("host %s: %s of an old generation is still there", h.Name, command)
			}
		}
	}
}

// TestRestarts covers what TestWays and the fault grid do not: a worker that
// fails while other tasks ignore signals, and hosts that come back.
func TestRestarts(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 3})
	run := func(name string, test func(b *bench)) {
		t.Run(name, func(t *testing.T) { test(b.in(t)) })
	}
	run("a program that fails once", failsOnce)
	run("a cut host comes back", cutHostComesBack)
	run("a host that is started again", rebootedHost)
}

// failsOnce has a worker that fails while the other tasks ignore signals. No
// process of the first generation may exist when the next one runs.
func failsOnce(b *bench) {
	fail := filepath.Join(b.shared(), "fail")
	l := b.lives("1", "if [ $RANK = 1 ]; then until [ -e "+fail+" ]; do sleep 0.05; done; exit 3; fi\n"+stubborn)
	r := b.start(again(b.ResourceFile(), l.path)...)
	r.up("worker:0", "worker:2")
	put(b.t, fail, "", 0o644)
	for _, rank := range []string{"0", "1", "2"} {
		r.says("worker:"+rank, "generation 1, rank "+rank+" of 3, first 3")
	}
	b.nothingOld(b.Hosts...)
	l.end(b.t)
	res := r.want(0)
	b.says(res, "worker:1 on h2 exited with status 3: restarting in ")
	b.says(res, "restarted (1 of 2): generation 1 starts on 3 hosts with 3 workers")
	b.says(res, "job", "done, after 1 restart")
	if strings.Contains(res.stderr, "! plx: generation 1\n") { // plx prints this line only with -v (user report T4)
		b.t.Errorf("each task announces the generation:\n%s", res.stderr)
	}
	b.hostsGone(0)
}

// cutHostComesBack disconnects a host for longer than its lease. The job needs
// all workers, so plx waits for the host. None of the host's old processes may
// exist when the next generation runs.
func cutHostComesBack(b *bench) {
	l := b.lives("1", stubborn)
	r := b.start(again(b.ResourceFile(), "--wait-host", "5m", l.path)...)
	r.up("worker:0", "worker:1", "worker:2")
	b.Hosts[1].Cut()
	cut := time.Now()
	r.await(r.stderr, "waiting up to 5m0s for hosts to come back (--wait-host); host h2:")
	b.took("to wait for the host", cut, 2*lease+patience.Limit)
	r.await(r.stderr, "plx: no connection to h2 for ") // on a terminal, plx prints this in one row
	b.Hosts[1].Heal()
	healed := time.Now()
	r.says("worker:1", "generation 1, rank 1 of 3, first 3")
	b.took("to go on", healed, patience.Limit)
	b.nothingOld(b.Hosts...)
	l.end(b.t)
	res := r.want(0)
	b.says(res, "host h2: is back")
	b.says(res, "job", "done, after 1 restart")
	b.hostsGone(0)
}

// rebootedHost powers a host off and on again.
func rebootedHost(b *bench) {
	l := b.lives("1", stubborn)
	r := b.start(again(b.ResourceFile(), "--wait-host", "5m", l.path)...)
	r.up("worker:0", "worker:1", "worker:2")
	b.Hosts[1].PowerOff()
	r.await(r.stderr, "host h2: not heard for")
	b.Hosts[1].PowerOn()
	r.says("worker:1", "generation 1, rank 1 of 3, first 3")
	b.nothingOld(b.Hosts...)
	l.end(b.t)
	res := r.want(0)
	b.says(res, "generation 1 starts on 3 hosts with 3 workers")
	b.hostsGone(0)
}
