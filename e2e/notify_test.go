package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/internal/test/testhosts"
)

// tell is a command for --notify. It appends a line with the received
// variables to the file $TOLD.
const tell = `echo "$PLX_EVENT ${PLX_STATUS-none} ${PLX_JOB_NAME-none} ${PLX_JOB-none}: $PLX_VERDICT" >>"$TOLD"`

// telling creates the file for tell and sets $TOLD in the environment of plx.
func (b *bench) telling() (told string) {
	told = filepath.Join(b.t.TempDir(), "told")
	b.env = append(b.env[:len(b.env):len(b.env)], "TOLD="+told)
	return told
}

// wantTold compares each line of the file with a pattern.
func (b *bench) wantTold(told string, want ...string) {
	b.t.Helper()
	got, err := os.ReadFile(told)
	if err != nil {
		b.t.Fatal(err)
	}
	if !regexp.MustCompile("^" + strings.Join(want, "\n") + "\n$").Match(got) {
		b.t.Errorf("the command was told\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

// TestNotify checks the commands that --notify runs when a job ends or hangs.
func TestNotify(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 2}).withPlx()
	file := b.ResourceFile("h1: cpu", "h2: cpu")
	t.Run("done", func(t *testing.T) {
		b := b.in(t)
		told := b.telling()
		res := b.want(0, "launch", "--hosts", file, "--name", "well", "--notify", tell+"; echo told; exit 3", "echo", "up")
		b.wantTold(told, `done 0 well well-\S+: done`)
		contains(t, res.stderr, "plx: notify: told\n", "plx: warning: --notify: the command failed: exit status 3\n")
		if strings.Contains(res.stdout, "told") {
			t.Errorf("stdout: %s", res.stdout)
		}
	})
	t.Run("failed", func(t *testing.T) {
		b := b.in(t)
		told := b.telling()
		b.want(7, "launch", "--hosts", file, "--notify", tell, b.script("fails", `[ "$RANK" = 0 ] || exec sleep 300; exit 7`))
		b.wantTold(told, `failed 7 none fails-\S+: worker:0 on h1 exited with status 7`)
	})
	t.Run("before the start", func(t *testing.T) {
		b := b.in(t)
		told := b.telling()
		b.want(2, "launch", "--hosts", file, "--notify", tell, "--workdir", "/no/such/folder", "true")
		b.wantTold(told, `failed 2 none none: .*/no/such/folder.*`)
	})
	t.Run("attached", func(t *testing.T) {
		b := b.in(t)
		told := b.telling()
		res := b.want(2, "launch", "--hosts", file, "--detach", "--notify", tell, "true")
		contains(t, res.stderr, "plx: hint: plx attach --notify COMMAND")
		b.env = append(b.env, "PLX_NOTIFY="+tell) // --detach refuses the flag --notify, but not this default
		job := b.detach("--hosts", file, b.script("other", "echo up; exec sleep 300"))
		attached := b.start("attach", job)
		attached.awaitLine("worker:0", "up")
		b.want(0, "stop", "--grace", "1s", job)
		attached.want(143)
		b.wantTold(told, `stopped 143 none other-\S+: stopped by plx stop`)
	})
	t.Run("hang", func(t *testing.T) {
		program, err := filepath.Abs("testdata/pair.py")
		if err != nil {
			t.Fatal(err)
		}
		const culprit = `hung: nothing moved for \S+: culprit: worker:1 on h2: it sleeps: pair.py \(pid .*`
		launch := []string{"launch", "--hosts", file, "--hang-timeout", "5s", "--grace", "1s", "--notify", tell}
		stops, goesOn := b.in(t), b.in(t)
		toldStop, toldOn := stops.telling(), goesOn.telling()
		first := stops.start(append(launch, "--on-hang", "stop", program, "/")...)
		second := goesOn.start(append(launch, "--on-hang", "report", program, "/")...)
		first.want(124)
		stops.wantTold(toldStop, `hang 124 none pair-\S+: `+culprit)
		for begun := time.Now(); ; time.Sleep(50 * time.Millisecond) {
			if _, err := os.Stat(toldOn); err == nil {
				break
			} else if time.Since(begun) > patience.Limit {
				t.Fatal("nothing was told of the hang")
			}
		}
		second.cmd.Process.Signal(syscall.SIGINT)
		second.want(130)
		goesOn.wantTold(toldOn, `hang none none pair-\S+: `+culprit, `stopped 130 none pair-\S+: stopped by Ctrl-C`)
	})
	b.hostsGone(0)
}
