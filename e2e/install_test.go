//go:build long

package e2e

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestREADMEInstalls builds and installs plx as README.md describes. The
// installed program must print its commit.
func TestREADMEInstalls(t *testing.T) {
	t.Parallel()
	b := local(t)
	b.clonesThis()
	r := b.newcomer(filepath.Join(b.home, ".local", "bin"))
	for _, command := range commandsOf(t, "../README.md") {
		res := r.run(command).want(0)
		if command == "plx version" {
			contains(t, res.stdout, "commit "+strings.Fields(tool(t, "git", "rev-parse", "HEAD"))[0]+", 20")
		}
		if strings.HasPrefix(command, "go run ") { // TestREADME and make test run the commands from here on
			break
		}
	}
	r.all(map[string]int{"git clone": 1, "make build": 1, "install ": 1, "plx version": 1, "go run . launch ./examples/mlp": 1})
}

// TestREADMEAsItStands is TestREADME with two workers per host, exactly as in
// README.md.
func TestREADMEAsItStands(t *testing.T) {
	runREADME(t, slices.DeleteFunc(commandsOf(t, "../README.md"), builds), strings.NewReplacer())
}
