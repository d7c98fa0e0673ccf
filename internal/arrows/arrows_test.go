package arrows

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/plx-run/plx"

// arrow says what a package may import. Patterns are paths within the module;
// one that ends in /... means the folder and all below it, "main" is the root.
type arrow struct {
	from string
	to   []string // packages of plx
	std  bool     // and, of others, the standard library only
	not  []string // packages of the standard library that it must do without
}

// arrows: the first row that matches a package holds.
var arrows = []arrow{
	{from: "main", to: []string{"launcher", "hostfile", "gpuprobe", "logs"}},
	// Text to hosts: no network, no probing.
	{from: "hostfile", std: true, not: []string{"net", "os/exec"}},
	{from: "gpuprobe"},
	{from: "envsync"},
	{from: "logs"},

	{from: "launcher", to: []string{
		"hostfile", "gpuprobe", "envsync", "logs", "trainer/cluster",
		"launcher/ssh", "launcher/embedded", "launcher/agent",
		"launcher/protocol", "launcher/coordinator", "launcher/conductor"}},
	{from: "launcher/ssh"},
	{from: "launcher/transporttest"},
	{from: "launcher/embedded", to: []string{"launcher/ssh"}},
	{from: "launcher/protocol", to: []string{"trainer/cluster"}},
	// A pure state machine: no network, no files, no programs.
	{from: "launcher/coordinator", std: true,
		to:  []string{"launcher/protocol", "trainer/cluster"},
		not: []string{"net", "os", "os/exec"}},
	{from: "launcher/conductor", to: []string{"launcher/coordinator", "launcher/protocol", "trainer/cluster"}},
	{from: "launcher/agent", to: []string{
		"launcher/coordinator", "launcher/conductor", "launcher/protocol", "envsync", "logs", "trainer/cluster"}},

	{from: "trainer/cluster", std: true},
	// Pure parts of the trainer: each can be understood alone.
	{from: "trainer/random", std: true, not: []string{"net", "os"}},
	{from: "trainer/data", std: true, to: []string{"trainer/random"}},
	{from: "trainer/timeline", std: true},
	{from: "trainer/summary", std: true},
	{from: "trainer/plot", std: true},
	{from: "trainer/partition", std: true, to: []string{"trainer/plot"}, not: []string{"net", "os"}},
	{from: "trainer/cost", std: true, not: []string{"net", "os"}},
	{from: "trainer/safetensors", std: true, not: []string{"net", "os"}},
	{from: "trainer/graph"},
	{from: "trainer/wire", to: []string{"internal/failpoint"}},
	{from: "trainer/blas"},
	{from: "trainer/optimizer", std: true, to: []string{"trainer/wire"}, not: []string{"net"}},
	{from: "trainer/sparse", std: true, to: []string{"trainer/optimizer", "trainer/random", "trainer/wire"}, not: []string{"net"}},
	// Checkpoints on disk: who holds what elsewhere is for others to ask.
	{from: "trainer/checkpoint", std: true, to: []string{"internal/failpoint", "trainer/cluster", "trainer/optimizer"}, not: []string{"net"}},
	// What runs between tasks: peers below, the two protocols above it.
	{from: "trainer/peers", to: []string{"trainer/cluster", "trainer/wire"}},
	{from: "trainer/mesh", to: []string{"trainer/cluster", "trainer/peers", "trainer/wire"}},
	{from: "trainer/owner", to: []string{"trainer/cluster", "trainer/peers", "trainer/wire",
		"trainer/optimizer", "trainer/sparse", "trainer/timeline"}},
	{from: "trainer/depot", to: []string{"internal/failpoint", "trainer/checkpoint", "trainer/cluster", "trainer/owner",
		"trainer/peers", "trainer/safetensors", "trainer/wire"}},
	// What runs inside one: graphs and their operations.
	{from: "trainer/executor", to: []string{"trainer/wire"}},
	{from: "trainer/nn", to: []string{"trainer/executor", "trainer/random"}},
	{from: "trainer/...", to: []string{"trainer/...", "internal/failpoint"}},
	{from: "examples/...", to: []string{"trainer/..."}},

	{from: "internal/testhosts"},
	{from: "internal/measured", std: true},
	// Tries plx from outside; what it trains is a program like any other.
	{from: "internal/faultgrid/ledger", std: true, not: []string{"net", "os/exec"}},
	{from: "internal/faultgrid/trainee", to: []string{"internal/faultgrid/ledger", "trainer/..."}},
	{from: "internal/faultgrid", to: []string{"internal/faultgrid/ledger", "internal/measured", "internal/testhosts"}},
	{from: "internal/valve", std: true},
	{from: "internal/failpoint", std: true, not: []string{"net", "os/exec"}},
	{from: "internal/testhosts/cmd/...", to: []string{"internal/testhosts", "trainer/cluster"}},
	{from: "internal/ci/...", std: true},
	// Measures plx from outside, with what its examples are made of.
	{from: "internal/bench/...", to: []string{"internal/measured", "internal/testhosts", "trainer/data", "trainer/nn", "trainer/plot", "trainer/random"}},
	{from: "internal/arrows", std: true},
	// Tests, and no other code.
	{from: "e2e/..."},
}

// namesOfNothing say nothing about what is in a package.
var namesOfNothing = []string{"util", "utils", "common", "types", "helper", "helpers", "misc", "base", "shared", "node"}

// listed is what go list says of a package.
type listed struct {
	ImportPath string
	Name       string
	Standard   bool
	Imports    []string
	CgoFiles   []string
}

func list(t *testing.T, args ...string) []listed {
	t.Helper()
	args = append([]string{"list", "-json=ImportPath,Name,Standard,Imports,CgoFiles"}, args...)
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %v: %v: %s", args, err, &complaint)
	}
	var all []listed
	for stream := json.NewDecoder(bytes.NewReader(out)); stream.More(); {
		var p listed
		if err := stream.Decode(&p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

// within is a package's path in the module: "main" for the root, false for a
// package of another module.
func within(path string) (string, bool) {
	if path == module {
		return "main", true
	}
	return strings.CutPrefix(path, module+"/")
}

func matches(pattern, path string) bool {
	if folder, below := strings.CutSuffix(pattern, "/..."); below {
		return path == folder || strings.HasPrefix(path, folder+"/")
	}
	return pattern == path
}

// breach says what is wrong with one import, or nothing. The dot of a domain
// tells other modules' packages from the standard library's.
func (a arrow) breach(imported string) string {
	if path, ours := within(imported); ours {
		if !slices.ContainsFunc(a.to, func(p string) bool { return matches(p, path) }) {
			return "is not among the packages of plx that it may know"
		}
		return ""
	}
	first, _, _ := strings.Cut(imported, "/")
	if a.std && strings.Contains(first, ".") {
		return "is not of the standard library"
	}
	if slices.Contains(a.not, imported) {
		return "is what this package promises to do without"
	}
	return ""
}

// forTests are the packages that hold tests' tools: only they may know testing.
var forTests = []string{"examples/internal/tryout", "internal/testhosts", "internal/valve", "launcher/transporttest"}

// check returns a line for every import of a package that is against the rules.
func check(p listed) []string {
	path, ours := within(p.ImportPath)
	if !ours {
		return nil
	}
	row := slices.IndexFunc(arrows, func(a arrow) bool { return matches(a.from, path) })
	if row < 0 {
		return []string{path + " has no row in the table of arrows"}
	}
	var wrong []string
	for _, imported := range p.Imports {
		if why := arrows[row].breach(imported); why != "" {
			wrong = append(wrong, path+" imports "+imported+", which "+why)
		}
		if imported == "testing" && !slices.Contains(forTests, path) {
			wrong = append(wrong, path+" imports testing and holds no tests' tools")
		}
	}
	return wrong
}

func TestArrows(t *testing.T) {
	packages := list(t, "./...")
	if len(packages) == 0 {
		t.Fatal("no packages found")
	}
	for _, p := range packages {
		for _, wrong := range check(p) {
			t.Error(wrong)
		}
	}
}

func TestPackageNames(t *testing.T) {
	for _, p := range list(t, "./...") {
		for part := range strings.SplitSeq(strings.TrimPrefix(p.ImportPath, module), "/") {
			if slices.Contains(namesOfNothing, part) || slices.Contains(namesOfNothing, p.Name) {
				t.Errorf("package %s has a name that says nothing", p.ImportPath)
			}
		}
	}
}

func TestCheckFindsWhatIsWrong(t *testing.T) {
	for _, test := range []struct {
		from, imported string
		wrong          bool
	}{
		{"", "/launcher", false},
		{"", "/trainer", true},
		{"/hostfile", "/logs", true},
		{"/launcher", "/launcher/ssh", false},
		{"/launcher/ssh", "/launcher", true},
		{"/launcher/coordinator", "net", true},
		{"/launcher/coordinator", "sort", false},
		{"/trainer", "/trainer/cluster", false},
		{"/trainer", "/launcher", true},
		{"/trainer/owner", "/hostfile", true},
		{"/trainer/cluster", "golang.org/x/sys/unix", true},
		{"/trainer/cluster", "encoding/json", false},
		{"/launcher", "/internal/testhosts", true},
		{"/launcher", "/launcher/transporttest", true},
		{"/logs", "testing", true},
		{"/nowhere", "fmt", true},
	} {
		imported := test.imported
		if strings.HasPrefix(imported, "/") {
			imported = module + imported
		}
		wrong := check(listed{ImportPath: module + test.from, Imports: []string{imported}})
		if (len(wrong) > 0) != test.wrong {
			t.Errorf("%s imports %s: %v", test.from, test.imported, wrong)
		}
	}
}
