//go:build long

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// stripped builds an example without symbols, like the binaries of a release.
func (b *bench) stripped(name string) string {
	b.t.Helper()
	path := filepath.Join(b.t.TempDir(), name)
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", path, "github.com/plx-run/plx/examples/"+name)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		b.t.Fatalf("build %s: %v\n%s", name, err, out)
	}
	return path
}

// TestServersByProgram checks which programs get parameter servers. By default
// these are the programs that link plx's trainer.
func TestServersByProgram(t *testing.T) {
	b := local(t)
	trains := b.stripped("linear")
	wrapper := b.script("wrapper", `exec `+trains+` "$@"`)
	other := filepath.Join(t.TempDir(), "other")
	put(t, filepath.Join(other, "go.mod"), "module example.org/other\n\ngo 1.26\n", 0o644)
	put(t, filepath.Join(other, "main.go"), "package main\n\nfunc main() {}\n", 0o644)
	source, err := filepath.Abs("../examples/linear")
	if err != nil {
		t.Fatal(err)
	}
	const note = "does not link plx's trainer"
	for _, c := range []struct {
		name, flags, program string
		servers              int
		noted                bool
	}{
		{"a program of the trainer", "", trains, 2, false},
		{"its package folder", "", source, 2, false},
		{"auto by name", "--ps auto", trains, 2, false},
		{"none for it", "--ps none", trains, 0, false},
		{"on one host", "--ps 127.0.0.3", trains, 1, false},
		{"a Go program without the trainer", "", b.plx, 0, false},
		{"a package folder without the trainer", "", other, 0, false},
		{"a script", "", wrapper, 0, false},
		{"a command of the hosts", "", "python3", 0, false},
		{"all for a script", "--ps all", wrapper, 2, true},
		{"all for a command", "--ps all", "python3", 2, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := append([]string{"launch", "--dry-run"}, strings.Fields(c.flags)...)
			out := b.in(t).want(0, append(args, c.program)...).stdout
			if got := strings.Count(out, "\nps:"); got != c.servers || strings.Contains(out, note) != c.noted {
				t.Errorf("%d servers, want %d; with the note: %v:\n%s", got, c.servers, c.noted, out)
			}
		})
	}
	t.Run("a trainer behind a script", func(t *testing.T) {
		b := b.in(t)
		res := b.want(1, "launch", wrapper, "--arch", "ps", "--steps", "21")
		contains(t, res.stderr, "2 workers and no server to keep the variables on", "plx: hint: --ps all, or train with --arch allreduce\n")
		res = b.want(0, "launch", "--ps", "all", wrapper, "--arch", "ps", "--steps", "21")
		contains(t, res.stderr, note)
		contains(t, strings.Join(lines(res.stdout, "worker:0"), "\n"), "step 20 | loss ")
	})
	t.Run("torch's variables are for workers", func(t *testing.T) {
		b := b.in(t)
		show := b.script("show", `for v in RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT; do echo "$v ${!v-unset}"; done
[ $PLX_ROLE = worker ] && until [ -e $1/0 ] && [ -e $1/1 ]; do sleep 0.05; done
touch $1/$PLX_TASK_INDEX`)
		dir := t.TempDir()
		res := b.want(0, "launch", "--ps", "all", show, dir)
		want := "RANK unset\nWORLD_SIZE unset\nLOCAL_RANK unset\nMASTER_ADDR unset\nMASTER_PORT unset"
		if got := strings.Join(lines(res.stdout, "ps:0"), "\n"); got != want {
			t.Errorf("ps:0 has %s", got)
		}
		contains(t, strings.Join(lines(res.stdout, "worker:1"), "\n"), "RANK 1\nWORLD_SIZE 2\nLOCAL_RANK 0\nMASTER_ADDR 127.0.0.2\n")
	})
}
