//go:build long

package e2e

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/plx-run/plx/internal/test/testhosts"
)

func TestOutputs(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 2})
	file := b.ResourceFile("h1", "h2: cpu*2")
	t.Run("each task's own", func(t *testing.T) { outputsOfTasks(b.in(t), file) })
	t.Run("a folder that tasks share", func(t *testing.T) { outputsShared(b.in(t), file) })
	t.Run("a job that makes none", func(t *testing.T) { outputsNone(b.in(t), file) })
	t.Run("a folder that was sent", func(t *testing.T) { outputsOfWorkdir(b.in(t), file) })
	t.Run("checkpoints, summaries and timelines too", func(t *testing.T) { outputsOfTrainer(b.in(t), file) })
	t.Run("a full disk here", func(t *testing.T) { outputsOnAFullDisk(b.in(t), file) })
	t.Run("Ctrl-C while they are fetched", func(t *testing.T) { outputsInterrupted(b.in(t), file) })
	t.Run("prune keeps them", func(t *testing.T) { outputsPruned(b.in(t), file) })
	t.Run("what nothing names", func(t *testing.T) { outputsUnnamed(b.in(t), file) })
	b.hostsGone(0)
}

// outputsOfTasks runs a job that fails, with equal files of 1 MB in the
// folders of all tasks.
func outputsOfTasks(b *bench, file string) {
	dir, written := filepath.Join(b.t.TempDir(), "a b"), b.shared()
	res := b.want(3, "launch", "--hosts", file, "--name", "own", "--output", "*.pt", "--output", "runs", "--fetch", dir, b.script("job", `mkdir -p "runs/a b"
echo $RANK > "runs/a b/rank"; head -c 1000000 /dev/zero > model.pt; ln -s model.pt last.pt; ln -s /etc/passwd evil.pt; touch .hidden.pt other `+written+`/$RANK
[ $RANK = 0 ] || exit 0; until [ -e `+written+`/1 ] && [ -e `+written+`/2 ]; do sleep 0.05; done; exit 3`))
	want := []string{}
	for _, task := range []string{"h1/worker-0", "h2/worker-1", "h2/worker-2"} {
		want = append(want, "outputs/"+task+"/last.pt", "outputs/"+task+"/model.pt", "outputs/"+task+"/runs/a b/rank")
	}
	if got := files(b.t, dir); !slices.Equal(got, want) {
		b.t.Errorf("got %q, want %q", got, want)
	}
	if text := string(read(b.t, filepath.Join(dir, "outputs/h2/worker-2/runs/a b/rank"))); text != "2\n" {
		b.t.Errorf("worker:2 wrote %q", text)
	}
	contains(b.t, res.stderr, "fetched 9 outputs of "+b.id("own")+" into "+dir+"/outputs: 9 files, 976.6 KiB\n", // the model once
		"host h1: output worker-0/evil.pt is not fetched: it is a symbolic link out of the folder")
	put(b.t, filepath.Join(dir, "outputs/h1/worker-0/model.pt"), "mine", 0o600)
	contains(b.t, b.want(125, "fetch", "own", dir).stderr, "outputs/h1/worker-0/model.pt already exists with other content")
	if text := string(read(b.t, filepath.Join(dir, "outputs/h1/worker-0/model.pt"))); text != "mine" {
		b.t.Errorf("plx fetch replaced a file by %q", text)
	}
	for want, pattern := range map[string]string{"relative to where": "/tmp/*", "leads out": "../x", "begin with a dot": ".ssh/*", "no valid pattern": "[", "empty": ""} {
		contains(b.t, b.want(2, "launch", "--hosts", file, "--output", pattern, "true").stderr, want)
	}
}

// outputsOnAFullDisk fetches three outputs of 60 kB onto a disk of 100 KiB on
// this machine, and fetches the rest when the disk has room again.
func outputsOnAFullDisk(b *bench, file string) {
	dir := b.t.TempDir()
	mount := func(args ...string) {
		if out, err := exec.Command("mount", args...).CombinedOutput(); err != nil {
			b.t.Fatalf("mount %q: %v: %s", args, err, out)
		}
	}
	mount("-t", "tmpfs", "-o", "size=100k", "tmpfs", dir)
	b.t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			b.t.Errorf("umount: %v: %s", err, out)
		}
	})
	b.want(0, "launch", "--hosts", file, "--name", "full", "--output", "*.pt", b.script("job", "{ echo $RANK; head -c 60000 /dev/urandom; } >model.pt"))
	res := b.want(125, "fetch", "full", dir)
	if n := strings.Count(res.stderr, "of this machine"); n != 1 || strings.Contains(res.stderr, "no space left") {
		b.t.Errorf("%d lines on a full disk, want one:\n%s", n, res.stderr)
	}
	contains(b.t, res.stderr, "plx: "+dir+": the disk of this machine is full: ", " more to fetch\nplx: hint: make room; then plx fetch ")
	mount("-o", "remount,size=1m", dir)
	b.want(0, "fetch", "full", dir)
	if got := files(b.t, filepath.Join(dir, "outputs")); len(got) != 3 {
		b.t.Errorf("got %q", got)
	}
}

// outputsInterrupted interrupts a fetch over a slow link, and fetches the rest
// over a fast link.
func outputsInterrupted(b *bench, file string) {
	dir := b.t.TempDir()
	b.want(0, "launch", "--hosts", file, "--name", "slow", "--output", "*.pt", b.script("job", "head -c 4000000 /dev/urandom >model.pt"))
	for _, h := range b.Hosts {
		h.Shape("128kbit")
	}
	r := b.start("fetch", "slow", dir)
	r.await(r.stderr, "fetching: ")
	r.signal(syscall.SIGINT)
	res := r.want(130)
	job := b.id("slow")
	last := "plx: job " + job + ": interrupted: not everything is fetched: plx fetch " + job + " " + dir + " fetches the rest\n"
	if rest, ok := strings.CutSuffix(res.stderr, last); !ok || strings.Contains(strings.TrimSpace(rest), "\n") {
		b.t.Errorf("want one line on the progress and then %q:\n%s", last, res.stderr)
	}
	for _, h := range b.Hosts {
		h.Shape("")
	}
	b.want(0, "fetch", "slow", dir)
	if got := files(b.t, filepath.Join(dir, "outputs")); len(got) != 3 {
		b.t.Errorf("got %q", got)
	}
}

// outputsNone runs a job without outputs. plx must not recommend plx fetch,
// which would find nothing.
func outputsNone(b *bench, file string) {
	if res := b.want(0, "launch", "--hosts", file, "--name", "none", "--output", "*.pt", "true"); strings.Contains(res.stderr, "plx fetch") {
		b.t.Errorf("%s", res.stderr)
	}
}

// outputsShared runs tasks that share one folder on their host.
func outputsShared(b *bench, file string) {
	where, dir := b.shared(), b.t.TempDir()
	res := b.want(0, "launch", "--hosts", file, "--name", "shared", "--chdir", where, "--output", "**/*.pt", "--output", "*.none",
		b.script("job", "mkdir -p deep/er; echo $RANK > deep/er/$RANK.pt"))
	contains(b.t, res.stderr, "hint: plx fetch "+b.id("shared")+" DIR brings the outputs to this machine")
	other := b.elsewhere() // a machine that did not launch the job
	contains(b.t, other.want(0, "fetch", "--hosts", file, b.id("shared"), dir).stderr, "no file matches --output *.none", "6 files, 6 B\n")
	want := []string{}
	for _, host := range []string{"h1", "h2"} { // the hosts share the folder, too
		for _, rank := range []string{"0", "1", "2"} {
			want = append(want, "outputs/"+host+"/shared/deep/er/"+rank+".pt")
		}
	}
	if got := files(b.t, dir); !slices.Equal(got, want) {
		b.t.Errorf("got %q, want %q", got, want)
	}
}

// outputsOfWorkdir runs a job in a folder that --workdir sent. Files that the
// job did not change are not outputs.
func outputsOfWorkdir(b *bench, file string) {
	work, dir := b.t.TempDir(), b.t.TempDir()
	b.dir = work
	put(b.t, filepath.Join(work, "job.sh"), "#!/bin/sh\necho $RANK > made$RANK; [ $RANK = 0 ] || echo changed > config\n", 0o755)
	put(b.t, filepath.Join(work, "config"), "sent", 0o644)
	res := b.want(0, "launch", "--hosts", file, "--workdir", ".", "--output", ".", "--name", "work", "./job.sh")
	contains(b.t, res.stderr, "hint: plx fetch work-")
	contains(b.t, b.want(0, "prune", "--older", "0s").stderr, "plx: kept job "+b.id("work")+": 4 files, 14 B, on 2 hosts, not fetched\n")
	b.want(0, "fetch", "work", dir)
	want := []string{"outputs/h1/shared/made0", "outputs/h2/shared/config", "outputs/h2/shared/made1", "outputs/h2/shared/made2"}
	if got := files(b.t, dir); !slices.Equal(got, want) {
		b.t.Errorf("got %q, want %q", got, want)
	}
}

// outputsOfTrainer launches without --output: plx knows which files its
// trainer writes.
func outputsOfTrainer(b *bench, file string) {
	dir, away := b.t.TempDir(), b.shared()
	b.want(0, "launch", "--hosts", file, "-n", "2", "--workers-per-host", "1", "--fetch", dir, testhosts.Binary(b.t, "github.com/plx-run/plx/examples/mlp"),
		"--niters", "6", "--batch-size", "60", "--ckpt-dir", "c", "--summary-dir", "tb", "--profile-steps", "1:3", "--profile-dir", away)
	var found []string
	for _, name := range files(b.t, dir) {
		for _, end := range []string{"manifest.json", "jsonl"} {
			if strings.HasSuffix(name, end) {
				name = filepath.Join(filepath.Dir(name), "*."+end)
			}
		}
		if i := strings.Index(name, "tfevents."); i > 0 {
			name = name[:i] + "tfevents.*"
		}
		found = append(found, name)
	}
	for _, want := range []string{"outputs/h1/worker-0/tb/events.out.tfevents.*", "outputs/h1/worker-0/tb/*.jsonl",
		"outputs/h1/telemetry/timeline-worker-0.json", "outputs/h2/telemetry/timeline-worker-1.json"} {
		if !slices.Contains(found, want) {
			b.t.Errorf("%s is missing among %q", want, found)
		}
	}
	if !slices.ContainsFunc(found, func(name string) bool { return strings.HasSuffix(name, "manifest.json") }) {
		b.t.Errorf("no checkpoint among %q", found)
	}
}

// outputsPruned runs plx prune on jobs before and after their outputs were
// fetched.
func outputsPruned(b *bench, file string) {
	b.want(0, "launch", "--hosts", file, "--name", "precious", "--output", "*.pt", b.script("job", "head -c 2000000 /dev/zero > model.pt"))
	b.want(0, "launch", "--hosts", file, "--name", "plain", "true")
	dir, job, plain := b.t.TempDir(), b.id("precious"), b.id("plain")
	contains(b.t, b.want(0, "prune", "--older", "0s").stderr, "plx: kept job "+job+": 3 files, 5.7 MiB, on 2 hosts, not fetched\n", "plx: hint: plx fetch JOB DIR")
	known := b.jobsOf()
	if _, there := known[job]; !there {
		b.t.Error("plx prune forgot a job with outputs")
	}
	if _, there := known[plain]; there {
		b.t.Error("plx prune kept a job without outputs")
	}
	b.want(0, "fetch", job, dir)
	put(b.t, filepath.Join(b.Hosts[1].HomeDir, ".plx", "jobs", job, "h2", "tasks", "worker-1", "later.pt"), "new", 0o600)
	res := b.want(0, "prune", "--older", "0s")
	contains(b.t, res.stderr, "plx: kept job "+job+": 1 file, 3 B, on 1 host, not fetched\n")
	b.want(0, "prune", "--older", "0s", "--outputs")
	if _, there := b.jobsOf()[job]; there || exists(filepath.Join(b.Hosts[1].HomeDir, ".plx", "jobs", job)) {
		b.t.Error("plx prune --outputs left the job")
	}
}

// outputsUnnamed runs jobs that create files without --output, both attached
// and detached. plx counts these files at the end of a job, and plx fetch
// copies them when asked to.
func outputsUnnamed(b *bench, file string) {
	work, dir := b.t.TempDir(), b.t.TempDir()
	b.dir = work
	put(b.t, filepath.Join(work, "job.sh"), "#!/bin/sh\nmkdir -p runs/a; echo $RANK >runs/a/$RANK; echo $RANK >model$RANK.pt; echo changed >config; exit $1\n", 0o755)
	put(b.t, filepath.Join(work, "config"), "sent", 0o644)
	res := b.want(3, "launch", "--hosts", file, "--workdir", ".", "--name", "unnamed", "./job.sh", "3")
	job := b.id("unnamed")
	made := "plx: made 8 files, 28 B, on 2 hosts: plx fetch " + job + " DIR\n"
	contains(b.t, res.stderr, made)
	if strings.Index(res.stderr, made) > strings.Index(res.stderr, "plx: job "+job+" (") {
		b.t.Errorf("the verdict is not after the count:\n%s", res.stderr)
	}
	contains(b.t, b.want(0, "fetch", job, dir, "*.pt", "none").stderr, "no file matches none\n", "fetched 3 outputs of "+job)
	contains(b.t, b.want(0, "prune", "--older", "0s").stderr, "plx: kept job "+job+": 5 files, 22 B, on 2 hosts, not fetched\n")
	contains(b.t, b.want(125, "fetch", job, dir, "none").stderr, "no file matches none\n", "hint: a pattern is relative to where the tasks ran")
	b.want(2, "fetch", job, dir, "/etc/*")
	b.want(0, "fetch", job, dir)
	if got := files(b.t, filepath.Join(dir, "outputs")); len(got) != 8 {
		b.t.Errorf("got %q", got)
	}
	b.want(0, "prune", "--older", "0s")
	if _, there := b.jobsOf()[job]; there {
		b.t.Error("plx prune kept a job whose files were fetched")
	}
	detached := b.detach("--hosts", file, "--workdir", ".", "./job.sh", "0")
	contains(b.t, b.want(0, "attach", detached).stderr, "plx: made 8 files, 28 B, on 2 hosts: plx fetch "+detached+" DIR\n")
	contains(b.t, b.want(0, "launch", "--hosts", file, "--workdir", ".", "--output", "**", "./job.sh", "0").stderr, ": done\n")
}
