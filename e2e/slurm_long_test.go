//go:build long

package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/internal/test/testhosts"
	"github.com/plx-run/plx/internal/test/testslurm"
)

// holds returns a program that runs until the test decides how worker:1 ends.
// Its folder is in the home directory that all hosts share.
func (b *slurmBench) holds() holder {
	b.t.Helper()
	dir, err := os.MkdirTemp(b.home, "held-")
	if err != nil {
		b.t.Fatal(err)
	}
	there := filepath.Join(b.slurm.HomeThere(), filepath.Base(dir))
	return holder{dir: dir, path: b.file(filepath.Base(dir)+".sh", "echo up\nwhile [ ! -s "+there+"/end ]; do sleep 0.03; done\n"+
		"echo last line\n[ \"$RANK\" = 1 ] && exit $(cat "+there+"/end); exit 0")}
}

// awaitText waits until a file contains a text, and returns the whole content
// of the file.
func (b *slurmBench) awaitText(path, text string) string {
	b.t.Helper()
	for end := time.Now().Add(patience.Limit); ; time.Sleep(50 * time.Millisecond) {
		got, err := os.ReadFile(path)
		if strings.Contains(string(got), text) {
			return string(got)
		}
		if time.Now().After(end) {
			b.t.Fatalf("%s has no %q: %v\n%s", path, text, err, clip(string(got)))
		}
	}
}

// jobOf returns the Slurm job id that a launch has printed.
func (r *running) jobOf() string {
	r.t.Helper()
	r.await(r.stderr, " of Slurm, with ")
	_, after, _ := strings.Cut(r.stderr.String(), "in job ")
	id, _, _ := strings.Cut(after, " ")
	return id
}

// killSteps kills the srun process of plx's job step on a node, with all
// processes of the step.
func (b *slurmBench) killSteps(node *testhosts.Host) {
	b.t.Helper()
	all, err := b.slurm.Login.Strays()
	if err != nil {
		b.t.Fatal(err)
	}
	killed := 0
	for _, p := range all {
		if p.Name == "srun" && strings.Contains(strings.Join(p.Args, " "), "--nodelist="+node.Name) {
			if err := p.Signal(syscall.SIGSTOP); err != nil { // none sees another's end
				b.t.Fatal(err)
			}
			killed++
		}
	}
	for _, p := range all {
		if p.Name == "srun" && strings.Contains(strings.Join(p.Args, " "), "--nodelist="+node.Name) {
			if err := p.Signal(syscall.SIGKILL); err != nil {
				b.t.Fatal(err)
			}
		}
	}
	if killed == 0 {
		b.t.Fatalf("no srun of %s", node.Name)
	}
}

// TestSlurmAttached runs the checks of TestVia inside a Slurm allocation, and
// makes parts of Slurm fail.
func TestSlurmAttached(t *testing.T) {
	b := newSlurmBench(t, testslurm.Options{Nodes: 2})
	h3 := b.slurm.Nodes[1]
	begin := func(b *slurmBench, flags string, more ...string) (*running, holder) {
		program := b.holds()
		r := b.salloc(flags, append(append([]string{"launch", "--ps", "none"}, more...), program.path)...)
		r.awaitLine("worker:0", "up")
		r.awaitLine("worker:1", "up")
		return r, program
	}
	t.Run("trainer", func(t *testing.T) {
		b := b.in(t)
		linear := testhosts.Binary(t, "github.com/plx-run/plx/examples/linear")
		over := b.salloc("-N2", "launch", linear, "--digest").want(0).stdout
		ssh := &bench{Cluster: b.Cluster, t: t, plx: b.plx, home: b.Cluster.Home}
		want := ssh.want(0, "launch", "--hosts", b.ResourceFile("h2: cpu", "h3: cpu"), linear, "--digest").stdout
		if a, c := digestLine.FindString(over), digestLine.FindString(want); a == "" || a != c {
			t.Errorf("digest %s in the allocation, %s over SSH", a, c)
		}
		b.idle()
	})
	t.Run("a lost step", func(t *testing.T) {
		b := b.in(t)
		r, program := begin(b, "-N2")
		b.killSteps(h3)
		r.await(r.stderr, "plx: host h3: connected")
		program.end(t, 5)
		if got := lines(r.want(5).stdout, "worker:1"); got[len(got)-1] != "last line" {
			t.Errorf("worker:1 printed %q", got)
		}
		b.idle()
	})
	t.Run("a restarted slurmd", func(t *testing.T) {
		b := b.in(t)
		r, program := begin(b, "-N2")
		b.slurm.KillSlurmd(h3)
		b.slurm.StartSlurmd(h3)
		program.end(t, 6)
		r.want(6)
		b.idle()
	})
	t.Run("a drained node", func(t *testing.T) {
		b := b.in(t)
		r, program := begin(b, "-N2")
		b.slurm.Run("scontrol", "update", "NodeName=h3", "State=DRAIN", "Reason=test")
		id := r.jobOf()
		name := b.slurm.Run("squeue", "--noheader", "--jobs="+id, "--format=%N")
		again := b.login("env", "SLURM_JOB_ID="+id, "SLURM_JOB_NODELIST="+name, "SLURM_JOB_CPUS_PER_NODE=1(x2)", b.plx, "exec", "hostname").want(0)
		contains(t, again.stdout, "h2", "h3") // the allocation keeps its nodes
		program.end(t, 7)
		r.want(7)
		b.slurm.Run("scontrol", "update", "NodeName=h3", "State=RESUME")
		if err := b.slurm.AwaitState("idle", b.slurm.Nodes...); err != nil {
			t.Error(err)
		}
		b.idle()
	})
	t.Run("a restart", func(t *testing.T) {
		b := b.in(t)
		program := b.file("twice", "[ \"$TORCHELASTIC_RESTART_COUNT\" = 0 ] && [ \"$RANK\" = 1 ] && exit 9\necho \"generation $PLX_GENERATION\"\n")
		res := b.salloc("-N2", "launch", "--ps", "none", "--max-restarts", "1", program).want(0)
		contains(t, res.stdout, "generation 1")
		b.idle()
	})
	t.Run("from the login node", func(t *testing.T) {
		b := b.in(t)
		r, program := begin(b, "-N2", "--name", "named")
		attached := b.login(b.plx, "attach", "named")
		attached.awaitLine("worker:1", "up")
		contains(t, b.login(b.plx, "jobs").want(0).stdout, "named-", "running")
		b.login(b.plx, "stop", "named").want(0)
		r.want(143)
		attached.want(143)
		contains(t, b.login(b.plx, "logs", "named").want(0).stdout, "up")
		contains(t, b.login(b.plx, "jobs").want(0).stdout, "stopped by plx stop")
		_ = program
		b.idle()
	})
	t.Run("detached", func(t *testing.T) {
		b := b.in(t)
		program := b.holds()
		id, output := b.sbatch("-N2", b.plx+" launch --ps none --detach --name apart "+program.path+"\nsleep 600\n")
		b.awaitText(output, "\napart-")
		follow := b.login(b.plx, "logs", "-f", "apart")
		follow.awaitLine("worker:1", "up")
		program.end(t, 4)
		follow.want(0)
		b.slurm.Run("scancel", id)
		b.idle()
	})
	t.Run("nothing to launch in", func(t *testing.T) {
		b := b.in(t)
		env := []string{"SLURM_JOB_ID=4000", "SLURM_JOB_NODELIST=h[2-3]", "SLURM_JOB_CPUS_PER_NODE=1(x2)", b.plx, "launch", "true"}
		res := b.login("env", env...).want(125)
		contains(t, res.stderr, "plx: job 4000 of Slurm: srun: ", "hint: the allocation is over")
		res = b.login("env", append([]string{"PATH=/nowhere"}, env...)...).want(125)
		contains(t, res.stderr, "there is no scontrol here", "hint: Slurm's commands must be on PATH")
		if n := strings.Count(res.stderr, "\n"); n != 2 {
			t.Errorf("it printed %d lines: %s", n, res.stderr)
		}
		res = b.login("env", append(env[:len(env)-2], "launch", "--no-slurm", "--dry-run", "true")...).want(0)
		contains(t, res.stdout, "127.0.0.2")
		b.idle()
	})
	t.Run("a node is lost", func(t *testing.T) { // This must be the last subtest, because Slurm marks the node as down.
		b := b.in(t)
		program := b.file("returns", "[ \"$TORCHELASTIC_RESTART_COUNT\" = 1 ] && echo alone && exit 0\necho up\nexec sleep 300\n")
		r := b.salloc("-N2 --no-kill", "launch", "--ps", "none", "--lease", "10s", "--max-restarts", "1", "--min-workers", "1", "--wait-host", "1s", program)
		r.awaitLine("worker:0", "up")
		r.awaitLine("worker:1", "up")
		h3.PowerOff()
		contains(t, r.want(0).stdout, "alone")
	})
}

// TestSlurmEnds lets Slurm end jobs that save checkpoints.
func TestSlurmEnds(t *testing.T) {
	b := newSlurmBench(t, testslurm.Options{Nodes: 2})
	linear := testhosts.Binary(t, "github.com/plx-run/plx/examples/linear")
	train := "exec " + b.plx + " launch -v --ps none " + linear + " --ckpt-dir saved --ckpt-every-secs 3600 --steps 1000000000\n"
	const saved = "stopped by signal terminated, saved at step "
	t.Run("scancel and requeue", func(t *testing.T) {
		b := b.in(t)
		id, output := b.sbatch("-N2 --requeue --open-mode=append", train)
		b.awaitText(output, "| step 20 ")
		b.slurm.Run("scontrol", "requeue", id)
		b.awaitText(output, saved)
		b.slurm.AwaitJob(id, "PENDING")
		b.slurm.Run("scontrol", "update", "JobId="+id, "StartTime=now") // otherwise Slurm would wait for two minutes before it starts the job again
		const again = "had the name slurm-"
		text := b.awaitText(output, again)
		for end := time.Now().Add(patience.Limit); ; time.Sleep(50 * time.Millisecond) {
			_, second, _ := strings.Cut(text, again)
			if strings.Contains(second, "begins anew") || strings.Contains(second, "| step 0 ") || time.Now().After(end) {
				t.Fatalf("it has not resumed: %s", clip(second))
			}
			if strings.Contains(second, "| step ") {
				break
			}
			text = b.awaitText(output, again)
		}
		b.slurm.Run("scancel", id)
		b.slurm.AwaitJob(id, "CANCELLED")
		if text := b.awaitText(output, saved); strings.Count(text, saved) != 2 {
			t.Errorf("it printed %s", clip(text))
		}
		b.idle()
	})
	t.Run("a warning before the end", func(t *testing.T) {
		b := b.in(t)
		id, output := b.sbatch("-N2", train)
		b.awaitText(output, "| step 20 ")
		b.slurm.Run("scancel", "--batch", "--signal=TERM", id)
		b.slurm.AwaitJob(id, "FAILED") // with status 143
		b.awaitText(output, saved)
		b.idle()
	})
	t.Run("the time limit", func(t *testing.T) {
		b := b.in(t)
		id, output := b.sbatch("-N2 --time=1", train)
		b.awaitText(output, "| step 20 ")
		b.awaitText(output, saved)
		b.slurm.AwaitJob(id, "TIMEOUT")
		b.idle()
	})
	t.Run("scancel under salloc", func(t *testing.T) {
		b := b.in(t)
		program := b.file("sleeps", "echo up\nexec sleep 300\n")
		r := b.salloc("-N2", "launch", "--ps", "none", program)
		r.awaitLine("worker:1", "up")
		b.slurm.Run("scancel", r.jobOf())
		if res := r.wait(); res.code == 0 {
			t.Errorf("it printed %s", res.stderr)
		}
		b.idle()
	})
}

// TestSlurmSubmitted ends jobs that plx has submitted to Slurm.
func TestSlurmSubmitted(t *testing.T) {
	b := newSlurmBench(t, testslurm.Options{Nodes: 2})
	t.Run("files of the script's plx", func(t *testing.T) {
		b := b.in(t)
		b.submit("--nodes=1", "--log-dir", "kept", b.file("talks", "echo done\n")).want(0)
		kept, err := os.ReadFile(filepath.Join(b.home, "kept", "worker-0.stdout"))
		if err != nil || string(kept) != "done\n" {
			t.Errorf("kept is %q, %v", kept, err)
		}
	})
	t.Run("cancelled while it runs", func(t *testing.T) {
		b := b.in(t)
		attached := b.submit("--nodes=2", b.file("sleeps", "echo up\nexec sleep 300\n"))
		attached.awaitLine("worker:1", "up")
		b.slurm.Run("scancel", attached.jobOfSlurm())
		attached.want(143).lastLine(t, ": stopped by signal terminated")
		b.idle()
	})
	t.Run("Ctrl-C", func(t *testing.T) {
		b := b.in(t)
		attached := b.submit("--nodes=2", b.file("sleeps", "echo up\nexec sleep 300\n"))
		attached.awaitLine("worker:1", "up")
		b.interrupt()
		contains(t, attached.want(130).stderr, "a second signal leaves it alone", ": stopped by Ctrl-C")
		b.idle()
	})
}

// TestSlurmPreempts has a job of another partition preempt a job that plx has
// submitted. The preempted job saves a checkpoint, and resumes when Slurm has
// started it again.
func TestSlurmPreempts(t *testing.T) {
	b := newSlurmBench(t, testslurm.Options{Nodes: 2})
	linear := testhosts.Binary(t, "github.com/plx-run/plx/examples/linear")
	attached := b.submit("--nodes=2", "-v", linear, "--ckpt-dir", "saved", "--ckpt-every-secs", "3600", "--steps", "1000000000")
	attached.await(attached.stdout, "| step 20 ")
	id := attached.jobOfSlurm()
	free := b.occupy("--partition=urgent")
	attached.await(attached.stderr, "saved at step ")
	attached.await(attached.stderr, ": Slurm has requeued it, as job ")
	_, after, _ := strings.Cut(attached.stderr.String(), "Slurm has requeued it, as job ")
	second, _, _ := strings.Cut(after, "\n")
	first := strings.TrimSuffix(second, "-r1")
	if second == first {
		t.Fatalf("the second run is job %q", second)
	}
	printed := len(attached.stdout.String()) // the first run has printed its last line
	rows := b.login(b.plx, "jobs").want(0).stdout
	contains(t, rows, second, "pending", first+" ", "saved at step ")
	free()
	b.slurm.Run("scontrol", "update", "JobId="+id, "StartTime=now") // otherwise Slurm would wait for two minutes before it starts the job again
	for end := time.Now().Add(patience.Limit); len(attached.stdout.String()) == printed; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the second run has printed nothing\n%s", clip(attached.stderr.String()))
		}
	}
	if text := attached.stdout.String(); strings.Contains(text[printed:], "| step 0 ") || strings.Count(attached.stderr.String(), "begins anew") != 1 {
		t.Errorf("it has not resumed: %s", clip(text[printed:]))
	}
	contains(t, b.login(b.plx, "jobs").want(0).stdout, second, "running")
	b.login(b.plx, "stop", "--checkpoint", first).want(0) // the id from the submission refers to the newest run of the job
	res := attached.want(143)
	contains(t, res.stderr, "job "+second+" (", ": stopped by plx stop, saved at step ")
	contains(t, b.login(b.plx, "logs", first).want(0).stdout, "| step 20 ")
	b.idle()
}

// This adds the third way to reach hosts: the Slurm allocation in which plx
// runs.
func init() {
	ways = append(ways, way{"Slurm", func(t *testing.T) (*bench, []string) {
		b := newSlurmBench(t, testslurm.Options{Nodes: 2})
		out := b.slurm.Run("salloc", "-N2", "--no-shell")
		_, after, found := strings.Cut(out, "Granted job allocation ")
		if !found {
			t.Fatalf("salloc printed %q", out)
		}
		id := strings.Fields(after)[0]
		t.Cleanup(func() { b.slurm.Run("scancel", id) })
		within := []string{"SLURM_JOB_ID=" + id, "SLURM_JOB_NODELIST=h[2-3]", "SLURM_JOB_CPUS_PER_NODE=1(x2)"}
		plx := func(env ...string) func(args ...string) *exec.Cmd {
			return func(args ...string) *exec.Cmd {
				return b.slurm.Command(context.Background(), "env", slices.Concat(env, []string{b.plx}, args)...)
			}
		}
		login := *b.bench
		login.allocation = &allocation{nodes: b.slurm.Nodes, plx: plx()}
		b.allocation = &allocation{nodes: b.slurm.Nodes, plx: plx(within...), login: &login}
		return b.bench, nil
	}})
}
