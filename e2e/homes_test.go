//go:build long

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/internal/test/testhosts"
)

func TestNoisyStartupFiles(t *testing.T) {
	t.Parallel()
	for _, external := range []bool{false, true} {
		t.Run(fmt.Sprintf("external sftp %v", external), func(t *testing.T) {
			b := newBench(t, testhosts.Options{Hosts: 1, NoisyRC: true, ExternalSFTP: external})
			res := b.want(0, "launch", "--ps", "none", "--hosts", b.ResourceFile("h1: cpu*2"), b.script("task", "printf 'one\\ntwo'; echo three $PLX_RANK >&2"))
			got := strings.Split(strings.TrimSuffix(res.stdout, "\n"), "\n")
			slices.Sort(got)
			want := []string{"worker:0 h1 | one", "worker:0 h1 | two", "worker:1 h1 | one", "worker:1 h1 | two"}
			if !slices.Equal(got, want) {
				t.Errorf("stdout %q, want %q", got, want)
			}
			if n := strings.Count(res.stderr, ".bashrc"); n != 1 {
				t.Errorf("%d notices, want 1:\n%s", n, res.stderr)
			}
			if strings.Contains(res.stderr, "module load") || !strings.Contains(res.stderr, "worker:0 h1 ! three 0\n") || !strings.Contains(res.stderr, "worker:1 h1 ! three 1\n") {
				t.Errorf("stderr:\n%s", res.stderr)
			}
			b.hostsGone(0)
		})
	}
}

func TestSharedHome(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 3, SharedHome: true})
	file := b.ResourceFile()
	task := b.script("task", "echo I am $PLX_ROLE:$PLX_TASK_INDEX on $(hostname)")
	res := b.want(0, "launch", "--ps", "none", "--hosts", file, task)
	check := func(what, stdout string) {
		t.Helper()
		for i, h := range b.Hosts {
			name := fmt.Sprintf("worker:%d", i)
			if got, want := lines(stdout, name), []string{"I am " + name + " on " + h.Name}; !slices.Equal(got, want) {
				t.Errorf("%s: %s printed %q, want %q", what, name, got, want)
			}
		}
	}
	b.hostsGone(0)
	check("launch", res.stdout)
	check("logs", b.want(0, "logs").stdout)
	b.hostsGone(patience.Limit)
	b.says(res, "sent", "to 1 host ")
	dry := b.want(0, "prune", "--older", "0s", "--dry-run")
	want := fmt.Sprintf(`programs +%d B`, len(read(t, task)))
	if n := strings.Count(dry.stdout, "programs"); n != 1 || !regexp.MustCompile(want).MatchString(dry.stdout) {
		t.Errorf("plx prune --dry-run lists %d homes with programs, want one with the task alone, as plx runs there:\n%s", n, dry.stdout)
	}
	blobs, err := os.ReadDir(filepath.Join(b.Hosts[0].HomeDir, ".plx", "blobs"))
	if err != nil || len(blobs) != 2 {
		t.Errorf("blobs %v, %v, want plx and the task", blobs, err)
	}
}

// TestHomesThatTakeNothing makes the home directory of one of two hosts
// unusable in several ways.
func TestHomesThatTakeNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 2})
	file := b.ResourceFile()
	task := b.script("task", "echo up")
	h2 := b.Hosts[1]
	for _, c := range []struct {
		name  string
		mount testhosts.HomeMount
		cause string
	}{
		{"read-only", testhosts.ReadOnlyHome, "read-only"},
		{"full", testhosts.FullHome, "file system"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := b.in(t)
			h2.MountHome(c.mount)
			defer h2.MountHome(testhosts.NormalHome)
			res := b.want(125, "launch", "--hosts", file, task)
			var named []string
			for line := range strings.Lines(res.stderr) {
				if strings.Contains(line, "h2") && !strings.Contains(line, "; waiting for ") { // except for progress lines about slow work
					named = append(named, line)
				}
			}
			if len(named) != 1 || !strings.Contains(strings.ToLower(named[0]), c.cause) {
				t.Errorf("want one line that names h2 and says %q:\n%s", c.cause, res.stderr)
			}
			if res.stdout != "" {
				t.Errorf("a task was started:\n%s", res.stdout)
			}
			b.hostsGone(0)
		})
	}
	t.Run("full while tasks print", func(t *testing.T) { filling(b.in(t), file) })
}

// filling leaves a host just enough disk space for the files that plx sends,
// and a little more.
func filling(b *bench, file string) {
	h2 := b.Hosts[1]
	plx, err := os.Stat(b.plx)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience.Limit)
	defer cancel()
	room := fmt.Sprintf("size=%d,mode=700", plx.Size()+1<<20)
	if out, err := h2.Command(ctx, "sh", "-c", "mount -t tmpfs -o "+room+" tmpfs ~").CombinedOutput(); err != nil {
		b.t.Fatalf("mount: %v: %s", err, out)
	}
	shared := b.shared()
	flood := b.script("flood", "yes 0123456789abcdef | head -c 8000000\n"+
		"for i in 1 2 3; do yes x | head -c 500000; done\n"+
		"echo the end >&2; touch "+shared+"/$PLX_RANK\n")
	start := time.Now()
	res := b.want(0, brief(file, flood)...)
	b.took("a launch with a full disk", start, patience.Limit)
	b.says(res, "host h2", "worker:1 stdout", "lost")
	b.says(res, "host h2", "worker:1 stdout", "no space left")
	if !exists(shared+"/0") || !exists(shared+"/1") {
		b.t.Error("a task did not come to its end")
	}
	if n := strings.Count(res.stdout, "worker:0 h1 | "); n < 8000000/17 { // a regular expression would need 30 s of processor time for these lines
		b.t.Errorf("the host with a disk printed %d lines", n)
	}
	b.hostsGone(0)
}
