//go:build long

package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/internal/test/testhosts"
)

// block formats output as plx exec prints it for the given hosts.
func block(hosts, text string) string {
	const rule = "---------------\n"
	return rule + hosts + "\n" + rule + text
}

func TestExec(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 3})
	file := b.ResourceFile()
	t.Run("answers", func(t *testing.T) { execAnswers(b.in(t), file) })
	t.Run("stream", func(t *testing.T) { execStream(b.in(t), file) })
	t.Run("no shell", func(t *testing.T) { execArguments(b.in(t), file) })
	t.Run("surroundings", func(t *testing.T) { execSurroundings(b.in(t), file) })
	t.Run("JSON", func(t *testing.T) { execJSON(b.in(t), file) })
	t.Run("mistakes", func(t *testing.T) { execMistakes(b.in(t), file) })
	t.Run("nothing is left", func(t *testing.T) { execEnds(b.in(t), file) })
	t.Run("lost", func(t *testing.T) { execLost(b.in(t), file) })
	b.hostsGone(0)
}

// execAnswers runs commands whose hosts print equal or different outputs and
// exit with different statuses, and a command on a host that cannot be
// reached.
func execAnswers(b *bench, file string) {
	res := b.want(4, "exec", "--hosts", file, "--", "sh", "-c", `case $(cat /etc/hostname) in
h2) echo two; echo worse >&2; exit 4;;
*) echo other; echo bad >&2; exit 3;; esac`)
	same(b.t, "stdout", []byte(block("h[1,3] (2)", "other\n")+block("h2", "two\n")), []byte(res.stdout))
	contains(b.t, res.stderr, block("h[1,3] (2)", "bad\n")+block("h2", "worse\n")+"plx: exit status 3: h[1,3]\nplx: exit status 4: h2\n")
	res = b.want(125, "exec", "--host", "h1", "--host", "h2:1:", "--", "sh", "-c", "printf out; exit 7")
	same(b.t, "stdout", []byte(block("h1", "out\n")), []byte(res.stdout))
	contains(b.t, res.stderr, "plx: exit status 7: h1\n", "plx: host h2:1: ")
	res = b.want(0, "exec", "--hosts", file, "--", "sh", "-c", "head -c 10000000 /dev/zero; [ $(cat /etc/hostname) = h1 ] || echo x")
	contains(b.t, res.stderr, "host h1: the last 5.5 MiB of its stdout are not printed: plx keeps 4.0 MiB")
	contains(b.t, res.stdout, block("h1", "\x00"), block("h[2-3] (2)", "\x00")) // the outputs differ only in bytes that plx does not keep
	// If h1 also takes longer than 3 s, plx names h1 in its first line about
	// waiting but not in the next one.
	end := filepath.Join(b.shared(), "end")
	r := b.start("exec", "--hosts", file, "--", "bash", "-c", "[ $(cat /etc/hostname) = h1 ] || { echo $(cat /etc/hostname) works; until [ -e "+end+" ]; do sleep 0.05; done; }")
	r.await(r.stderr, "plx: running: 1 of 3 hosts; waiting for h[2-3] for ")
	r.await(r.stderr, " works\n")
	put(b.t, end, "", 0o644)
	same(b.t, "stdout", []byte(block("h2", "h2 works\n")+block("h3", "h3 works\n")), []byte(r.want(0).stdout))
}

// execStream runs commands whose output plx exec prints while they run.
func execStream(b *bench, file string) {
	r := b.start("exec", "--hosts", file, "--stream", "--", "bash", "-c",
		`echo begun; echo worse >&2; printf part; until [ -e ~/go ]; do sleep 0.02; done; echo ' whole'; printf 'no end'; [ $(cat /etc/hostname) != h2 ]`)
	for _, h := range b.Hosts {
		r.await(r.stdout, h.Name+" | begun\n")
		r.await(r.stderr, h.Name+" ! worse\n")
	}
	for _, h := range b.Hosts {
		if out, err := h.Command(b.t.Context(), "sh", "-c", "touch ~/go").CombinedOutput(); err != nil {
			b.t.Fatalf("%s: %v: %s", h.Name, err, out)
		}
	}
	res := r.want(1)
	got := strings.SplitAfter(res.stdout, "\n")
	slices.Sort(got)
	same(b.t, "stdout", []byte("h1 | begun\nh1 | no end\nh1 | part whole\nh2 | begun\nh2 | no end\nh2 | part whole\nh3 | begun\nh3 | no end\nh3 | part whole\n"), []byte(strings.Join(got, "")))
	contains(b.t, res.stderr, "plx: exit status 1: h2\n")
}

// execArguments passes arguments to a command that a shell would change.
func execArguments(b *bench, file string) {
	odd := []string{"a  b", "$HOME", "`id`", `"'\`, "*", "-x", "--", "", "new\nline", "\xff", "ü!"}
	res := b.want(0, append([]string{"exec", "--hosts", file, "--", "printf", "%s\\n"}, odd...)...)
	same(b.t, "stdout", []byte(block("h[1-3] (3)", strings.Join(odd, "\n")+"\n")), []byte(res.stdout))
	res = b.want(0, "exec", "--hosts", file, "echo", "--json", "-x") // without "--", flags after the command also belong to the command
	same(b.t, "stdout", []byte(block("h[1-3] (3)", "--json -x\n")), []byte(res.stdout))
	res = b.want(127, "exec", "--hosts", file, "--", "ls -l | wc")
	contains(b.t, res.stderr, "ls -l | wc: not found on PATH ", "plx: exit status 127: h[1-3]", "hint: plx exec runs the command without a shell")
	contains(b.t, b.want(126, "exec", "--host", "h1", "/etc/passwd").stderr, "/etc/passwd is not executable")
	res = b.want(0, "exec", "--hosts", file, "cat") // with an empty stdin
	same(b.t, "stdout", nil, []byte(res.stdout))
}

func execSurroundings(b *bench, file string) {
	res := b.want(0, "exec", "--hosts", file, "--chdir", "/usr/lib", "--env", "A=a  b", "--setup", "B=$A/c; export B", "--path", "/opt/x",
		"--", "sh", "-c", `echo "$PWD $A $B ${PATH%%:*} $PLX_JOB"`)
	same(b.t, "stdout", []byte(block("h[1-3] (3)", "/usr/lib a  b a  b/c /opt/x \n")), []byte(res.stdout))
	res = b.want(0, "exec", "--host", "h1: A=own", "--host", "h2", "--env", "A=all", "--", "sh", "-c", "echo $A")
	same(b.t, "stdout", []byte(block("h1", "own\n")+block("h2", "all\n")), []byte(res.stdout))
	contains(b.t, b.want(125, "exec", "--hosts", file, "--chdir", "/no/such", "true").stderr, "working folder: stat /no/such")
	contains(b.t, b.want(124, "exec", "--hosts", file, "--max-time", "300ms", "sleep", "1000").stderr, "the command was ended: it ran longer than 300ms", "exit status 124: h[1-3]")
	res = b.want(0, "exec", "--host", "h1", "--", "sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & echo started")
	same(b.t, "stdout", []byte(block("h1", "started\n")), []byte(res.stdout))
	contains(b.t, res.stderr, "the command left processes in the background, which end with it: 1")
	b.hostsGone(0)
}

func execJSON(b *bench, file string) {
	res := b.want(125, "exec", "--json", "--host", "h1", "--host", "h2:1:", "--host", "h3", "--", "sh", "-c", `printf '<\377'; [ $(cat /etc/hostname) = h3 ] && { echo e >&2; exit 9; }`)
	var answers []struct {
		Host, Error, Stderr string
		Status              *int
		Stdout              *string
		StdoutBase64        []byte
	}
	if err := json.Unmarshal([]byte(res.stdout), &answers); err != nil || len(answers) != 3 {
		b.t.Fatalf("%v: %s", err, res.stdout)
	}
	one, two, three := answers[0], answers[1], answers[2]
	if one.Host != "h1" || one.Status == nil || *one.Status != 1 || one.Stdout != nil || string(one.StdoutBase64) != "<\xff" || one.Error != "" {
		b.t.Errorf("h1: %+v", one)
	}
	if two.Host != "h2:1" || two.Status != nil || two.Error == "" {
		b.t.Errorf("h2: %+v", two)
	}
	if three.Host != "h3" || three.Status == nil || *three.Status != 9 || three.Stderr != "e\n" {
		b.t.Errorf("h3: %+v", three)
	}
}

func execMistakes(b *bench, file string) {
	for want, args := range map[string][]string{
		"no command was named": {"--hosts", file},
		"no hosts were named":  {"true"},
		"--lease 1s":           {"--hosts", file, "--lease", "1s", "true"},
		"--grace is negative":  {"--hosts", file, "--grace", "-1s", "true"},
		"RANK cannot be set":   {"--hosts", file, "--env", "RANK=1", "true"},
	} {
		contains(b.t, b.want(2, append([]string{"exec"}, args...)...).stderr, want)
	}
}

// execEnds ends commands that ignore signals.
func execEnds(b *bench, file string) {
	program := stubborn
	start := func(more ...string) *running {
		r := b.start(append(append([]string{"exec", "--hosts", file, "--grace", "500ms", "--lease", "5m"}, more...), "--", "bash", "-c", program)...)
		for _, h := range b.Hosts {
			b.sleeps(h, "1001")
			b.sleeps(h, "1002")
			b.sleeps(h, "0.2") // "up" is printed
		}
		return r
	}
	r := start()
	r.signal(syscall.SIGINT)
	res := r.want(130)
	b.hostsGone(0)
	same(b.t, "stdout", []byte(block("h[1-3] (3)", "up\n")), []byte(res.stdout))
	contains(b.t, res.stderr, "plx: interrupted: ending the command on all hosts within 500ms")

	r = start("--grace", "1h")
	r.signal(syscall.SIGTERM)
	r.await(r.stderr, "interrupt again to kill it")
	r.signal(syscall.SIGTERM)
	r.want(143)
	b.hostsGone(0)

	r = start()
	r.signal(syscall.SIGKILL)
	b.hostsGone(patience.Limit) // the lease is longer

	r = start()
	b.kill(b.process(b.Hosts[0], "plx agent exec"))
	b.kill(b.process(b.Hosts[1], "sshd: root@notty"))
	b.gone(patience.Limit, b.Hosts[:2]...)
	b.sleeps(b.Hosts[2], "1001") // a failure of one host does not affect another host
	b.killOne(b.Hosts[2], func(p testhosts.Process) bool { return strings.HasSuffix(strings.Join(p.Args, " "), " agent start") })
	b.gone(patience.Limit, b.Hosts[2])
	contains(b.t, r.want(125).stderr, "plx: host h[1,3]: its agent on the host was killed", "plx: host h2: ", "; the host kills the command within 5m0s of")
}

// sleeps waits for a process "sleep SECONDS" on a host. It does not accept a
// shell whose command line contains this text.
func (b *bench) sleeps(h *testhosts.Host, seconds string) {
	b.t.Helper()
	for deadline := time.Now().Add(patience.Limit); ; time.Sleep(10 * time.Millisecond) {
		all := b.processes(h)
		if slices.ContainsFunc(all, func(p testhosts.Process) bool { return slices.Equal(p.Args, []string{"sleep", seconds}) }) {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("host %s: no sleep %s among %v", h.Name, seconds, all)
		}
	}
}

// execLost disconnects a host from the network: the host ends the command by
// itself, and plx reports the loss.
func execLost(b *bench, file string) {
	r := b.start("exec", "--hosts", file, "--lease", "5s", "--grace", "0s", "--", "bash", "-c", fmt.Sprintf("echo up; [ $(cat /etc/hostname) = h1 ] && { %s}; exit 0", stubborn))
	b.sleeps(b.Hosts[0], "1002")
	b.Hosts[0].Cut()
	for deadline := time.Now().Add(patience.Limit); ; time.Sleep(10 * time.Millisecond) {
		left := slices.DeleteFunc(b.processes(b.Hosts[0]), func(p testhosts.Process) bool { // the agent waits up to a minute for plx to reconnect
			return p.Server || strings.HasSuffix(strings.Join(p.Args, " "), " agent start")
		})
		if len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("left of the command: %v", left)
		}
	}
	b.Hosts[0].Heal()
	res := r.want(125)
	contains(b.t, res.stdout, "up\n")
	contains(b.t, res.stderr, "the command was ended: plx was not heard for 5s\n", "plx: exit status 125: h1\n")
}
