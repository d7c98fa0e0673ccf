//go:build long

package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/internal/test/testhosts"
)

// seats runs a program whose tasks print where they run, and returns these
// lines, sorted. The workers wait until all tasks have printed their line.
func seats(b *bench, tasks int, args ...string) []string {
	b.t.Helper()
	dir := b.shared()
	show := b.script("show", `echo "$PLX_ROLE:$PLX_TASK_INDEX $(cat /etc/hostname) gpu=$CUDA_VISIBLE_DEVICES local=$PLX_LOCAL_RANK" > "$1/$PLX_ROLE$PLX_TASK_INDEX.new"
mv "$1/$PLX_ROLE$PLX_TASK_INDEX.new" "$1/$PLX_ROLE$PLX_TASK_INDEX"
while [ "$(ls "$1" | grep -vc new)" -lt "$2" ]; do sleep 0.02; done`)
	b.want(0, append(append([]string{"launch", "--max-time", patience.Limit.String()}, args...), show, dir, string(rune('0'+tasks)))...)
	files, err := filepath.Glob(dir + "/*")
	if err != nil {
		b.t.Fatal(err)
	}
	var told []string
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			b.t.Fatal(err)
		}
		told = append(told, strings.TrimSuffix(string(text), "\n"))
	}
	return told
}

func TestPlacement(t *testing.T) {
	b := newBench(t, testhosts.Options{Hosts: 4, GPUs: []int{4, 2}})
	file := b.ResourceFile("h1: 0,2", "h2", "h3: cpu*2", "h4: ps")
	for _, c := range []struct {
		args string
		want []string
	}{
		{"--ps none --exclude h3", []string{"worker:0 h1 gpu=0 local=0", "worker:1 h1 gpu=2 local=1", "worker:2 h2 gpu=0 local=0", "worker:3 h2 gpu=1 local=1"}},
		{"--ps h3,h4 -n 3", []string{"ps:0 h3 gpu= local=", "ps:1 h4 gpu= local=", "worker:0 h1 gpu=0 local=0", "worker:1 h1 gpu=2 local=1", "worker:2 h2 gpu=0 local=0"}},
		{"--ps all --workers-per-host 1", []string{"ps:0 h1 gpu= local=", "ps:1 h2 gpu= local=", "ps:2 h3 gpu= local=", "ps:3 h4 gpu= local=",
			"worker:0 h1 gpu=0 local=0", "worker:1 h2 gpu=0 local=0", "worker:2 h3 gpu= local=0"}},
		{"--visible host --ps none --include h1 --include h3", []string{"worker:0 h1 gpu=0,2 local=0", "worker:1 h1 gpu=0,2 local=1",
			"worker:2 h3 gpu= local=0", "worker:3 h3 gpu= local=1"}},
		{"--ps all --include h2:1 --include h4", []string{"ps:0 h2 gpu= local=", "ps:1 h4 gpu= local=", "worker:0 h2 gpu=1 local=0"}},
		{"--exclude h1:0 --exclude h2:0 --exclude h3 --ps none", []string{"worker:0 h1 gpu=2 local=0", "worker:1 h2 gpu=1 local=0"}},
	} {
		t.Run(c.args, func(t *testing.T) {
			got := seats(b.in(t), len(c.want), append([]string{"--hosts", file}, strings.Fields(c.args)...)...)
			if !slices.Equal(got, c.want) {
				t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
	t.Run("slots", func(t *testing.T) {
		got := seats(b.in(t), 4, "--host", "h3 slots=2", "--host", "h1 slots=2", "--ps", "none")
		want := []string{"worker:0 h3 gpu= local=0", "worker:1 h3 gpu= local=1", "worker:2 h1 gpu=0 local=0", "worker:3 h1 gpu=1 local=1"}
		if !slices.Equal(got, want) {
			t.Errorf("got:\n%s", strings.Join(got, "\n"))
		}
	})
	t.Run("devices that are not there", func(t *testing.T) { testNoDevice(b.in(t), file) })
	b.hostsGone(0)
	t.Run("dry run", func(t *testing.T) { testDryRun(b.in(t), file) })
}

// testNoDevice requests devices that the hosts do not have or cannot list.
func testNoDevice(b *bench, file string) {
	refused := func(host string, says ...string) {
		b.t.Helper()
		res := b.want(125, "launch", "--host", host, "--host", "h3", "--ps", "none", "true")
		contains(b.t, res.stderr, says...)
	}
	refused("h2: 1,2", "--host:1: host h2: no GPU 2: the host has 0, 1")
	refused("h2 exclude=5", "h2", "GPU 5")
	refused("h2 slots=3", "h2", "slots=3", "2 GPUs")
	res := b.want(125, "launch", "--hosts", file, "-n", "9", "true")
	contains(b.t, res.stderr, "9 workers", "6")
	b.Hosts[1].SetGPUs(2, "mode mismatch")
	refused("h2", "host h2: which GPUs it has is not known", "nvidia-smi failed")
	refused("h2 slots=1", "host h2: which GPUs it has is not known")
	b.want(0, "launch", "--host", "h2: cpu", "true")
	b.Hosts[1].SetGPUs(2, "app GPU-d6de6afc-bdfe-75c4-5273-0544439153fc|4711|python|500")
	const use = "host h2: GPU 1 by python of an unknown user (pid 4711, 500 MiB)"
	res = b.want(125, "launch", "--ps", "none", "--host", "h2", "--workdir", b.shared(), "true")
	b.says(res, "GPUs are in use: "+use)
	contains(b.t, res.stderr, "plx: hint: --exclude HOST:ID leaves a GPU out, --wait-gpus 30m waits")
	b.want(0, "launch", "--ps", "none", "--host", "h2", "--exclude", "h2:1", "true")
	b.says(b.want(0, "launch", "--ps", "none", "--host", "h2", "--share-gpus", "true"), "GPUs that are in use are shared: "+use)
	b.Hosts[1].SetGPUs(2)
}

// testDryRun powers off every host: a dry run must not need any of them.
func testDryRun(b *bench, file string) {
	for _, h := range b.Hosts {
		h.PowerOff()
	}
	dir := b.t.TempDir()
	put(b.t, filepath.Join(dir, "data", "x"), "x", 0o644)
	program := b.script("train", "exit 0")
	res := b.want(0, "launch", "--dry-run", "--hosts", file, "--ps", "all", "--copy", filepath.Join(dir, "data"), program, "--lr", "1")
	for _, row := range []string{`ps:0 +h1`, `worker:0 +h1 +gpu 0 +0`, `worker:1 +h1 +gpu 2 +2`, `worker:2 +h2 +each GPU`, `worker:3 +h3 +cpu`, `worker:4 +h3 +cpu`, `ps:3 +h4`} {
		if !regexp.MustCompile(`(?m)^ *` + row).MatchString(res.stdout) {
			b.t.Errorf("the plan has no %q:\n%s", row, res.stdout)
		}
	}
	contains(b.t, res.stdout, program, filepath.Join(dir, "data"))
	b.want(0, "launch", "--dry-run", "--hosts", file, "hostname")
	b.want(127, "launch", "--dry-run", "--hosts", file, "./no-such-file")
	if entries, err := os.ReadDir(filepath.Join(b.Home, ".plx", "jobs")); err == nil {
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), "train-") {
				b.t.Errorf("a dry run left %s", e.Name())
			}
		}
	}
}
