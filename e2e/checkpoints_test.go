//go:build long

package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/internal/test/testhosts"
)

// at5 and at7 are the two checkpoints of the fake program in
// internal/test/testhosts/cmd/fake. Every worker writes its part of at5 when
// it starts. The chief (worker 0) writes all of at7 when plx asks it to save.
const (
	at5 = "000000000005-g0-0123abcd"
	at7 = "000000000007-g0-0123abcd"
)

func (b *bench) saver() string {
	b.t.Helper()
	return testhosts.Binary(b.t, "github.com/plx-run/plx/internal/test/testhosts/cmd/fake")
}

// whole fails the test unless a folder contains exactly the given checkpoints,
// each with all files of its manifest and with the correct checksums.
func whole(t *testing.T, dir string, want ...string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*", "manifest.json"))
	if err != nil || len(found) != len(want) {
		t.Fatalf("%s: checkpoints %q, %v; want %q", dir, found, err, want)
	}
	for i, path := range found {
		var m struct {
			Checkpoint struct{ Files []struct{ Name, Sum string } }
		}
		if err := json.Unmarshal(read(t, path), &m); err != nil || len(m.Checkpoint.Files) != 2 {
			t.Fatalf("%s: %v, %+v", path, err, m)
		}
		folder := filepath.Dir(path)
		if filepath.Base(folder) != want[i] {
			t.Errorf("%s: want %s", folder, want[i])
		}
		for _, f := range m.Checkpoint.Files {
			if sum := sha256.Sum256(read(t, filepath.Join(folder, f.Name))); hex.EncodeToString(sum[:]) != f.Sum {
				t.Errorf("%s/%s is not what its manifest says", folder, f.Name)
			}
		}
		if files := list(folder); len(files) != 3 {
			t.Errorf("%s holds %q, want two files and the manifest", folder, files)
		}
	}
}

func TestCheckpoints(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 2})
	file, saver := b.ResourceFile("h1", "h2"), b.saver()
	launch := func(b *bench, args ...string) *running {
		r := b.start(append([]string{"launch", "--hosts", file, "--ps", "none"}, args...)...)
		r.await(r.stdout, "worker:0 h1 | had ")
		r.await(r.stdout, "worker:1 h2 | had ")
		return r
	}
	t.Run("SIGTERM saves, and they are fetched", func(t *testing.T) {
		b, dir := b.in(t), filepath.Join(t.TempDir(), "a b")
		r := launch(b, "--name", "first", "--fetch", dir, saver, "--save", "sub folder/run")
		r.signal(syscall.SIGTERM)
		res := r.want(143)
		b.says(res, "job", "stopped by signal terminated, saved at step 7")
		contains(t, res.stderr, "fetched 2 checkpoints of first into "+dir+": 6 files, ")
		whole(t, filepath.Join(dir, "sub folder/run"), at5, at7)
		b.hostsGone(0)
	})
	t.Run("found again by name, by id and with --resume", func(t *testing.T) {
		b := b.in(t)
		first := b.id("first")
		for _, args := range [][]string{{"--name", "first"}, {"--resume", "first"}, {"--resume", first, "--name", "other"}} {
			r := launch(b, append(args, saver, "--save", "sub folder/run")...)
			contains(t, r.stdout.String(), "worker:0 h1 | had ["+at5+" "+at7+"]", "worker:1 h2 | had ["+at5+"]")
			contains(t, r.stderr.String(), "under")
			r.signal(syscall.SIGINT)
			if res := r.want(130); strings.Contains(res.stderr, "saved") {
				t.Errorf("Ctrl-C speaks of saving:\n%s", res.stderr)
			}
		}
		r := b.elsewhere().want(2, "launch", "--hosts", file, "--resume", "no-such-job", saver, "--save")
		contains(t, r.stderr, "--resume: job no-such-job", "plx: hint: ")
	})
	t.Run("the name of a running job", func(t *testing.T) {
		b := b.in(t)
		r := launch(b, "--name", "taken", saver, "--save")
		other := b.elsewhere()
		res := other.want(125, "launch", "--hosts", file, "--name", "taken", saver, "--save")
		contains(t, res.stderr, "hosts h[1-2]: job taken-", "plx stop taken-", "another --name")
		other.want(125, "launch", "--hosts", file, "--resume", "taken", saver, "--save")
		r.signal(syscall.SIGINT)
		r.want(130)
		b.hostsGone(0)
	})
	t.Run("plx stop", func(t *testing.T) { testStopSaves(b.in(t), file, saver) })
	t.Run("a host that is to go", func(t *testing.T) {
		b := b.in(t)
		r := launch(b, saver, "--save")
		p := b.process(b.Hosts[1], watchdog)
		if err := p.Signal(syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		b.says(r.want(143), "job", "preempted on host h2, saved at step 7")
		b.hostsGone(0)
	})
	t.Run("a chief that does not save", func(t *testing.T) {
		b := b.in(t)
		r := launch(b, "--checkpoint-timeout", "1s", saver, "--save", "--mute")
		r.signal(syscall.SIGTERM)
		contains(t, r.want(143).stderr, "not saved: worker:0 on h1 had not saved within 1s")
		r = launch(b, saver, "--save", "--mute")
		r.signal(syscall.SIGTERM)
		r.await(r.stdout, "worker:0 h1 | asked")
		r.signal(syscall.SIGTERM)
		asked := time.Now()
		b.says(r.want(143), "job", "stopped by signal terminated")
		b.took("to end", asked, patience.Limit)
		b.hostsGone(0)
	})
	t.Run("plx fetch", func(t *testing.T) { testFetch(b.in(t), file, saver) })
}

// testStopSaves runs "plx stop" on jobs that can save a checkpoint, on jobs
// whose save fails, and on programs that do not support saving.
func testStopSaves(b *bench, file, saver string) {
	saves := func(more ...string) string {
		job := b.detach(append([]string{"--hosts", file, "--ps", "none", saver, "--save"}, more...)...)
		b.begun(job)
		return job
	}
	job := saves()
	res := b.want(0, "stop", "--checkpoint", job)
	contains(b.t, res.stderr, "it first saves a checkpoint if it keeps any")
	contains(b.t, res.stderr, "job "+job+": stopped on 2 hosts, saved at step 7")
	if code := b.jobsOf()[job].Code; code == nil || *code != 143 {
		b.t.Errorf("the job's exit status: %v", code)
	}
	job = saves("--refuse", "the disk is full")
	contains(b.t, b.want(125, "stop", "--checkpoint", job).stderr, "stopped on 2 hosts, not saved: the disk is full")
	job = saves("--mute")
	contains(b.t, b.want(125, "stop", "--checkpoint", "--checkpoint-timeout", "1s", job).stderr, "not saved: worker:0 on h1 had not saved within 1s")
	job = saves("--mute")
	attached := b.start("attach", job)
	stop := b.start("stop", "--checkpoint", "--checkpoint-timeout", "5s", job)
	attached.awaitLine("worker:0", "asked")
	stop.signal(syscall.SIGINT)
	b.says(stop.want(130), "job "+job, "interrupted: hosts that received the request still stop the job")
	attached.want(143)
	job = b.detach("--hosts", file, "sleep", "1000")
	res = b.want(125, "stop", "--checkpoint", job)
	contains(b.t, res.stderr, "not saved: the program does not use plx's trainer")
	if strings.Contains(res.stderr, "saved first") {
		b.t.Errorf("a job that cannot save: %s", res.stderr)
	}
	contains(b.t, b.want(0, "stop", "--checkpoint", job).stderr, "had ended already")
	b.want(2, "stop", "--checkpoint-timeout", "1s", job)
	b.hostsGone(0)
}

// begun waits until the chief (worker 0) of a job has reported to its agent
// that it can save checkpoints. The chief prints its first line after this
// report, so begun waits for that line in the host's log.
func (b *bench) begun(job string) {
	b.t.Helper()
	printed := filepath.Join(b.Hosts[0].HomeDir, ".plx", "jobs", job, "h1", "logs", "worker-0.stdout")
	for deadline := time.Now().Add(patience.Limit); length(printed) == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("the chief of job %s has not begun: no %s", job, printed)
		}
	}
}

// testFetch copies a detached job's checkpoints to a machine that did not
// launch the job: first while the job runs, then after one host was lost.
func testFetch(b *bench, file, saver string) {
	job := b.detach("--hosts", file, "--ps", "none", saver, "--save")
	logs := b.start("logs", "-f", job)
	logs.awaitLine("worker:0", `had \[\]`)
	logs.awaitLine("worker:1", `had \[\]`)
	other, dir := b.elsewhere(), b.t.TempDir()
	other.want(0, "fetch", "--hosts", file, job, dir)
	whole(b.t, dir, at5)
	b.want(0, "stop", "--checkpoint", job)
	logs.want(0)
	b.Hosts[1].Cut()
	// The chief's host h1 has all files of the newest checkpoint. For the
	// other checkpoint, all files were fetched before.
	res := b.want(0, "fetch", job, dir)
	contains(b.t, res.stderr, "host h2: its checkpoints are not fetched: ", "checkpoint "+at5+": not fetched: ", "fetched 1 checkpoint of "+job)
	whole(b.t, dir, at5, at7)
	b.Hosts[1].Heal()
	b.Hosts[0].Cut()
	res = b.want(125, "fetch", job, b.t.TempDir())
	contains(b.t, res.stderr, "host h1: ", "checkpoint "+at5+", the newest: no host that was reached has worker-0.safetensors")
	b.Hosts[0].Heal()
	b.want(2, "fetch", job)
	contains(b.t, b.want(125, "fetch", b.detach("--hosts", file, "true"), b.t.TempDir()).stderr, "nothing to fetch: it made no files in its folders on the hosts, and no host has checkpoints under the name", "hint: in a folder of --chdir ")
	b.hostsGone(patience.Limit)
}

// TestEmbeddedCheckpoints saves and fetches checkpoints on hosts that share
// one home directory.
func TestEmbeddedCheckpoints(t *testing.T) {
	b := local(t)
	dir := t.TempDir()
	r := b.start("launch", "--name", "one", "--fetch", dir, "--ps", "none", b.saver(), "--save")
	r.await(r.stdout, "worker:0 127.0.0.2 | had ")
	r.await(r.stdout, "worker:1 127.0.0.3 | had ")
	r.signal(syscall.SIGTERM)
	contains(t, r.want(143).stderr, "fetched 2 checkpoints of one into "+dir+": 6 files, ")
	whole(t, dir, at5, at7)
	if kept := list(filepath.Join(b.home, ".plx", "ckpt")); !slices.Equal(kept, []string{"one"}) {
		t.Errorf("~/.plx/ckpt holds %q", kept)
	}
	res := b.want(0, "launch", "--name", "two", "--local", "1x1", "--fetch", dir, "true")
	contains(t, res.stderr, "note: --fetch "+dir+" brings nothing but logs: ", "job two-", ": done", "note: nothing but logs to fetch into "+dir)
	contains(t, b.want(3, "launch", "--local", "1x1", "--fetch", dir, "sh", "-c", "exit 3").stderr, "note: nothing but logs to fetch")
}
