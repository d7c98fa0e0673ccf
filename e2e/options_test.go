//go:build long

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/testhosts"
)

func TestOptions(t *testing.T) {
	b := newBench(t, testhosts.Options{Hosts: 2})
	file := b.ResourceFile("h1", "h2")
	for _, c := range []struct {
		name string
		test func(b *bench, file string)
	}{
		{"copy", testCopy}, {"chdir, setup and path", testSurroundings}, {"what PROGRAM may be", testPrograms},
		{"environment", testEnvironment}, {"nothing shows", testNothingShows},
		{"binding", testBinding}, {"port range", testPortRange}, {"times", testTimes}, {"log limit", testLogLimit}, {"wrong address", testWrongAddress},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(b.in(t), file) })
	}
	b.hostsGone(0)
}

func testCopy(b *bench, file string) {
	dir := b.t.TempDir()
	put(b.t, filepath.Join(dir, "data set", "deep", "x.txt"), "deep text", 0o644)
	put(b.t, filepath.Join(dir, "data set", "run.sh"), "#!/bin/sh\necho ran\n", 0o755)
	put(b.t, filepath.Join(dir, "config.json"), "{}", 0o600)
	res := b.want(0, "launch", "--hosts", file, "--ps", "none", "--copy", filepath.Join(dir, "data set"), "--copy", filepath.Join(dir, "config.json"),
		b.script("show", `echo "$(cat 'data set/deep/x.txt') $('./data set/run.sh') $(cat config.json)"; [ "$PWD" = "$PLX_DIR" ] || echo "in $PWD, not $PLX_DIR"`))
	for _, task := range []string{"worker:0", "worker:1"} {
		if got := strings.Join(lines(res.stdout, task), "\n"); got != "deep text ran {}" {
			b.t.Errorf("%s: %q", task, got)
		}
	}
	b.want(2, "launch", "--hosts", file, "--copy", "/no/such/file", "true")
}

func testSurroundings(b *bench, file string) {
	dir := b.shared()
	activate := put(b.t, filepath.Join(dir, "venv", "bin", "activate"), `PATH="`+dir+`/venv/bin:$PATH"; export VENV="a b"`+"\n", 0o644)
	put(b.t, filepath.Join(dir, "venv", "bin", "tool"), "#!/bin/sh\necho \"$PWD\" \"$VENV\" \"$@\"\n", 0o755)
	want := func(want string, args ...string) {
		b.t.Helper()
		res := b.want(0, append([]string{"launch", "--host", "h1", "--ps", "none"}, args...)...)
		if got := strings.Join(lines(res.stdout, "worker:0"), "\n"); got != want {
			b.t.Errorf("plx launch %q: printed %q, want %q", args, got, want)
		}
	}
	want(dir+"/venv a b x  y", "--chdir", dir+"/venv", "--setup", "source bin/activate", "tool", "x  y")
	want(dir+"  1", "--chdir", dir, "--path", dir+"/venv/bin", "tool", "1")
	want("/root a b", "--chdir", ".", "--setup", "source "+activate, b.script("s", `echo "$PWD" "$VENV"`))
	res := b.want(125, "launch", "--hosts", file, "--chdir", "/no/such", "true")
	contains(b.t, res.stderr, "/no/such", "on h")
}

func testPrograms(b *bench, file string) {
	b.dir = b.t.TempDir()
	put(b.t, filepath.Join(b.dir, "here"), "#!/bin/sh\necho \"relative $1\"\n", 0o755)
	put(b.t, filepath.Join(b.dir, "pkg", "go.mod"), "module example.org/pkg\n\ngo 1.21\n", 0o644)
	put(b.t, filepath.Join(b.dir, "pkg", "main.go"), "package main\n\nimport (\"fmt\"; \"os\")\n\nfunc main() { fmt.Println(\"package\", os.Args[1]) }\n", 0o644)
	put(b.t, filepath.Join(b.dir, "empty", "README"), "", 0o644)
	for program, want := range map[string]string{"./here": "relative -x", "./pkg": "package -x", "echo": "-x"} {
		b.env = nil
		args := []string{"launch", "--hosts", file, "--ps", "none", program, "-x"}
		if program == "./here" {
			b.env, args = []string{"PLX_HOSTS=" + file}, []string{"launch", "--ps", "none", program, "-x"}
		}
		res := b.want(0, args...)
		if got := strings.Join(lines(res.stdout, "worker:1"), "\n"); got != want {
			b.t.Errorf("%s printed %q, want %q", program, got, want)
		}
	}
	res := b.want(126, "launch", "--hosts", file, "./empty")
	contains(b.t, res.stderr, "./empty")
	put(b.t, filepath.Join(b.dir, "pkg", "main.go"), "package main\n\nfunc main() { nonsense }\n", 0o644)
	res = b.want(126, "launch", "--hosts", file, "./pkg")
	contains(b.t, res.stderr, "nonsense")
}

func testEnvironment(b *bench, file string) {
	envFile := put(b.t, filepath.Join(b.t.TempDir(), "vars"), "# comment\nFROM_FILE=one two\n\nQUOTED=\"a=b\"\n", 0o600)
	b.env = []string{"FROM_HERE=here,1", "NOT_GIVEN=x", "PLX_LOG_LEVEL=debug", "WILD=a\nb\x01\xff' $x"}
	out := b.shared()
	res := b.want(0, "launch", "--hosts", file, "--ps", "none", "-n", "1", "--env", "LIST=1,2,3", "--env", "FROM_HERE", "--env", "EMPTY=", "--env", "WILD",
		"--env", "TWO=a\nb=c", "--env-file", envFile, b.script("show", "env -0 > "+out+"/env"))
	text, err := os.ReadFile(filepath.Join(out, "env"))
	if err != nil {
		b.t.Fatalf("%v\n%s", err, res.stderr)
	}
	got := variables(strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00"))
	for name, want := range map[string]string{
		"LIST": "1,2,3", "FROM_HERE": "here,1", "EMPTY": "", "WILD": "a\nb\x01\xff' $x", "TWO": "a\nb=c",
		"FROM_FILE": "one two", "PLX_LOG_LEVEL": "debug", "CUDA_VISIBLE_DEVICES": "",
	} {
		if value, set := got[name]; !set || value != want {
			b.t.Errorf("%s=%q (set: %v), want %q", name, value, set, want)
		}
	}
	b.want(2, "launch", "--hosts", file, "--env", "CUDA_VISIBLE_DEVICES=7", "true")
	if _, set := got["NOT_GIVEN"]; set {
		b.t.Error("a variable that was not named reached the task")
	}
}

// testNothingShows runs a job that received a value and a secret. It searches
// every process table and every file for them.
func testNothingShows(b *bench, _ string) {
	const value = "v4lue-that-nobody-else-may-see"
	out := b.shared()
	job := b.start("launch", "--host", "h1 OWN="+value, "--host", "h2", "--ps", "all", "--env", "TOKEN="+value, b.script("hold",
		`[ "$PLX_RANK" = 0 ] && cp "$PLX_SECRET_FILE" `+out+"/secret; echo up; while [ ! -e "+out+"/end ]; do sleep 0.05; done"))
	for _, task := range []string{"ps:0", "ps:1", "worker:0", "worker:1"} {
		job.await(job.stdout, task)
	}
	secret, err := os.ReadFile(filepath.Join(out, "secret"))
	if err != nil || len(secret) < 16 {
		b.t.Fatalf("the task's secret: %q, %v", secret, err)
	}
	hidden := [][]byte{[]byte(value), bytes.TrimSpace(secret)}
	for _, h := range b.Hosts {
		all, err := h.Processes()
		if err != nil {
			b.t.Fatal(err)
		}
		for _, p := range all {
			for _, text := range hidden {
				if bytes.Contains([]byte(strings.Join(p.Args, "\x00")), text) {
					b.t.Errorf("host %s: the process table shows it: %s", h.Name, p)
				}
			}
		}
	}
	folders := map[string]bool{b.Home: true}
	for _, h := range b.Hosts {
		folders[h.HomeDir] = true
	}
	for folder := range folders {
		checkFiles(b.t, folder, hidden, true)
	}
	put(b.t, filepath.Join(out, "end"), "", 0o644)
	job.want(0)
	for folder := range folders {
		checkFiles(b.t, folder, hidden, false)
	}
}

// checkFiles reports files that contain one of texts. While the job runs, it
// reports only files that other users may read.
func checkFiles(t *testing.T, folder string, texts [][]byte, running bool) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			err = checkFile(t, path, entry, texts, running)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the job has removed or renamed this file meanwhile
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func checkFile(t *testing.T, path string, entry fs.DirEntry, texts [][]byte, running bool) error {
	t.Helper()
	info, err := entry.Info()
	if err != nil || info.Size() > 1<<20 {
		return err
	}
	content, err := os.ReadFile(path)
	for _, text := range texts {
		if bytes.Contains(content, text) && (!running || info.Mode()&0o077 != 0) {
			t.Errorf("%s (mode %v) holds what was to be kept (job running: %v)", path, info.Mode(), running)
		}
	}
	return err
}

func testBinding(b *bench, _ string) {
	show := b.script("show", `echo "$(sed -n 's/Cpus_allowed_list:\t//p' /proc/self/status) $OMP_NUM_THREADS"`)
	cores := func(args ...string) [2]string {
		res := b.want(0, append(append([]string{"launch", "--host", "h1: cpu*2", "--ps", "none"}, args...), show)...)
		return [2]string{strings.Join(lines(res.stdout, "worker:0"), "\n"), strings.Join(lines(res.stdout, "worker:1"), "\n")}
	}
	own, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(own), "Cpus_allowed_list:\t")
	all, _, _ := strings.Cut(rest, "\n")
	free := cores("--no-bind")
	for _, c := range free {
		if list, _, _ := strings.Cut(c, " "); list != all {
			b.t.Errorf("with --no-bind a worker may run on %q, the host has %q", list, all)
		}
	}
	if bound := cores(); all != "0" && (bound[0] == bound[1] || bound[0] == free[0] || bound[0] == "") {
		b.t.Errorf("bound to %q, of %q", bound, all)
	}
}

func testPortRange(b *bench, file string) {
	show := b.script("show", `echo "$PLX_CLUSTER"; echo "$MASTER_PORT"`)
	res := b.want(0, "launch", "--hosts", file, "--ps", "all", "--port-range", "23100-23119", show)
	out := lines(res.stdout, "worker:1")
	if len(out) != 2 {
		b.t.Fatalf("worker:1 printed %q\n%s", out, res.stderr)
	}
	var cluster struct{ PS, Worker []string }
	if err := json.Unmarshal([]byte(out[0]), &cluster); err != nil {
		b.t.Fatal(err)
	}
	for _, addr := range append(append(cluster.PS, cluster.Worker...), ":"+out[1]) {
		port, err := strconv.Atoi(addr[strings.LastIndex(addr, ":")+1:])
		if err != nil || port < 23100 || port > 23119 {
			b.t.Errorf("%s is not in the range", addr)
		}
	}
	res = b.want(125, "launch", "--hosts", file, "--port-range", "23100-23101", "true")
	contains(b.t, res.stderr, "host h", "23100-23101")
}

func testTimes(b *bench, file string) {
	res := b.want(124, "launch", "--hosts", file, "--max-time", "1500ms", "--name", "long.one", b.script("s", "exec sleep 60"))
	contains(b.t, res.stderr, "job long.one-", "1.5s")
	b.hostsGone(0)
	res = b.want(125, "launch", "--hosts", file, "--start-timeout", "1ms", b.script("s", "exec sleep 60"))
	contains(b.t, res.stderr, "1ms")
	b.hostsGone(0)
}

// testLogLimit has tasks print three times their log limit: plx logs reports
// the missing part. The tests of package logs check what is kept.
func testLogLimit(b *bench, file string) {
	b.want(0, "launch", "--hosts", file, "--ps", "none", "--log-limit", "1MiB", b.script("flood", "seq -f %0120.0f 1 30000"))
	out := b.want(0, "logs").stdout
	contains(b.t, out, " bytes are missing here: the oldest output was dropped (--log-limit)", "30000\n")
	if len(out) > 3<<20 {
		b.t.Errorf("%d bytes of two tasks are kept", len(out))
	}
}

func testWrongAddress(b *bench, _ string) {
	b.t.Run("of this host only", func(t *testing.T) {
		res := b.in(t).want(2, "launch", "--host", "h1 addr=127.0.0.9", "--host", "h2", "true")
		contains(t, res.stderr, "host h1", "127.0.0.9", "addr="+b.Hosts[0].Addr)
	})
	b.t.Run("that others do not reach", func(t *testing.T) {
		b := b.in(t)
		inside(t, b.Hosts[0], "ip addr add 192.0.2.9/32 dev lo")
		linear := testhosts.Binary(t, "github.com/plx-run/plx/examples/linear")
		res := b.want(125, "launch", "--host", "h1 addr=192.0.2.9", "--host", "h2", linear)
		contains(t, res.stderr, "host h2", "h1", "192.0.2.9", "addr=")
		res = b.want(0, "launch", "--host", "h1 addr=192.0.2.9", "--host", "h2", "true")
		contains(t, res.stderr, "warning: host h2 cannot reach host h1 at 192.0.2.9", "addr=")
	})
	b.t.Run("of another host", func(t *testing.T) {
		res := b.in(t).want(125, "launch", "--host", "h1 addr="+b.Hosts[1].Addr, "--host", "h2", "true")
		contains(t, res.stderr, "h1", b.Hosts[1].Addr, "addr=")
	})
}
