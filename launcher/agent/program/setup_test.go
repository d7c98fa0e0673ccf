//go:build linux

package program

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/protocol"
)

// setUp runs a --setup line with the shell that it finds on path, and returns
// the recorded states.
func setUp(t *testing.T, line, path, dir string) (States, error) {
	t.Helper()
	states, err := NewStates(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(states.Close)
	env := []string{"PATH=" + path, "HAD=before", "LOST=1", "EMPTY="}
	c := Setup(line, env, dir)
	cmd := &exec.Cmd{Path: c.Path, Args: c.Argv, Env: env, Dir: dir, ExtraFiles: states[:]}
	_, err = cmd.CombinedOutput()
	return states, err
}

func TestSetupIsRecorded(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	const line = "export HAD='a\nb=c' NEW=\"x'y\" RANK=7 EMPTY=; unset LOST; mkdir -p sub; cd sub; umask 027; ulimit -c 0; ulimit -n 100; LOCAL=1; ls /proc/$$/fd"
	for name, path := range map[string]string{"bash": "/usr/bin:/bin", "sh": "/nowhere"} {
		t.Run(name, func(t *testing.T) {
			if name == "sh" {
				line := strings.ReplaceAll(line, "mkdir", "/bin/mkdir")
				check(t, strings.ReplaceAll(line, "; ls /proc/$$/fd", ""), path, dir)
				return
			}
			check(t, line, path, dir)
		})
	}
}

func check(t *testing.T, line, path, dir string) {
	states, err := setUp(t, line, path, dir)
	if err != nil {
		t.Fatal(err)
	}
	got, ours, err := states.Compare()
	if err != nil || !slices.Equal(ours, []string{"RANK"}) {
		t.Fatalf("plx's own variables %v, error %v", ours, err)
	}
	want := []protocol.Raw{"HAD=a\nb=c", "NEW=x'y"}
	if !slices.Equal(got.Env, want) || !slices.Equal(got.Unset, []string{"LOST"}) || string(got.Dir) != dir+"/sub" || got.Mask == nil || *got.Mask != 0o027 {
		t.Errorf("changed: %q, without %q, in %s, mask %v", got.Env, got.Unset, got.Dir, got.Mask)
	}
	limits := map[int]uint64{}
	for _, l := range got.Limits {
		limits[l.Resource] = l.Soft
	}
	if limits[unix.RLIMIT_NOFILE] != 100 {
		t.Errorf("limits: %v", got.Limits)
	}
	env, in := afterSetup(got, []string{"HAD=task", "LOST=task", "RANK=1", "PWD=/old"}, "/old")
	if slices.Sort(env); in != dir+"/sub" || !slices.Equal(env, []string{"HAD=a\nb=c", "NEW=x'y", "PWD=" + in, "RANK=1"}) {
		t.Errorf("a task runs in %s with %q", in, env)
	}
}

func TestSetupThatChangesNothing(t *testing.T) {
	dir := t.TempDir()
	states, err := setUp(t, "A=1; :", "/usr/bin:/bin", dir)
	if err != nil {
		t.Fatal(err)
	}
	got, ours, err := states.Compare()
	if err != nil || len(ours)+len(got.Env)+len(got.Unset)+len(got.Limits) > 0 || got.Mask != nil {
		t.Errorf("%+v, %v, %v", got, ours, err)
	}
	plain := Command{Path: "/bin/true", Argv: []string{"true"}}
	if c, err := plain.limited(got); err != nil || c.Path != plain.Path {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestSetupThatExitsItsShellFails(t *testing.T) {
	for line, code := range map[string]bool{"exit 0": true, "exec true": true, "false": false, "if (": false, "'": false} {
		states, err := setUp(t, line, "/usr/bin:/bin", t.TempDir())
		if (err == nil) != code {
			t.Errorf("%q: %v", line, err)
		}
		if _, _, err := states.Compare(); err == nil {
			t.Errorf("%q counts as complete", line)
		}
	}
}

func TestBecomeRejectsBadArguments(t *testing.T) {
	for _, args := range [][]string{nil, {"--"}, {"--", "/bin/true"}, {"x", "--", "/bin/true", "true"}, {"7:5", "--", "/bin/true", "true"}} {
		if err := Become(args); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
	err := Become([]string{"--", "/nowhere/x", "x"})
	if err == nil || ExitCode(err) != exit.CodeNotRunning {
		t.Errorf("%v, exit status %d", err, ExitCode(err))
	}
	mask := 0o22
	c, err := Command{Path: "/bin/x", Argv: []string{"x", "a b"}}.limited(jobfolder.Setup{Mask: &mask, Limits: []jobfolder.Limit{{Resource: 4, Hard: 9}}})
	if self, _ := os.Executable(); err != nil || c.Path != self || !slices.Equal(c.Argv, []string{"plx", "agent", "become", "4:0:9", "mask:18", "--", "/bin/x", "x", "a b"}) {
		t.Errorf("%+v, %v", c, err)
	}
}
