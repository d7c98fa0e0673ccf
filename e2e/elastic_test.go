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

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/internal/test/testhosts"
)

// elasticFlags are flags of a language model whose bits do not depend on the
// number of workers.
var elasticFlags = []string{"--vocabulary=2000", "--width=16", "--hidden=16", "--length=4", "--batch-size=12", "--samples=50",
	"--virtual-workers=6", "--digest", "--seed=3", "--steps=6000"}

// A model is trained on two hosts, then scaled to three hosts and then to one.
// It ends with the same weights as a training in one process. plx refuses
// impossible changes, and then changes nothing.
func TestElastic(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 3, Second: true})
	want := b.digest(nil, workload(t), "--virtual-workers=6", "--batch=12", "--steps=800", "--digest", "--pace=1us")
	for _, mode := range []string{"attached", "detached"} {
		t.Run(mode, func(t *testing.T) { scaled(b.in(t), mode == "detached", want) })
	}
	t.Run("refused", func(t *testing.T) { notScaled(b.in(t), testhosts.Binary(t, "github.com/plx-run/plx/examples/lm")) })
}

// scaled scales a running job twice. The job takes its last steps only after
// the last change.
func scaled(b *bench, detached bool, want string) {
	name := map[bool]string{false: "attached", true: "detached"}[detached]
	job, finish := b.paced("--ckpt-dir=saved", "--virtual-workers=6", "--batch=12", "--steps=800", "--digest")
	two, three, one := b.ResourceFile("h1 OWN=one", "h2"), b.ResourceFile("h1", "h2", "h3 MARK=new"), b.ResourceFile("h1")
	var follow *running
	dir := b.t.TempDir()
	if detached {
		follow = b.start("attach", b.detach(append([]string{"--hosts", two, "--nic", "eth1", "--env", "ALL=all", "--name", name}, job...)...))
	} else {
		newVenv(b.t, system, filepath.Join(dir, "venv"))
		put(b.t, filepath.Join(dir, "work", "file"), "at the launch\n", 0o644)
		follow = b.start(append([]string{"launch", "-v", "--hosts", two, "--nic", "eth1", "--env", "ALL=all", "--name", name, "--venv", filepath.Join(dir, "venv"),
			"--workdir", filepath.Join(dir, "work"), "--setup", `export READ="$(cat file)"; rm file`}, job...)...)
	}
	b.trains(name)
	if err := os.RemoveAll(dir); err != nil { // new hosts must get the files from the job's hosts, not from this machine
		b.t.Fatal(err)
	}

	res := b.want(0, "scale", name, "--hosts", three)
	b.says(res, "scaled from 2 to 3 workers after step", "paused for")
	if !detached { // plx attach follows only the hosts that it found at its start
		follow.await(follow.stderr, "scaled from 2 to 3 workers")
		follow.await(follow.stderr, "worker:2")
	}
	want3 := []string{"ALL=all", "MARK=new", "GLOO_SOCKET_IFNAME=eth1"}
	if !detached {
		tools, err := filepath.Glob(filepath.Join(b.Hosts[2].HomeDir, ".plx", "envs", "*", "bin", "tool"))
		if err != nil || len(tools) != 1 {
			b.t.Fatalf("host h3 has the environments %v, %v", tools, err)
		}
		want3 = append(want3, "READ=at the launch", "VIRTUAL_ENV=/root/.plx/envs/"+filepath.Base(filepath.Dir(filepath.Dir(tools[0]))))
	}
	b.environOf(b.Hosts[2], want3, "OWN")
	b.says(b.want(0, "scale", name, "--hosts", three), "it has these hosts already")
	if j := b.jobsOf()[b.jobNamed(name)]; j.Hosts != 3 || j.Generation != 1 {
		b.t.Errorf("plx jobs: %+v", j)
	}

	b.says(b.want(0, "scale", name, "--hosts", one), "scaled from 3 to 1 workers after step")
	b.gone(patience.Limit, b.Hosts[1], b.Hosts[2])
	if j := b.jobsOf()[b.jobNamed(name)]; j.Hosts != 1 || j.Generation != 2 {
		b.t.Errorf("plx jobs: %+v", j)
	}
	finish()
	if res := follow.want(0); digestLine.FindString(res.stdout) != want {
		b.t.Errorf("got  %s\nwant %s\n%s", digestLine.FindString(res.stdout), want, clip(res.stderr))
	}
	b.hostsGone(patience.Limit)
}

// environOf waits for a task on host h that has all variables of want. It
// fails the test if this task has the variable without.
func (b *bench) environOf(h *testhosts.Host, want []string, without string) {
	b.t.Helper()
	has := func(p testhosts.Process) bool {
		return !slices.ContainsFunc(want, func(e string) bool { return !slices.Contains(p.Environ, e) })
	}
	for deadline := time.Now().Add(patience.Limit); ; time.Sleep(50 * time.Millisecond) {
		all := b.processes(h)
		if i := slices.IndexFunc(all, has); i >= 0 {
			if slices.ContainsFunc(all[i].Environ, func(e string) bool { return strings.HasPrefix(e, without+"=") }) {
				b.t.Errorf("host %s: %s has %s", h.Name, all[i], without)
			}
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("host %s: no task with %q among %v", h.Name, want, all)
		}
	}
}

// A detached job is scaled from another machine. Afterwards, the machine that
// launched the job still gets everything: logs, hosts, the end of the job and
// saved files. New hosts start their tasks with the options of the launch,
// although the other machine never saw these options.
func TestScaledFromElsewhere(t *testing.T) {
	b := newBench(t, testhosts.Options{Hosts: 4})
	path := testhosts.Binary(t, "github.com/plx-run/plx/examples/lm")
	job := append([]string{path, "--ckpt-dir=saved"}, append(elasticFlags, "--steps=1000000")...)
	sub := filepath.Join(t.TempDir(), "sub")
	put(t, filepath.Join(sub, "mark"), "sent", 0o644)
	b.detach(append([]string{"--hosts", b.ResourceFile("h1", "h2"), "--name", "moved", "--copy", sub, "--workers-per-host", "2", "--ps", "h1"}, job...)...)
	follow := b.start("attach", "moved")
	b.trains("moved")
	b.says(b.elsewhere().want(0, "scale", "moved", "--hosts", b.ResourceFile("h1", "h3", "h4")), "scaled from 4 to 6 workers")
	for _, h := range b.Hosts[2:] { // the new hosts get the files from h1
		marks, err := filepath.Glob(filepath.Join(h.HomeDir, ".plx/jobs/*", h.Name, "tasks/*/sub/mark"))
		if err != nil || len(marks) != 2 {
			t.Errorf("host %s: not every task has the files of --copy: %v, %v", h.Name, marks, err)
		}
	}
	b.gone(patience.Limit, b.Hosts[1])

	res := b.want(0, "logs", "moved")
	for _, task := range []string{"ps:0", "worker:0", "worker:1", "worker:5"} {
		if len(lines(res.stderr, task)) == 0 {
			t.Errorf("plx logs has nothing of %s", task)
		}
	}
	if len(lines(res.stderr, "ps:1")) > 0 {
		t.Error("a new host has a server, and the launch wanted one on h1 alone")
	}
	if j := b.jobsOf()[b.jobNamed("moved")]; j.Hosts != 3 || j.Generation != 1 {
		t.Errorf("plx jobs: %+v", j)
	}
	b.says(b.want(0, "stop", "--checkpoint", "moved"), "stopped on 3 hosts, saved at step")
	b.says(b.want(0, "fetch", "moved", t.TempDir()), "fetched")
	follow.wait()
	b.hostsGone(patience.Limit)
}

// trains waits until a job takes training steps. It does not wait for the line
// of output that reports this, because plx attach may start after that line.
func (b *bench) trains(name string) {
	b.t.Helper()
	for deadline := time.Now().Add(patience.Limit); ; time.Sleep(100 * time.Millisecond) {
		if b.jobNamed(name) != "" && strings.Contains(b.run("logs", "-v", name).stderr, ", loss mean, ") {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("job %s does not train", name)
		}
	}
}

// jobNamed returns the id of the newest job with the given name.
func (b *bench) jobNamed(name string) (id string) {
	for job, j := range b.jobsOf() {
		if j.Name == name && job > id {
			id = job
		}
	}
	return id
}

func notScaled(b *bench, path string) {
	two, three := b.ResourceFile("h1", "h2"), b.ResourceFile("h1", "h2", "h3: cpu*5")
	launch := func(name string, words ...string) *running {
		r := b.start(append([]string{"launch", "--hosts", two, "--name", name}, words...)...)
		return r
	}
	refused := func(name, file string, words ...string) {
		b.t.Helper()
		res := b.want(125, "scale", name, "--hosts", file)
		for _, w := range append(words, "not scaled") {
			if !strings.Contains(res.stderr, w) {
				b.t.Errorf("plx scale %s does not say %q:\n%s", name, w, res.stderr)
			}
		}
		b.gone(patience.Limit, b.Hosts[2])
	}
	end := func(r *running) {
		r.signal(syscall.SIGINT)
		r.want(130)
	}
	foreign := launch("foreign", b.script("waits", "echo up; sleep 100"))
	foreign.up("worker:0", "worker:1")
	refused("foreign", three, "cannot be asked for a checkpoint")
	end(foreign)

	train := append([]string{path}, append(elasticFlags, "--steps=1000000")...)
	unsaved := launch("unsaved", append([]string{"-v"}, train...)...)
	unsaved.await(unsaved.stderr, ", loss mean, ")
	refused("unsaved", three, "there is no --ckpt-dir")
	end(unsaved)

	many := launch("many", append(append([]string{"-v"}, train...), "--ckpt-dir=saved")...)
	many.await(many.stderr, ", loss mean, ")
	refused("many", three, "7 workers", "6 virtual")
	refused("many", b.ResourceFile("h3"), "no host would stay")
	end(many)
	b.want(2, "scale", "many")
	b.hostsGone(0)
}
