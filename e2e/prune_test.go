package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/plx-run/plx/internal/test/executable"
	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/internal/test/testhosts"
)

// TestOddNamesUnderOtherHomes runs a job of --local whose file names contain
// special characters. Later commands reach the same home directory through a
// symbolic link and a mount.
func TestOddNamesUnderOtherHomes(t *testing.T) {
	if err := testhosts.Available(); err != nil {
		t.Skip(err)
	}
	b := local(t)
	b.dir = t.TempDir()
	put(t, filepath.Join(b.dir, "job.sh"), "#!/bin/sh\n[ $RANK = 1 ] || exit 0; echo latin >\"$(printf 'caf\\351.pt')\"; echo two >\"$(printf 'new\\nline')\"\n", 0o755)
	res := b.want(0, "launch", "--local", "2x1", "--name", "odd", "--workdir", ".", "./job.sh")
	job, real := b.id("odd"), b.home
	contains(t, res.stderr, "plx: made 2 files, 10 B, on 1 host: plx fetch "+job+" DIR\n")
	link, mount, dir := filepath.Join(t.TempDir(), "link"), t.TempDir(), t.TempDir()
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	mounted := func(args ...string) result {
		t.Helper()
		cmd := exec.Command("unshare", append([]string{"-m", "sh", "-c", `mount --bind "$0" "$HOME" && exec "$@"`, real, b.plx}, args...)...)
		cmd.Env, cmd.Dir = append(environ(), "HOME="+mount), b.dir
		r := b.begin(cmd, args)
		<-r.done
		if code := r.cmd.ProcessState.ExitCode(); code != 0 {
			t.Fatalf("%q: status %d: %s", args, code, r.stderr.String())
		}
		return result{stdout: r.stdout.String(), stderr: r.stderr.String()}
	}
	kept := "plx: kept job " + job + ": 2 files, 10 B, on 1 host, not fetched\n"
	contains(t, mounted("prune", "--older", "0s").stderr, kept)
	record, older := filepath.Join(real, ".plx/jobs", job, "job.json"), filepath.Join(real, ".plx/blobs/older")
	text := string(read(t, record))
	if err := executable.Write(older, []byte("#!/bin/sh\necho plx-agent-1\n"), 0o700); err != nil { // an agent of an earlier version, which does not support calls
		t.Fatal(err)
	}
	put(t, record, regexp.MustCompile(`blobs/[0-9a-f]{64}`).ReplaceAllString(text, "blobs/older"), 0o600)
	contains(t, b.want(0, "prune", "--older", "0s").stderr, kept)
	put(t, record, text, 0o600)
	b.home = link
	contains(t, b.want(0, "prune", "--older", "0s").stderr, kept)
	want := []string{`outputs/127.0.0.3/shared/caf\xe9.pt`, `outputs/127.0.0.3/shared/new\x0aline`}
	res = b.want(0, "fetch", job, dir)
	contains(t, res.stderr, `plx: host 127.0.0.3: output shared/caf\xe9.pt: its name is escaped`, `plx: host 127.0.0.3: output shared/new\x0aline: its name is escaped`)
	contains(t, mounted("fetch", job, dir).stderr, "2 files, 0 B, 2 of them there already\n")
	if got := files(t, dir); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	mounted("prune", "--older", "0s")
	if exists(filepath.Join(real, ".plx/jobs", job)) {
		t.Error("plx prune kept a job whose files were fetched")
	}
}

// TestPruneKeepsWholeJobs prunes a job of which only one host has files. plx
// fetch can still fetch the files that are kept.
func TestPruneKeepsWholeJobs(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 2})
	file, dir := b.ResourceFile(), t.TempDir()
	b.want(0, "launch", "--hosts", file, "--name", "one", "--output", "*.pt", "--fetch", dir, b.script("job", `[ $RANK = 1 ] || exit 0; echo latin >"$(printf 'caf\351.pt')"; echo other >other`))
	job := b.id("one")
	want := []string{`outputs/h2/worker-1/caf\xe9.pt`}
	if got := files(t, dir); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	contains(t, b.want(0, "prune", "--older", "0s").stderr, "plx: kept job "+job+": 1 file, 6 B, on 1 host, not fetched\n")
	b.want(0, "fetch", job, dir)
	b.want(0, "fetch", job, dir)
	if got := files(t, dir); !slices.Equal(got, append(want, "outputs/h2/worker-1/other")) {
		t.Errorf("got %q", got)
	}
	b.want(0, "prune", "--older", "0s")
	if exists(filepath.Join(b.Hosts[0].HomeDir, ".plx/jobs", job)) || exists(filepath.Join(b.Hosts[1].HomeDir, ".plx/jobs", job)) {
		t.Error("plx prune kept a job whose files were fetched")
	}
	b.hostsGone(0)
}

// TestPruneAll removes all files of plx from two hosts and from this machine.
// It keeps hosts that run a job of another machine or one of its commands, and
// files that were not fetched yet, unless a flag gives them up. The next
// launch finds hosts without plx.
func TestPruneAll(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 2})
	file, hold := b.ResourceFile(), b.holder("hold")
	b.want(0, "launch", "--hosts", file, "--name", "made", b.script("make", "echo data >model.pt"))
	made, other := b.id("made"), b.elsewhere()
	model := func(h *testhosts.Host, task string) string {
		return filepath.Join(h.HomeDir, ".plx/jobs", made, h.Name, "tasks", task, "model.pt")
	}
	running := other.detach("--host", "h1", hold.path)
	res := b.want(125, "prune", "--all", "--outputs", "--host", "h1")
	contains(t, res.stderr, "plx: host h1: nothing is removed: job "+running+" runs\n", "plx: hint: plx stop JOB ends a job; then plx prune --all again\n")
	if !exists(model(b.Hosts[0], "worker-0")) {
		t.Error("a host was pruned on which a job runs")
	}
	other.want(0, "stop", running)
	works := other.start("exec", "--host", "h1", "--", "sleep", "1003")
	b.process(b.Hosts[0], "sleep", "1003")
	res = b.want(125, "prune", "--all")
	contains(t, res.stderr, "plx: host h1: nothing is removed: another plx works there", "plx: kept job "+made+": ")
	if err := works.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	<-works.done
	b.gone(patience.Limit, b.Hosts...)

	res = b.want(0, "prune", "--all", "--host", "h1", "--host", "h2")
	contains(t, res.stderr, "plx: kept job "+made+": 2 files, 10 B, on 2 hosts, not fetched\n", "plx: hint: plx fetch JOB DIR brings them to this machine; plx prune --all --outputs removes them\n")
	if exists(filepath.Join(b.Hosts[0].HomeDir, ".plx/jobs", running)) || !exists(model(b.Hosts[0], "worker-0")) || !exists(model(b.Hosts[1], "worker-1")) {
		t.Error("the other job is there, or what nobody has fetched is not")
	}
	b.want(0, "fetch", made, t.TempDir())
	for _, h := range b.Hosts {
		put(t, filepath.Join(h.HomeDir, ".plx/ckpt/made/0/part"), "state", 0o600)
	}
	res = b.want(0, "prune", "--all", "--hosts", file)
	contains(t, res.stderr, "plx: kept checkpoints of made: 2 files, 10 B, on 2 hosts\n")
	res = b.want(0, "prune", "--all", "--outputs", "--hosts", file, "--dry-run")
	contains(t, res.stderr, "plx: nothing was removed: plx prune --all without --dry-run removes ")
	contains(t, res.stdout, "checkpoints", "programs")
	if !exists(filepath.Join(b.Hosts[0].HomeDir, ".plx/ckpt/made/0/part")) {
		t.Error("--dry-run has removed a checkpoint")
	}
	res = b.want(0, "prune", "--all", "--outputs", "--hosts", file)
	contains(t, res.stderr, "plx: host h1: removed all of plx, ", "plx: host h2: removed all of plx, ")
	for _, home := range []string{b.Hosts[0].HomeDir, b.Hosts[1].HomeDir, b.home} {
		if exists(filepath.Join(home, ".plx")) {
			t.Errorf("%s has %q", home, files(t, filepath.Join(home, ".plx")))
		}
	}
	res = b.want(0, "launch", "--hosts", file, b.script("again", "echo again"))
	contains(t, res.stdout, "again")
	b.hostsGone(0)
}
