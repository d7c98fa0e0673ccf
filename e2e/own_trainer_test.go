package e2e

import (
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/patience"
)

// TestOwnTrainerPage runs the commands of docs/own-trainer.md in order, like a
// reader who has copied the program from the page. Their output must equal the
// output on the page. Only the go command is set up differently: it finds plx
// in this source, and the commands of the page download nothing.
func TestOwnTrainerPage(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds a program")
	}
	b := local(t)
	b.env = []string{"GOPROXY=off", "GOFLAGS=-mod=mod", "CGO_ENABLED=0", "GOWORK=off", "OMP_NUM_THREADS=1"}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	// A module that requires plx needs the go.mod files of all its indirect
	// requirements, more than a build of plx itself reads.
	graph := exec.Command("go", "mod", "graph")
	graph.Dir = root
	if out, err := graph.CombinedOutput(); err != nil {
		t.Fatalf("go mod graph: %v\n%s", err, out)
	}
	n, folder, digests := b.newcomer(""), filepath.Join(b.home, "plane"), map[string]string{}
	const page = "../docs/own-trainer.md"
	for _, command := range commandsOf(t, "../docs/own-trainer.md") {
		if strings.HasPrefix(command, "go get ") {
			put(t, filepath.Join(folder, "main.go"), programOf(t, page), 0o644)
			put(t, filepath.Join(folder, "go.sum"), string(read(t, "../go.sum")), 0o644)
			n.run("go mod edit -replace github.com/plx-run/plx=" + root).want(0)
		}
		ran := n.run("exec 2>&1; " + command)
		if strings.HasPrefix(command, "go ") {
			ran.limit = patience.Build
		}
		printed := ran.want(0).stdout
		says := strings.TrimSpace(shownBelow(t, page, command))
		if says == "" {
			continue
		}
		if *update {
			put(t, page, strings.Replace(string(read(t, page)), command+"\n```\n\n```text\n"+says, command+"\n```\n\n```text\n"+strings.TrimSpace(slow.ReplaceAllString(printed, "")), 1), 0o644)
			continue
		}
		// Digests differ between machines. So compare only which digests are
		// equal, on the page and in the output.
		for i, sum := range digest.FindAllString(says, -1) {
			got := digest.FindAllString(printed, -1)
			if i >= len(got) || digests[sum] != "" && digests[sum] != got[i] {
				t.Fatalf("%s prints another digest than a command above, or none:\n%s", command, printed)
			}
			digests[sum] = got[i]
		}
		if got, want := comparable(printed), comparable(says); !slices.Equal(got, want) {
			t.Errorf("%s prints\n%s\nwant\n%s", command, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	if different := len(slices.Compact(slices.Sorted(maps.Values(digests)))); !*update && (different != len(digests) || different != 3) {
		t.Errorf("of %d digests %d are different, want 3", len(digests), different)
	}
	n.all(map[string]int{"go mod init": 1, "go get": 1, "go build": 1, "./plane": 10, "plx launch": 4, "--evaluate": 1, "--init-from": 1})
}

// programOf returns the only Go program among the source blocks of a page.
func programOf(t *testing.T, page string) string {
	t.Helper()
	for _, b := range blocksOf(t, page) {
		if b.language == "go" && strings.Contains(b.text, "\npackage main\n") {
			return strings.TrimPrefix(b.text, "\n")
		}
	}
	t.Fatalf("%s has no program", page)
	return ""
}

// shownBelow returns the output that a page shows below a command, or "" if it
// shows none.
func shownBelow(t *testing.T, page, command string) string {
	t.Helper()
	_, below, found := strings.Cut(string(read(t, page)), "\n"+command+"\n```\n\n```text\n")
	says, _, _ := strings.Cut(below, "```\n")
	if !found {
		return ""
	}
	return says
}

var (
	digest = regexp.MustCompile(`sha256=[0-9a-f]{64}`)
	ids    = regexp.MustCompile(`-g\d+-[0-9a-f]{8}|plane-\d{8}-\d{6}-\w{4}|steps held for .*|[\d.]+ (B|KiB)\b|` + digest.String())
	fleet  = regexp.MustCompile(`(?m)^plx: (sent|job) .*\n?`) // what is sent depends on what the hosts have
)

// comparable returns the lines of an output, sorted, without what every run has of its own.
func comparable(out string) []string {
	out = ids.ReplaceAllLiteralString(fleet.ReplaceAllLiteralString(slow.ReplaceAllLiteralString(out, ""), ""), "...")
	return slices.Sorted(slices.Values(strings.Split(strings.TrimSpace(out), "\n")))
}
