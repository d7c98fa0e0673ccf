package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/internal/test/testhosts"
)

// lines returns the lines that a task printed, without the prefix that plx
// adds.
func lines(output, task string) []string {
	var found []string
	prefix := regexp.MustCompile(`^` + regexp.QuoteMeta(task) + `\s+\S+\s+[|!]+ ?(.*)$`)
	for line := range strings.Lines(output) {
		if !strings.HasPrefix(line, task) { // the pattern is slow
			continue
		}
		if m := prefix.FindStringSubmatch(strings.TrimRight(line, "\n")); m != nil {
			found = append(found, m[1])
		}
	}
	return found
}

// variables reads NAME=VALUE lines.
func variables(lines []string) map[string]string {
	vars := map[string]string{}
	for _, l := range lines {
		if name, value, ok := strings.Cut(l, "="); ok {
			vars[name] = value
		}
	}
	return vars
}

func TestLaunchOnThreeHosts(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 3, GPUs: []int{4, 2}})
	file := b.ResourceFile("h1: 1,3", "h2", "h3")
	// plx ends servers when the workers are done, so the workers wait for the
	// servers.
	ready := b.shared()
	show := b.script("show", "env | sort; printf '<%s>' \"$@\"; echo; echo to-stderr >&2\n"+
		"[ $PLX_ROLE = ps ] && touch "+ready+"/$PLX_TASK_INDEX\n"+
		"while [ ! -e "+ready+"/2 ] || [ ! -e "+ready+"/1 ] || [ ! -e "+ready+"/0 ]; do sleep 0.1; done")
	arg := "a b'c\"d\\$e*\n{\"json\": [1,2]}\x80"
	res := b.want(0, "launch", "--hosts", file, "--ps", "all", "--env", "LIST=1,2,3", "--env", "NCCL_SOCKET_IFNAME=^lo", show, "--learning-rate", "0.1", arg, "")

	t.Run("one server per host and one worker per device", func(t *testing.T) {
		for task, want := range map[string][4]string{
			// each value lists GPU, rank, local rank, group rank
			"worker:0": {"1", "0", "0", "0"}, "worker:1": {"3", "1", "1", "0"},
			"worker:2": {"0", "2", "0", "1"}, "worker:3": {"1", "3", "1", "1"},
			"worker:4": {"", "4", "0", "2"},
		} {
			v := variables(lines(res.stdout, task))
			got := [4]string{v["CUDA_VISIBLE_DEVICES"], v["RANK"], v["LOCAL_RANK"], v["GROUP_RANK"]}
			if got != want {
				t.Errorf("%s: device, rank, local rank, group rank %q, want %q", task, got, want)
			}
		}
		for _, task := range []string{"ps:0", "ps:1", "ps:2"} {
			v := variables(lines(res.stdout, task))
			if d, set := v["CUDA_VISIBLE_DEVICES"]; !set || d != "" {
				t.Errorf("%s: CUDA_VISIBLE_DEVICES %q, set %v", task, d, set)
			}
		}
	})
	t.Run("contract", func(t *testing.T) { checkContract(t, b, variables(lines(res.stdout, "worker:3"))) })
	t.Run("arguments and values arrive byte for byte", func(t *testing.T) {
		if !strings.Contains(res.stdout, "<--learning-rate><0.1><a b'c\"d\\$e*\n") || !strings.Contains(res.stdout, "{\"json\": [1,2]}\x80><>") {
			t.Errorf("arguments changed:\n%s", clip(res.stdout))
		}
		if v := variables(lines(res.stdout, "worker:0")); v["LIST"] != "1,2,3" {
			t.Errorf("LIST=%q", v["LIST"])
		}
	})
	t.Run("stderr stays stderr", func(t *testing.T) {
		if strings.Contains(res.stdout, "to-stderr") || strings.Count(res.stderr, " ! to-stderr\n") != 1 {
			t.Errorf("stdout:\n%s\nstderr:\n%s", clip(res.stdout), clip(res.stderr))
		}
	})
	b.hostsGone(0 * time.Second)
	t.Run("the second launch sends nothing", func(t *testing.T) {
		again := b.want(0, "launch", "--hosts", file, "--ps", "all", show)
		if !strings.Contains(res.stderr, "plx: sent ") || strings.Contains(again.stderr, "plx: sent ") {
			t.Errorf("first:\n%s\nsecond:\n%s", res.stderr, again.stderr)
		}
	})
}

func checkContract(t *testing.T, b *bench, v map[string]string) {
	h1, h2 := b.Hosts[0].Addr, b.Hosts[1].Addr
	for name, want := range map[string]string{
		"PLX_ROLE": "worker", "PLX_TASK_INDEX": "3", "PLX_RANK": "3", "PLX_WORLD_SIZE": "5", "PLX_LOCAL_RANK": "1",
		"PLX_LOCAL_WORLD_SIZE": "2", "PLX_GENERATION": "0", "WORLD_SIZE": "5", "LOCAL_WORLD_SIZE": "2",
		"MASTER_ADDR": h1, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "PYTHONUNBUFFERED": "1",
		"GLOO_SOCKET_IFNAME": "eth0", "TP_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "^lo",
	} {
		if v[name] != want {
			t.Errorf("%s=%q, want %q", name, v[name], want)
		}
	}
	for _, name := range []string{"PLX_JOB", "PLX_LISTEN_FD", "PLX_CONTROL_FD", "PLX_SECRET_FILE", "PLX_DIR", "MASTER_PORT", "OMP_NUM_THREADS", "PLX_LOG_LEVEL"} {
		if _, set := v[name]; !set {
			t.Errorf("%s is not set", name)
		}
	}
	var cluster struct{ PS, Worker []string }
	if err := json.Unmarshal([]byte(v["PLX_CLUSTER"]), &cluster); err != nil {
		t.Fatal(err)
	}
	if len(cluster.PS) != 3 || len(cluster.Worker) != 5 || !strings.HasPrefix(cluster.Worker[3], h2+":") {
		t.Errorf("PLX_CLUSTER=%s", v["PLX_CLUSTER"])
	}
	var tf struct {
		Cluster map[string][]string
		Task    struct {
			Type  string
			Index int
		}
	}
	if err := json.Unmarshal([]byte(v["TF_CONFIG"]), &tf); err != nil {
		t.Fatal(err)
	}
	if tf.Task.Type != "worker" || tf.Task.Index != 3 || len(tf.Cluster["worker"]) != 5 || tf.Cluster["worker"][0] != h1+":"+v["MASTER_PORT"] {
		t.Errorf("TF_CONFIG=%s", v["TF_CONFIG"])
	}
}

// probed has the fields of plx probe --json that this test reads.
type probed struct {
	Host      string
	OK        bool
	Error     string
	CPUs      int
	MemoryMiB int `json:"memory_mib"`
	GPUs      []struct {
		Index int
		UUID  string
		Name  string
		Total int  `json:"memory_total_mib"`
		Busy  bool `json:"busy"`
	}
}

func readProbed(t *testing.T, stdout string) (rows []probed) {
	t.Helper()
	if err := json.Unmarshal([]byte(stdout), &rows); err != nil {
		t.Fatalf("%v\n%s", err, stdout)
	}
	return rows
}

func TestProbe(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 3, GPUs: []int{4, 2}})
	file := b.ResourceFile("h3: ps", "h1: 0", "h2") // deliberately not in alphabetical order
	rows := readProbed(t, b.want(0, "probe", "--hosts", file, "--json").stdout)
	var got []string
	for _, r := range rows {
		got = append(got, fmt.Sprintf("%s %v %d", r.Host, r.OK, len(r.GPUs)))
		if r.CPUs < 1 || r.MemoryMiB < 1 {
			t.Errorf("%s: cpus %d, memory %d", r.Host, r.CPUs, r.MemoryMiB)
		}
	}
	if want := []string{"h3 true 0", "h1 true 4", "h2 true 2"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if g := rows[1].GPUs[3]; g.Index != 3 || !strings.HasPrefix(g.UUID, "GPU-") || g.Name == "" || g.Total == 0 {
		t.Errorf("gpu 3: %+v", g)
	}
	t.Run("ids that the hosts lack", func(t *testing.T) { testMissingIDs(b.in(t)) })
	t.Run("troubled hosts", func(t *testing.T) { testTroubledHosts(b.in(t), file) })
}

// testTroubledHosts probes a host whose nvidia-smi hangs, with a
// --probe-timeout of 2 s. Another host is powered off; to notice that takes
// longer.
func testTroubledHosts(b *bench, file string) {
	b.Hosts[0].SetGPUs(2, "mode hang")
	b.Hosts[1].PowerOff()
	begun := time.Now()
	res := b.want(125, "probe", "--hosts", file, "--probe-timeout", "2s")
	b.took("a probe of a tool that hangs and a host that is down", begun, patience.Limit)
	want := `^HOST .*STATE
h3 .* ok
h1 .* lacks GPUs
h2 +- +- .* failed

host h2: connect to \S+: no connection within 15s
$`
	if !regexp.MustCompile(want).MatchString(res.stdout) {
		b.t.Errorf("table:\n%s\nwant:\n%s", res.stdout, want)
	}
}

// testMissingIDs names GPUs that do not exist: plx probe prints an error, and
// still prints the whole table.
func testMissingIDs(b *bench) {
	hosts := []string{"--host", "h2: 1,5", "--host", "h1: 0", "--host", "h3 exclude=3"}
	complaints := []string{"plx: --host:1: host h2: no GPU 5: the host has 0, 1", "plx: --host:3: host h3: no GPU 3"}
	res := b.want(125, append([]string{"probe", "--json"}, hosts...)...)
	contains(b.t, res.stderr, complaints...)
	rows := readProbed(b.t, res.stdout)
	if len(rows) != 3 || rows[0].OK || !rows[1].OK || rows[2].OK || rows[1].Error != "" || len(rows[0].GPUs) != 2 || len(rows[1].GPUs) != 4 {
		b.t.Errorf("%+v", rows)
	}
	contains(b.t, rows[0].Error, "host h2", "GPU 5")
	res = b.want(125, append([]string{"probe"}, hosts...)...)
	contains(b.t, res.stderr, complaints...)
	for _, row := range []string{`h2 .*lacks GPUs`, `h1 .*ok$`, `h1 +3 `, `h2 +1 `} {
		if !regexp.MustCompile(`(?m)^` + row).MatchString(res.stdout) {
			b.t.Errorf("the table has no %q:\n%s", row, res.stdout)
		}
	}
}

func TestMissingGPU(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 1, GPUs: []int{2}})
	res := b.want(125, "launch", "--hosts", b.ResourceFile("h1: 0,7"), "true")
	if !strings.Contains(res.stderr, "h1") || !strings.Contains(res.stderr, "GPU 7") {
		t.Errorf("stderr:\n%s", res.stderr)
	}
}

// If a host already has this version of plx, a launch uses one SSH session to
// check, start and print. A program that prints much takes one more session.
func TestSecondLaunchTakesOneSession(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 2, GPUs: []int{0, 1}})
	program := b.script("print", `echo "gpu $CUDA_VISIBLE_DEVICES."; head -c $1 /dev/zero | tr '\0' a`)
	for i, c := range []struct{ line, gpu string }{{"h1: cpu", "gpu ."}, {"h2", "gpu 0."}} {
		since := b.sessions(i)
		file := b.ResourceFile(c.line)
		var sessions []int
		for _, size := range []int{10, 10, 200_000} { // the first launch also sends plx by sftp, for which this sshd starts no shell
			res := b.want(0, "launch", "--hosts", file, program, strconv.Itoa(size))
			if got := strings.Count(res.stdout, "a"); got < size || !strings.Contains(res.stdout, c.gpu) {
				t.Errorf("%s: %d of %d bytes, or no %q", c.line, got, size, c.gpu)
			}
			sessions = append(sessions, since())
		}
		if sessions[0] != 1 || sessions[1] != 1 || sessions[2] != 2 {
			t.Errorf("%s: %v sessions", c.line, sessions)
		}
	}
}

// Before it starts a job, a launch asks each host's agent several questions.
// All of them use the SSH session that later starts the job, as docs/scale.md
// promises.
func TestOptionsTakeNoSession(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 1, GPUs: []int{1}, Second: true})
	options := [][]string{{"--name", "net"}, {"--nic", "eth1"}, {"--wait-gpus", "1m"}, {"--workdir", ".", "--setup", "true"}, {"--check-import", "json"}}
	options = append(options, slices.Concat(options...))
	launch := func(options []string) {
		res := b.want(0, slices.Concat([]string{"launch", "--hosts", b.ResourceFile("h1")}, options, []string{"sh", "-c", "echo gpu $CUDA_VISIBLE_DEVICES."})...)
		contains(t, res.stdout, "gpu 0.")
	}
	b.dir = t.TempDir()
	put(t, filepath.Join(b.dir, "a"), "first", 0o644)
	launch(options[len(options)-1]) // this launch sends plx and the folder
	sessions, starts := b.sessions(0), b.starts(0)
	for _, o := range append([][]string{nil}, options...) {
		launch(o)
		b.documented(strings.Join(append([]string{"plx launch"}, o...), " "), sessions(), starts())
	}
}

// A command that asks about a job uses one agent on each host, in one SSH
// session.
func TestCommandsTakeOneSession(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 1})
	job := b.detach("--hosts", b.ResourceFile("h1: cpu"), "--name", "sleeps", "sleep", "600")
	sessions, starts, file := b.sessions(0), b.starts(0), b.ResourceFile("h1: cpu")
	for _, args := range [][]string{{"status", job}, {"jobs"}, {"stacks", job}, {"exec", "--hosts", file, "true"}, {"stop", job}, {"prune", "--older", "1ns"}} {
		b.want(0, args...)
		b.documented(strings.NewReplacer(job, "JOB", file, "FILE").Replace("plx "+strings.Join(args, " ")), sessions(), starts())
	}
	b.hostsGone(0)
}

// documented fails the test unless docs/scale.md states these numbers of SSH
// sessions and plx processes for a command on a host.
func (b *bench) documented(command string, sessions, starts int) {
	b.t.Helper()
	if row := fmt.Sprintf("\n| `%s` | %d | %d | ", command, sessions, starts); !strings.Contains(string(read(b.t, "../docs/scale.md")), row) {
		b.t.Errorf("docs/scale.md has no row%s", row)
	}
}

// starts returns a function that returns the number of plx processes started
// on a host since its last call.
func (b *bench) starts(host int) (since func() int) {
	b.t.Helper()
	put(b.t, filepath.Join(b.Hosts[host].HomeDir, ".plx", "tidied"), ".", 0o600) // plx believes that its daily cleanup was already done
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_NOTIF|unix.FAN_CLOEXEC|unix.FAN_NONBLOCK, unix.O_RDONLY)
	if err != nil {
		b.t.Fatal(err)
	}
	blobs := filepath.Join(b.Hosts[host].HomeDir, ".plx", "blobs")
	if err := unix.FanotifyMark(fd, unix.FAN_MARK_ADD, unix.FAN_OPEN_EXEC|unix.FAN_EVENT_ON_CHILD, unix.AT_FDCWD, blobs); err != nil {
		b.t.Fatalf("watch %s: %v", blobs, err)
	}
	b.t.Cleanup(func() { unix.Close(fd) })
	return func() (n int) {
		b.t.Helper()
		for buf := make([]byte, 64<<10); ; {
			size, err := unix.Read(fd, buf)
			if err == unix.EAGAIN {
				return n
			}
			if err != nil {
				b.t.Fatal(err)
			}
			for rest := buf[:size]; len(rest) > 0; n++ {
				event := (*unix.FanotifyEventMetadata)(unsafe.Pointer(&rest[0]))
				unix.Close(int(event.Fd))
				rest = rest[event.Event_len:]
			}
		}
	}
}

// sessions returns a function that returns the number of SSH sessions on a
// host since its last call.
func (b *bench) sessions(host int) (since func() int) {
	b.t.Helper()
	onHost := func(line string) string {
		b.t.Helper()
		out, err := b.Hosts[host].Command(b.t.Context(), "sh", "-c", line).Output()
		if err != nil {
			b.t.Fatalf("%s: %v", line, err)
		}
		return string(out)
	}
	onHost(`: >$HOME/sessions; echo 'echo x >>$HOME/sessions' >$HOME/.bashrc`) // the login shell of each session runs .bashrc
	return func() int {
		b.t.Helper()
		return strings.Count(onHost(`cat $HOME/sessions; : >$HOME/sessions`), "x")
	}
}

// Sending files takes no SSH session other than the job's. That includes the
// program at the first launch; only plx itself takes one more session. Files
// that a host has are not sent, and files that it has lost are sent again.
func TestFilesTakeNoSession(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 1})
	b.dir = t.TempDir()
	put(t, filepath.Join(b.dir, "a"), "first", 0o644)
	put(t, filepath.Join(b.dir, "pkg", "b"), "second", 0o644)
	onHost := func(line string) string {
		out, err := b.Hosts[0].Command(t.Context(), "sh", "-c", line).Output()
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		return string(out)
	}
	program, err := os.ReadFile("/bin/echo")
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(b.dir, "program"), string(program), 0o755)
	since := b.sessions(0)
	if res := b.want(0, "launch", "--hosts", b.ResourceFile("h1: cpu"), "./program", "hello"); !strings.Contains(res.stdout, "hello") {
		t.Errorf("the program printed %q", res.stdout)
	}
	if n := since(); n != 1 { // and an sftp session, for which this sshd starts no shell
		t.Errorf("the first launch of a program took %d sessions", n)
	}
	onHost(`[ -z "$(find $HOME/.plx/blobs -name '.*' -type f)" ]`) // no temporary files of the transfer remain
	for _, flag := range [][]string{{"--workdir", "."}, {"--copy", "pkg"}} {
		var sessions []int
		for _, lost := range []bool{false, false, true, false} {
			if lost {
				onHost(`rm -r $HOME/.plx/files/[0-9a-f]*`)
			}
			args := append(append([]string{"launch", "--hosts", b.ResourceFile("h1: cpu")}, flag...), "sh", "-c", "cat pkg/b; echo changed >pkg/b")
			if res := b.want(0, args...); !strings.Contains(res.stdout, "second") {
				t.Errorf("%v: the job printed %q", flag, res.stdout)
			}
			sessions = append(sessions, since())
		}
		if slices.Max(sessions) != 1 {
			t.Errorf("%v: %v sessions", flag, sessions)
		}
	}
	b.hostsGone(0)
}
