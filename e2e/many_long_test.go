//go:build long

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/testhosts"
)

// manyTime limits each wait in tests with hundreds of hosts, for a busy
// machine.
const manyTime = 8 * time.Minute

// launcherCost is the processor time and memory that a plx process has used on
// this machine.
type launcherCost struct {
	files          int // open now
	resident, most int // memory in KiB: current, and highest so far
}

func (r *running) cost() (c launcherCost) {
	r.t.Helper()
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", r.cmd.Process.Pid))
	if err != nil {
		r.t.Fatal(err)
	}
	c.files = len(files)
	for line := range strings.Lines(string(read(r.t, fmt.Sprintf("/proc/%d/status", r.cmd.Process.Pid)))) {
		for name, value := range map[string]*int{"VmRSS:": &c.resident, "VmHWM:": &c.most} {
			if f := strings.Fields(line); f[0] == name {
				*value, _ = strconv.Atoi(f[1]) // the kernel wrote it
			}
		}
	}
	return c
}

func (c launcherCost) String() string {
	return fmt.Sprintf("%d files, %d MiB, at most %d MiB", c.files, c.resident>>10, c.most>>10)
}

// awaitMany waits until plx has printed text n times.
func (r *running) awaitMany(w *watched, text string, n int) time.Duration {
	r.t.Helper()
	begun := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), manyTime)
	defer cancel()
	if !w.await(ctx, text, n, r.done) {
		r.t.Fatalf("plx %q has written %q %d times, not %d\nstderr:\n%s", r.args, text, strings.Count(w.String(), text), n, clip(r.stderr.String()))
	}
	return time.Since(begun).Round(100 * time.Millisecond)
}

// ends waits until a plx process ends with the given exit status.
func (r *running) ends(code int) time.Duration {
	r.t.Helper()
	begun := time.Now()
	select {
	case <-r.done:
	case <-time.After(manyTime):
	}
	r.want(code)
	return time.Since(begun).Round(100 * time.Millisecond)
}

// killAgent kills the two agent processes of a job on a host, whose numbers
// are in the host's state file. If server is true, it also kills the process
// that started them, which closes the connection.
func (b *bench) killAgent(job, host string, server bool) {
	b.t.Helper()
	var state struct{ Watchdog, Supervisor int }
	found, err := filepath.Glob(filepath.Join(b.home, ".plx", "jobs", job, host, "state.json"))
	if err != nil || len(found) != 1 {
		b.t.Fatalf("state of host %s: %v, %v", host, found, err)
	}
	if err := json.Unmarshal(read(b.t, found[0]), &state); err != nil || state.Watchdog < 2 || state.Supervisor < 2 {
		b.t.Fatalf("%s: %+v, %v", found[0], state, err)
	}
	victims := []int{state.Watchdog, state.Supervisor}
	if server {
		stat := string(read(b.t, fmt.Sprintf("/proc/%d/stat", state.Watchdog)))
		var parent int
		if _, err := fmt.Sscanf(stat[strings.LastIndex(stat, ")"):], ") %s %d", new(string), &parent); err != nil || parent < 2 {
			b.t.Fatalf("the parent of the watchdog: %q, %v", stat, err)
		}
		victims = append([]int{parent}, victims...)
	}
	for _, pid := range victims {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			b.t.Fatal(err)
		}
	}
}

// leftOf returns the number of a job's processes on this machine.
func leftOf(t *testing.T, job string) (n int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), "PLX_JOB="+job+"\x00") {
			n++
		}
	}
	return n
}

// With many embedded hosts on one machine, the launcher needs the same time
// and memory per host, whatever the number of hosts.
func TestManyEmbeddedHosts(t *testing.T) {
	per := map[int]launcherCost{}
	fewest := min(64, 8*runtime.NumCPU())
	most := 4 * fewest
	for _, hosts := range []int{fewest, 2 * fewest, most} {
		b := local(t)
		program := b.lives("1", "echo up; exec sleep 3600")
		r := b.start("launch", "--local", fmt.Sprintf("%dx1", hosts), "--name", "many", "--ps", "none", "--lease", "3m", "--max-restarts", "2", "--restart-backoff", "100ms", program.path)
		started := r.awaitMany(r.stdout, " up\n", hosts)
		running, job := r.cost(), b.id("many")
		logs := b.start("logs", job)
		told := logs.ends(0)
		if n := strings.Count(logs.stdout.String(), " up\n"); n != hosts {
			t.Errorf("%d hosts: plx logs printed the lines of %d", hosts, n)
		}
		b.killAgent(job, fmt.Sprintf("127.0.0.%d", hosts/2), false)
		restarted := r.awaitMany(r.stdout, "generation 1, rank", hosts)
		again := r.cost()
		stop := b.start("stop", job)
		stopped := stop.ends(0)
		r.ends(143)
		if n := leftOf(t, job); n > 0 {
			t.Errorf("%d hosts: %d processes are left of the job", hosts, n)
		}
		t.Logf("%d hosts: started in %v (%s), logs in %v, restarted after a lost agent in %v (%s), stopped in %v", hosts, started, running, told, restarted, again, stopped)
		if again.files > running.files+8 {
			t.Errorf("%d hosts: %d open files, after a restart %d", hosts, running.files, again.files)
		}
		per[hosts] = running
	}
	few, many := per[fewest], per[most]
	if growth := (many.files - few.files) / (most - fewest); growth > few.files/fewest {
		t.Errorf("%d open files for each further host, %d for the first %d", growth, few.files/fewest, fewest)
	}
	if growth := (many.most - few.most) / (most - fewest); growth > few.most/fewest {
		t.Errorf("%d KiB for each further host, %d for the first %d", growth, few.most/fewest, fewest)
	}
}

// Many hosts are reached by a custom command, which in this test stays on this
// machine. One host fails during a training; the job continues without it, and
// is then scaled to 16 more hosts. With more than 16 hosts per processor,
// agents on a slow machine would be late by more than a lease.
func TestManyHostsByCommand(t *testing.T) {
	hosts, more := min(256, 16*runtime.NumCPU()), 16
	b := local(t)
	down := b.shared()
	via := b.script("enter", "[ -e "+down+"/$1 ] && { echo \"no host $1\" >&2; exit 1; }\nshift; exec \"$@\"") + " {host} {command}"
	var lines []string
	for h := range hosts + more {
		lines = append(lines, fmt.Sprintf("n%d: cpu addr=127.1.%d.%d", h, h/200, h%200+1))
	}
	files := map[int]string{}
	for _, n := range []int{hosts, hosts + more} {
		files[n] = filepath.Join(t.TempDir(), "hosts")
		put(t, files[n], strings.Join(lines[:n], "\n")+"\n", 0o644)
	}
	r := b.start("launch", "--name", "many", "--via", via, "--hosts", files[hosts], "--ps", "n0", "--lease", "60s", "--grace", "30s",
		"--max-restarts", "2", "--restart-backoff", "100ms", "--min-workers", fmt.Sprint(hosts*3/4),
		testhosts.Binary(t, "github.com/plx-run/plx/examples/linear"), "--arch=ps", "--ckpt-dir=saved", "--virtual-workers=512", "--steps=1000000")
	started := r.awaitMany(r.stdout, " step 20 ", 1)
	cost, job := r.cost(), b.id("many")
	put(t, filepath.Join(down, "n9"), "", 0o644)
	b.killAgent(job, "n9", true)
	lost := r.awaitMany(r.stderr, fmt.Sprintf("generation 1 starts on %d hosts with %d workers, without n9", hosts-1, hosts-1), 1)
	r.awaitMany(r.stderr, "no checkpoint to resume from", 2)
	stepped := r.awaitMany(r.stdout, " step 20 ", 2)
	if err := os.Remove(filepath.Join(down, "n9")); err != nil {
		t.Fatal(err)
	}
	r.awaitMany(r.stderr, "host n9: is back", 1)
	scale := b.start("scale", "many", "--via", via, "--hosts", files[hosts+more])
	scaled := scale.ends(0)
	contains(t, scale.stderr.String(), fmt.Sprintf("scaled from %d to %d workers", hosts-1, hosts+more))
	after := r.cost()
	stop := b.start("stop", job)
	stopped := stop.ends(0)
	r.ends(143)
	if n := leftOf(t, job); n > 0 {
		t.Errorf("%d processes are left of the job", n)
	}
	t.Logf("%d hosts by a command: started in %v (%s), restarted without a lost host in %v and %v more to step 20, scaled to %d hosts in %v (%s), stopped in %v",
		hosts, started, cost, lost, stepped, hosts+more, scaled, after, stopped)
}
