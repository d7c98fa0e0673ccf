package launcher

import (
	"os"
	"strings"
	"testing"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/trainer/cluster"
)

// Every variable that plx sets for a task has a row in docs/torch.md.
func TestVariablesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/torch.md")
	if err != nil {
		t.Fatal(err)
	}
	c := cluster.Contract{Task: cluster.Chief, Foreign: cluster.Foreign{Interface: "eth0", Threads: 1}}
	for _, e := range append(c.Environ(), c.Foreign.Defaults()...) {
		name, _, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(name, "PLX_") && !strings.Contains(string(text), "\n| `"+name+"` |") {
			t.Errorf("%s has no row", name)
		}
	}
}

// Every variable that plx sets for a task is either refused from the user, with a reason
// and a hint, or a default that gives way.
func TestUserCannotSetTheContract(t *testing.T) {
	foreign := cluster.Foreign{Interface: "eth0", Threads: 1, ErrorFile: "error.json"}
	c := cluster.Contract{Task: cluster.Chief, ListenFD: 3, ControlFD: 4, FirstWorldSize: 1, Foreign: foreign}
	for _, e := range c.Environ() {
		name, _, _ := strings.Cut(e, "=")
		_, err := envsync.Environment([]string{name + "=x"}, nil, os.LookupEnv)
		switch {
		case name == "PLX_LOG_LEVEL": // the user's value is the contract's
		case err == nil:
			t.Errorf("--env %s=x is accepted and has no effect", name)
		case exit.Hint(err) == "":
			t.Errorf("no hint: %v", err)
		}
	}
	for _, e := range foreign.Defaults() {
		if _, err := envsync.Environment([]string{e}, nil, os.LookupEnv); err != nil {
			t.Error(err)
		}
	}
}
