//go:build long

package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/patience"
	"github.com/plx-run/plx/internal/testhosts"
)

// sparePattern matches the spare working directories of a host, in its home.
const sparePattern = ".plx/spares/*/ready"

// TestWorkdirSpare has hosts make the working directory of the next job ahead.
func TestWorkdirSpare(t *testing.T) {
	b := newBench(t, testhosts.Options{Hosts: 2})
	file := b.ResourceFile("h1: cpu*2", "h2: cpu*2")
	t.Run("used", func(t *testing.T) { workdirSpare(b.in(t), file) })
	t.Run("killed", func(t *testing.T) { workdirSpareKilled(b.in(t), file) })
}

// workdirSpare launches a job while another one of the same folder runs. Its hosts have
// made the working directories ahead by then. What the tasks of the first job write is in
// none of them, and what has changed here is.
func workdirSpare(b *bench, file string) {
	b.dir = b.t.TempDir()
	put(b.t, filepath.Join(b.dir, "stays"), "as it is", 0o644)
	put(b.t, filepath.Join(b.dir, "pkg", "same"), "same", 0o644)
	put(b.t, filepath.Join(b.dir, "goes"), "goes", 0o644)
	first := b.start("launch", "--hosts", file, "--workdir", ".", "sh", "-c", "while echo written >> stays; do sleep 0.01; done")
	b.await(b.Hosts[1], sparePattern)
	inode := inodeOf(b, b.await(b.Hosts[0], sparePattern+"/tree/stays"))

	put(b.t, filepath.Join(b.dir, "comes", "new"), "new", 0o644)
	if err := os.Remove(filepath.Join(b.dir, "goes")); err != nil {
		b.t.Fatal(err)
	}
	res := b.want(0, "launch", "--hosts", file, "--workdir", ".", "sh", "-c", "cat stays comes/new; echo; find . | sort | xargs; echo ${PWD#$HOME/}")
	for _, task := range []string{"worker:0", "worker:2"} {
		got := lines(res.stdout, task)
		if want := "as it isnew|. ./comes ./comes/new ./pkg ./pkg/same ./stays"; len(got) != 3 || strings.Join(got[:2], "|") != want {
			b.t.Errorf("%s printed %q, want %q and its folder", task, got, want)
		} else if task == "worker:0" && inodeOf(b, filepath.Join(b.Hosts[0].HomeDir, got[2], "stays")) != inode {
			b.t.Error("the folder that was made ahead was not used")
		}
	}
	first.signal(syscall.SIGTERM)
	first.wait()
	b.hostsGone(patience.Limit)

	// Prune counts what it removes: the files, and the record of 102 bytes.
	b.want(0, "launch", "--hosts", file, "--workdir", ".", "sh", "-c", "until [ -d ~/"+sparePattern+" ]; do sleep 0.01; done")
	res = b.want(0, "prune", "--hosts", file, "--older", "0s", "--dry-run")
	for _, h := range b.Hosts {
		if want := h.Name + ` +working directories made ahead +117 B`; !regexp.MustCompile(want).MatchString(res.stdout) {
			b.t.Errorf("plx prune --dry-run has no %q:\n%s", want, res.stdout)
		}
	}
	b.want(0, "prune", "--hosts", file, "--older", "0s")
	for _, h := range b.Hosts {
		if left := b.found(h, ".plx/spares/*"); len(left) > 0 {
			b.t.Errorf("prune left %q", left)
		}
	}
}

// await waits for a file of a host's home at a pattern, and returns its path.
func (b *bench) await(h *testhosts.Host, pattern string) string {
	b.t.Helper()
	for deadline := time.Now().Add(patience.Limit); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if all := b.found(h, pattern); len(all) > 0 {
			return all[0]
		}
	}
	b.t.Fatalf("host %s has no %s", h.Name, pattern)
	return ""
}

// found returns the files of a host's home at a pattern.
func (b *bench) found(h *testhosts.Host, pattern string) []string {
	b.t.Helper()
	all, err := filepath.Glob(filepath.Join(h.HomeDir, pattern))
	if err != nil {
		b.t.Fatal(err)
	}
	return all
}

// inodeOf returns the number of a file's inode.
func inodeOf(b *bench, file string) uint64 {
	b.t.Helper()
	info, err := os.Stat(file)
	if err != nil {
		b.t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Ino
}

// workdirSpareKilled kills the process that makes a working directory ahead, and fills the
// disk of another host. Neither disturbs the job, and the next job finds every file.
func workdirSpareKilled(b *bench, file string) {
	b.dir = b.t.TempDir()
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		put(b.t, filepath.Join(b.dir, name), strings.Repeat(name, 8<<20), 0o644)
	}
	h1, h2 := b.Hosts[0], b.Hosts[1]
	mount := "mkdir -p ~/.plx/spares && mount -t tmpfs -o size=20m,mode=700 tmpfs ~/.plx/spares"
	if out, err := h2.Command(b.t.Context(), "sh", "-c", mount).CombinedOutput(); err != nil {
		b.t.Fatalf("%s: %v: %s", mount, err, out)
	}
	end := filepath.Join(b.shared(), "end")
	r := b.start("launch", "--hosts", file, "--workdir", ".", "sh", "-c", "until [ -e "+end+" ]; do sleep 0.01; done")
	b.await(h1, ".plx/spares/*/*/tree/a")
	for _, p := range b.processes(h1) {
		if len(p.Args) > 2 && p.Args[2] == "spare" {
			_ = p.Signal(syscall.SIGKILL) // it may have ended
		}
	}
	put(b.t, end, "", 0o644)
	if res := r.wait(); res.code != 0 {
		b.t.Errorf("exit status %d: %s", res.code, res.stderr)
	}
	b.hostsGone(0)
	if out, err := h2.Command(b.t.Context(), "sh", "-c", "find ~/.plx/spares -name tree").CombinedOutput(); err != nil || len(out) > 0 {
		b.t.Errorf("made on a disk with little room: %s, %v", out, err)
	}
	res := b.want(0, "launch", "--hosts", file, "--workdir", ".", "sh", "-c", "cat * | wc -c; ls | xargs")
	for _, task := range []string{"worker:0", "worker:2"} {
		if got := strings.Join(lines(res.stdout, task), "|"); got != "50331648|a b c d e f" {
			b.t.Errorf("%s printed %q", task, got)
		}
	}
	b.hostsGone(0)
	if out, err := h2.Command(b.t.Context(), "sh", "-c", "umount ~/.plx/spares").CombinedOutput(); err != nil {
		b.t.Errorf("umount: %v: %s", err, out)
	}
}
