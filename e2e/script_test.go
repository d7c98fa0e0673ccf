package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/plx-run/plx/internal/test/testhosts"
)

// The scripts in testdata run plx as a shell would, with an empty home
// directory. They use the embedded cluster, or make mistakes that plx reports
// before it connects to a host.
func TestScripts(t *testing.T) {
	t.Parallel()
	plx := testhosts.Binary(t, "github.com/plx-run/plx")
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"status": status},
		Setup: func(env *testscript.Env) error {
			for _, v := range goEnv() {
				name, value, _ := strings.Cut(v, "=")
				env.Setenv(name, value)
			}
			home := filepath.Join(env.WorkDir, "home")
			env.Setenv("HOME", home)
			env.Setenv("PATH", filepath.Dir(plx)+":"+env.Getenv("PATH"))
			return os.Mkdir(home, 0o700)
		},
	})
}

// status implements the command "status N program args..." of the scripts:
// like exec, but the program must exit with status N.
func status(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N program [args...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	err = ts.Exec(args[1], args[2:]...)
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		got = ended.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}
