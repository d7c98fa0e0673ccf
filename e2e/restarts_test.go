//go:build long

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/patience"
	"github.com/plx-run/plx/internal/testhosts"
)

// lives is a program whose generations differ: before the last one it does
// something that is to go wrong, in the last it waits for a file and succeeds.
type lives struct {
	path, goAhead string
}

// lives writes the program. first is a script for generations before the given
// one.
func (b *bench) lives(last, first string) lives {
	b.t.Helper()
	l := lives{goAhead: filepath.Join(b.shared(), "go")}
	l.path = b.script("lives", "echo generation $PLX_GENERATION, rank $RANK of $WORLD_SIZE, first $PLX_FIRST_WORLD_SIZE${MARK:+, mark $MARK}\n"+
		"if [ $PLX_GENERATION -lt "+last+" ]; then\n"+first+"\nfi\n"+
		"while [ ! -e "+l.goAhead+" ]; do sleep 0.05; done\n")
	return l
}

// end lets the last generation succeed.
func (l lives) end(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(l.goAhead, nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

// says waits until a task has printed a line.
func (r *running) says(task, line string) {
	r.t.Helper()
	r.until(task+" says "+line, func() bool { return slices.Contains(lines(r.stdout.String(), task), line) })
}

// nothingOld fails the test if a child of a stubborn task is left on the hosts.
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

func TestRestarts(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 3})
	run := func(name string, test func(b *bench)) {
		t.Run(name, func(t *testing.T) { test(b.in(t)) })
	}
	run("a program that fails once", failsOnce)
	run("a killed task", taskKilled)
	run("a killed agent", agentReplaced)
	run("the budget is used up", budgetUsedUp)
	run("mistakes", mistakesAreNotRepeated)
	run("a stop between two generations", stoppedBetween)
	run("a cut host comes back", cutHostComesBack)
	run("without a host that went down", withoutAHost)
	b.Hosts[1].PowerOn()
	run("a host that is started again", rebootedHost)
}

// failsOnce has a worker that fails while the others do not want to end. All
// that they left is gone when the next generation runs.
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
	if n := strings.Count(res.stderr, "! plx: generation 1\n"); n != 1 {
		b.t.Errorf("the generation is announced %d times:\n%s", n, res.stderr)
	}
	b.hostsGone(0)
}

func taskKilled(b *bench) {
	l := b.lives("1", "echo up; exec sleep 77")
	r := b.start(again(b.ResourceFile(), "--log-dir", b.t.TempDir(), l.path)...)
	r.up("worker:0", "worker:1", "worker:2")
	b.kill(b.process(b.Hosts[2], "sleep 77"))
	r.says("worker:2", "generation 1, rank 2 of 3, first 3")
	l.end(b.t)
	res := r.want(0)
	b.says(res, "worker:2 on h3 was ended by signal 9 (killed): restarting in ")
	b.hostsGone(0)
}

// agentReplaced kills both processes of an agent: its tasks are ended over SSH,
// and the host has a new agent before the next generation.
func agentReplaced(b *bench) {
	// What has cleared its environment and left its session is nobody's then.
	l := b.lives("1", strings.Replace(stubborn, "env -i ", "", 1))
	r := b.start(again(b.ResourceFile("h1", "h2 nic=eth0 MARK='of h2'", "h3"), l.path)...)
	r.up("worker:0", "worker:1", "worker:2")
	var victims []testhosts.Process
	for _, name := range []string{"watchdog", "supervisor"} {
		victims = append(victims, b.process(b.Hosts[1], "plx agent "+name))
	}
	for _, p := range victims { // neither is to act on the other's end
		if err := p.Signal(syscall.SIGSTOP); err != nil {
			b.t.Fatal(err)
		}
	}
	for _, p := range victims {
		b.kill(p)
	}
	r.says("worker:1", "generation 1, rank 1 of 3, first 3, mark of h2")
	b.nothingOld(b.Hosts...)
	l.end(b.t)
	res := r.want(0)
	b.says(res, "plx: host h2: ", ": restarting in ")
	b.hostsGone(0)
}

func budgetUsedUp(b *bench) {
	// Worker 0 has said what is looked for before another one fails.
	said := filepath.Join(b.shared(), "said")
	l := b.lives("9", "[ $RANK = 0 ] && touch "+said+"$PLX_GENERATION\n"+
		"[ $RANK = $PLX_GENERATION ] && { until [ -e "+said+"$PLX_GENERATION ]; do sleep 0.05; done; exit $((PLX_GENERATION+4)); }\n"+patient)
	res := b.want(6, again(b.ResourceFile(), l.path)...)
	b.says(res, "job", "worker:2 on h3 exited with status 6; 2 of at most 2 restarts were made (--max-restarts)")
	for _, generation := range []string{"0", "1", "2"} {
		if line := "generation " + generation + ", rank 0 of 3, first 3"; !slices.Contains(lines(res.stdout, "worker:0"), line) {
			b.t.Errorf("worker:0 never said %q", line)
		}
	}
	b.hostsGone(0)
}

func mistakesAreNotRepeated(b *bench) {
	file := b.ResourceFile()
	res := b.want(127, again(file, "no-such-program")...)
	b.says(res, "job", "no-such-program", "not restarted")
	res = b.want(2, again(file, b.script("usage", "exit 2"))...)
	b.says(res, "job", "exited with status 2", "not restarted")
	b.want(2, "launch", "--hosts", file, "--max-restarts", "1", "--min-workers", "4", "true")
	b.want(2, "launch", "--hosts", file, "--min-workers", "4", "true")
	b.hostsGone(0)
}

func stoppedBetween(b *bench) {
	r := b.start(append(again(b.ResourceFile()), "--restart-backoff", "10m", b.script("fails", "exit 5"))...)
	r.await(r.stderr, "restarting in 10m0s (attempt 1 of 2)")
	r.signal(syscall.SIGINT)
	asked := time.Now()
	res := r.want(130)
	b.took("to stop", asked, patience.Limit)
	b.says(res, "job", "stopped by Ctrl-C")
	b.hostsGone(0)
}

// cutHostComesBack cuts a host off for longer than its lease. All workers are
// needed, so it is waited for, and none of its old processes is there when the
// next generation runs.
func cutHostComesBack(b *bench) {
	l := b.lives("1", stubborn)
	r := b.start(again(b.ResourceFile(), "--wait-host", "5m", l.path)...)
	r.up("worker:0", "worker:1", "worker:2")
	b.Hosts[1].Cut()
	cut := time.Now()
	r.await(r.stderr, "waiting up to 5m0s for hosts to come back (--wait-host); host h2:")
	b.took("to wait for the host", cut, 2*lease+patience.Limit)
	r.await(r.stderr, "plx: no connection to h2 for ") // a row, on a terminal
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

// withoutAHost takes a host's power. Two workers are enough: the others are
// numbered anew, once the lease of the host is over.
func withoutAHost(b *bench) {
	l := b.lives("1", stubborn)
	r := b.start(again(b.ResourceFile(), "--min-workers", "2", l.path)...)
	r.up("worker:0", "worker:1", "worker:2")
	b.Hosts[1].PowerOff()
	off := time.Now()
	r.says("worker:0", "generation 1, rank 0 of 2, first 3")
	r.says("worker:1", "generation 1, rank 1 of 2, first 3")
	b.took("to go on without the host", off, 2*lease+patience.Limit)
	if took := time.Since(off); took < lease/2 {
		b.t.Errorf("the next generation began %v after a host fell silent, its lease was %v", took, lease)
	}
	b.nothingOld(b.Hosts[0], b.Hosts[2])
	l.end(b.t)
	res := r.want(0)
	b.says(res, "generation 1 starts on 2 hosts with 2 workers, without h2")
	b.gone(0, b.Hosts[0], b.Hosts[2])
}

// rebootedHost takes a host's power and gives it back.
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

// TestAFrozenTaskIsRestarted stops a worker in the middle of a training: its
// heartbeats end, or its peers miss it first. Without checkpoints the next
// generation begins again, and ends with the weights of a run that nothing
// happened to.
func TestAFrozenTaskIsRestarted(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 2})
	mlp := testhosts.Binary(t, "github.com/plx-run/plx/examples/mlp")
	shared := b.shared()
	flags := []string{"--niters", "1200", "--train-size", "2000", "--save"}
	undisturbed := filepath.Join(shared, "undisturbed")
	b.want(0, append([]string{"launch", "--hosts", b.ResourceFile(), mlp}, append(flags, undisturbed)...)...)

	frozen := filepath.Join(shared, "frozen")
	r := b.start(append(again(b.ResourceFile(), "--freeze-timeout", "4s", mlp), append(flags, frozen)...)...)
	r.until("the first steps are made", func() bool { return strings.Contains(r.stdout.String(), "step 100") })
	if err := b.process(b.Hosts[1], "mlp --niters").Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stopped := time.Now()
	r.await(r.stderr, ": restarting in ")
	b.took("to notice a frozen task", stopped, patience.Limit)
	res := r.want(0)
	b.says(res, "worker:1 on h2", "it froze: no heartbeat for 4s: restarting in ")
	b.says(res, "job", "done, after 1 restart")
	if hash(t, frozen) != hash(t, undisturbed) {
		t.Error("the weights are not those of an undisturbed run")
	}
	b.hostsGone(0)
}
