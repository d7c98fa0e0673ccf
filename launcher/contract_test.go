package launcher

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/trainer/cluster"
)

// full is a cluster.Contract in which every field is set.
var full = cluster.Contract{Task: cluster.Chief, ListenFD: 3, ControlFD: 4, FirstWorldSize: 1,
	Foreign: cluster.Foreign{Interface: "eth0", Threads: 1, ErrorFile: "error"}}

// Every variable that plx sets for a task has a row in docs/variables.md.
func TestVariablesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/variables.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range append(full.Environ(), full.Foreign.Defaults()...) {
		name, _, _ := strings.Cut(e, "=")
		if !regexp.MustCompile("(?m)^\\|[^|]*`" + name + "`[^|]*\\|").Match(text) {
			t.Errorf("%s has no row", name)
		}
	}
}

// For every variable that plx sets for a task, a value from the user is either
// rejected with a hint, or takes precedence.
func TestUserCannotSetReservedVariables(t *testing.T) {
	for _, e := range full.Environ() {
		name, _, _ := strings.Cut(e, "=")
		_, err := envsync.Environment([]string{name + "=x"}, nil, os.LookupEnv)
		switch {
		case name == "PLX_LOG_LEVEL": // the user's value is used
		case err == nil:
			t.Errorf("--env %s=x is accepted and has no effect", name)
		case exit.Hint(err) == "":
			t.Errorf("no hint: %v", err)
		}
	}
	for _, e := range full.Foreign.Defaults() {
		if _, err := envsync.Environment([]string{e}, nil, os.LookupEnv); err != nil {
			t.Error(err)
		}
	}
}
