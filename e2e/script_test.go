package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/plx-run/plx/internal/testhosts"
)

// The scripts in testdata run plx as a shell would, with an empty home, on the
// embedded cluster or with mistakes that reach no host.
func TestScripts(t *testing.T) {
	plx := testhosts.Binary(t, "github.com/plx-run/plx")
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
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
