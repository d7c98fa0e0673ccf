//go:build long

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/internal/test/testhosts"
)

// enter writes a command for --via, as a stand-in for kubectl exec and docker
// exec. The command enters the named host by nsenter, prints a banner, and
// writes its process number into the folder pids.
func (b *bench) enter() (command, pids string) {
	b.t.Helper()
	pids = b.t.TempDir()
	text := "echo $$ > " + pids + "/$1\necho \"entering $1\"\necho 'for users only' >&2\ncase $1 in\n"
	for _, h := range b.Hosts {
		cmd := h.Command(context.Background(), "env")
		words := append(append([]string{"env", "-i"}, cmd.Env...), cmd.Args[:len(cmd.Args)-1]...)
		for i, w := range words {
			words[i] = "'" + w + "'"
		}
		text += fmt.Sprintf("%s|space/%[1]s) shift; exec %s \"$@\" ;;\n", h.Name, strings.Join(words, " "))
	}
	return b.script("enter", text+"esac\necho \"no container $1\" >&2\nexit 1\n") + " {host} {command}", pids
}

// TestVia tests features that exist only with --via. TestWays runs jobs over
// --via.
func TestVia(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 2})
	command, pids := b.enter()
	over := func(lines ...string) []string {
		return []string{"--hosts", b.ResourceFile(lines...), "--via", command}
	}
	plain := over("h1: cpu nic=eth0", "h2: cpu nic=eth0")
	t.Run("a killed command", func(t *testing.T) {
		b := b.in(t)
		program := b.holder("held")
		launch := b.start(append(append([]string{"launch"}, plain...), "--ps", "none", program.path)...)
		launch.awaitLine("worker:0", "up")
		launch.awaitLine("worker:1", "up")
		text, err := os.ReadFile(filepath.Join(pids, "h2"))
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil || pid < 2 {
			t.Fatalf("pid %q, %v", text, err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		launch.await(launch.stderr, "plx: host h2: connected")
		program.end(t, 5)
		res := launch.want(5)
		if got := lines(res.stdout, "worker:1"); len(got) == 0 || got[len(got)-1] != "last line" {
			t.Errorf("worker:1 printed %q", got)
		}
		b.hostsGone(patience.Limit)
	})
	t.Run("names with a slash", func(t *testing.T) {
		b := b.in(t)
		res := b.want(0, append(append([]string{"exec"}, over("space/h1: cpu", "space/h2: cpu")...), "hostname")...)
		contains(t, res.stdout, "h1", "h2")
	})
	t.Run("mistakes", func(t *testing.T) {
		b := b.in(t)
		fails := func(code int, flags []string, texts ...string) {
			t.Helper()
			res := b.want(code, append(append([]string{"launch"}, flags...), "true")...)
			contains(t, res.stderr, append(texts, "hint: ")...)
		}
		fails(125, over("h3: cpu"), "host h3: ", "exit status 1: no container h3")
		fails(2, over("user@h1: cpu"), "host h1: its line has a user or a port")
		fails(2, []string{"--host", "h1: cpu", "--via", "docker exec -i"}, "{host} is missing")
		fails(2, []string{"--via", command}, "--via needs at least one host")
		fails(2, []string{"--host", "space/h1: cpu"}, "the name of an SSH host cannot contain a slash")
		fails(2, []string{"--host", "h1: cpu", "--via", "plx-no-such-command {host}"}, "this machine has no command plx-no-such-command")
		res := b.want(125, append(append([]string{"launch"}, over("h1: cpu", "h2: cpu")...), "true")...)
		contains(t, res.stderr, "add addr=IP or nic=NAME")
	})
	b.hostsGone(patience.Limit)
}
