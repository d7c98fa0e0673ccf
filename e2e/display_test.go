package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/testhosts"
)

func TestDisplay(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 2})
	end := filepath.Join(b.shared(), "end")
	job := b.detach("--host", "h1", "--ps", "none", "--name", "shown", b.script("s", `printf 'DEBUG a\n\033[?25l\r\033[2Ka 0\nb 0'
for i in 1 2 3 4 5; do printf '\r\033[2K\033[1A\033[2Ka %d\nb %d' $i $i; done
printf '\n\033[?25hafter\n'; until [ -e `+end+` ]; do sleep 0.05; done`))
	t.Run("report l1, hosts", func(t *testing.T) { otherHosts(b.in(t), job) })
	put(t, end, "", 0o644)
	b.want(0, "attach", job)
	t.Run("report l1, lines", func(t *testing.T) {
		sameText(t, "a 5\nb 5\nafter\n", b.in(t).want(0, "logs", "--exclude", "^DEBUG", "--no-prefix", "shown").stdout)
		contains(t, b.in(t).want(2, "logs", "--exclude", "(", "shown").stderr, "--exclude: ")
	})
	t.Run("report l2", func(t *testing.T) {
		sameText(t, "worker:0 h1 | DEBUG a\nworker:0 h1 | a 5\nworker:0 h1 | b 5\nworker:0 h1 | after\n", b.in(t).want(0, "logs", job).stdout)
		contains(t, b.in(t).want(0, "logs", "--json", job).stdout, `\u001b[1A`, "a 3")
	})
	t.Run("report l3", func(t *testing.T) {
		b := b.in(t)
		args := []string{"exec", "--host", "h1", "bash", "-s"}
		cmd := exec.Command(b.plx, args...)
		cmd.Env, cmd.Dir, cmd.Stdin = append(environ(), "HOME="+b.home), t.TempDir(), strings.NewReader("hostname\n")
		contains(t, b.begin(cmd, args).want(0).stderr, "plx: note: standard input is not sent to the command")
	})
	b.hostsGone(0)
}

// otherHosts passes the name of a host that the job does not use to every
// command that accepts a host.
func otherHosts(b *bench, job string) {
	for _, args := range [][]string{{"logs"}, {"stacks"}, {"status"}, {"stop"}, {"attach"}, {"fetch", job, b.t.TempDir()}} {
		command := args[0]
		if args = append(args[:len(args):len(args)], "--host", "h1", "--host", "h2"); command != "fetch" {
			args = append(args, job)
		}
		contains(b.t, b.want(2, args...).stderr, "plx: job "+job+": it has no host h2\n", "plx: hint: its hosts are h1\n")
	}
	for _, command := range []string{"logs", "attach"} {
		contains(b.t, b.want(2, command, job, "--rank", "1").stderr, "there is no task worker:1\n", "plx: hint: the tasks are worker:0\n")
	}
}

func sameText(t *testing.T, want, got string) {
	t.Helper()
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
