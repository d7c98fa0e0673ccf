//go:build long

package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/internal/test/testhosts"
)

// TestWorkdirCutOff disconnects a host while it stores the files of --workdir,
// and while it creates the job's folder. After the next launch, the host's
// files must equal the local files. plx prune must remove what the first
// launch left behind.
func TestWorkdirCutOff(t *testing.T) {
	b := newBench(t, testhosts.Options{Hosts: 2})
	h2 := b.Hosts[1]
	t.Run("agent killed while it stores", func(t *testing.T) {
		b.in(t).workdirCutOff(".plx/files/[0-9a-f]*/*", func() {
			for _, p := range b.processes(h2) {
				if slices.Contains(p.Args, "agent") { // which takes the files
					_ = p.Signal(syscall.SIGKILL) // it may have ended
				}
			}
		})
	})
	t.Run("power cut while it makes the folder", func(t *testing.T) {
		b.in(t).workdirCutOff(".plx/jobs/*/*/.work-*/p7", func() {
			h2.PowerOff()
			h2.PowerOn()
		})
	})
	b.want(0, "prune", "--hosts", b.ResourceFile(), "--older", "0s")
	if left := b.found(h2, ".plx/jobs/*/h2"); len(left) > 0 {
		t.Errorf("prune left %q", left)
	}
}

// workdirCutOff calls fault as soon as the launch has created a file on h2
// that matches the pattern at. A very fast launch may have ended by then.
func (b *bench) workdirCutOff(at string, fault func()) {
	b.dir = b.t.TempDir()
	const files = 2000
	for i := range files {
		put(b.t, filepath.Join(b.dir, fmt.Sprint("p", i%20), fmt.Sprint("f", i)), strings.Repeat(fmt.Sprintln(b.t.Name(), i), 200), 0o644)
	}
	h2, hosts := b.Hosts[1], b.ResourceFile()
	before := len(b.found(h2, at))
	r := b.start("launch", "--hosts", hosts, "--workdir", ".", "true")
	for over := false; !over && len(b.found(h2, at)) == before; {
		select {
		case <-r.done:
			over = true
		case <-time.After(time.Millisecond):
		}
	}
	fault()
	res := r.wait()
	b.t.Logf("exit status %d: %s", res.code, res.stderr)
	b.hostsGone(patience.Limit)

	res = b.want(0, "launch", "--hosts", hosts, "--workdir", ".", "sh", "-c", "find . -type f | wc -l; find . -type f | sort | xargs sha256sum | sha256sum")
	here := exec.CommandContext(b.t.Context(), "sh", "-c", "find . -type f | sort | xargs sha256sum | sha256sum")
	here.Dir = b.dir
	sum, err := here.Output()
	if err != nil {
		b.t.Fatal(err)
	}
	want := []string{fmt.Sprint(files), strings.TrimSpace(string(sum))}
	for _, task := range []string{"worker:0", "worker:1"} {
		if got := lines(res.stdout, task); !slices.Equal(got, want) {
			b.t.Errorf("%s has %q, want %q", task, got, want)
		}
	}
	b.hostsGone(0)
}

// found returns the files in a host's home directory that match a pattern.
func (b *bench) found(h *testhosts.Host, pattern string) []string {
	b.t.Helper()
	all, err := filepath.Glob(filepath.Join(h.HomeDir, pattern))
	if err != nil {
		b.t.Fatal(err)
	}
	return all
}
