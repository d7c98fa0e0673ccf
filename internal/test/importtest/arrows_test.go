package importtest

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const (
	module = "github.com/plx-run/plx"
	root   = "../../.." // the module's folder
)

// arrow is a rule about what a package may import. Patterns are paths within
// the module. A pattern that ends in /... matches the folder and everything
// below it, and "main" is the root package.
type arrow struct {
	from string
	to   []string // packages of plx
	std  bool     // true if the package may import nothing from other modules, only the standard library
	not  []string // packages of the standard library that are forbidden
}

// arrows lists the rules. The first one that matches a package applies.
var arrows = []arrow{
	{from: "main", to: []string{"defaults", "launcher", "launcher/agent", "launcher/console", "launcher/doctor", "launcher/exec", "launcher/exit", "launcher/hosts", "launcher/jobs", "launcher/limits", "launcher/slurm", "launcher/ssh/sshconfig", "launcher/submit", "hostfile", "gpuprobe", "logs", "logs/style", "launcher/metrics"}},
	// Parsers of the user's lists of hosts, without network access.
	{from: "defaults", to: []string{"internal/bounded"}, not: []string{"net", "os/exec"}},
	{from: "hostfile", std: true, not: []string{"net", "os/exec"}},
	{from: "gpuprobe"},
	{from: "envsync", to: []string{"internal/bounded", "internal/digest"}},
	{from: "envsync/fanout", std: true, not: []string{"os/exec"}},
	{from: "envsync/tree", to: []string{"envsync", "envsync/fanout", "internal/atomicfile", "internal/bounded", "internal/holes"}},
	{from: "envsync/tree/store", to: []string{"envsync/fanout", "envsync/tree", "internal/bounded", "internal/digest", "internal/holes"}},
	{from: "envsync/venv", to: []string{"envsync/tree"}},
	{from: "envsync/venv/install", to: []string{"envsync/tree", "envsync/tree/store", "envsync/venv"}},
	{from: "logs", to: []string{"logs/style"}},
	{from: "logs/style"},
	{from: "launcher/top", to: []string{"internal/plural", "launcher/live", "launcher/protocol", "logs", "logs/style"}},
	{from: "launcher/openmetrics", to: []string{"launcher/live", "launcher/metrics", "launcher/protocol", "logs"}},
	// Pure: runs in, pages out.
	{from: "launcher/event", to: []string{"internal/bounded", "launcher/protocol", "logs", "trainer/cluster"}, not: []string{"net", "os/exec"}},
	{from: "launcher/report", to: []string{"internal/plural", "launcher/metrics", "logs"}, not: []string{"net", "os", "os/exec"}},
	{from: "launcher/live", to: []string{"internal/plural", "launcher/metrics", "logs", "logs/style"}},

	{from: "launcher", to: []string{"launcher/event",
		"internal/plural", "hostfile", "gpuprobe", "envsync", "envsync/tree", "envsync/venv", "logs", "trainer/cluster",
		"launcher/console", "launcher/entrypoint", "launcher/exit", "launcher/placement", "launcher/artifacts", "launcher/reservation",
		"launcher/hosts", "launcher/provision", "launcher/fetch", "launcher/jobs", "launcher/logstream",
		"launcher/protocol", "launcher/jobstate", "launcher/driver", "launcher/submission", "launcher/transport", "launcher/live", "launcher/metrics", "launcher/hang", "launcher/notify"}},
	{from: "launcher/exit", std: true, not: []string{"net", "os"}},
	{from: "launcher/console", to: []string{"internal/plural", "launcher/exit", "logs", "logs/style"}},
	{from: "launcher/entrypoint", to: []string{"envsync/tree", "launcher/exit", "trainer/cluster"}, not: []string{"net"}},
	{from: "launcher/scratch", to: []string{"internal/filelock"}},
	{from: "launcher/limits"},
	{from: "launcher/artifacts", to: []string{"envsync", "launcher/console", "launcher/entrypoint", "launcher/exit", "launcher/scratch"}},
	{from: "launcher/hosts", to: []string{
		"hostfile", "gpuprobe", "envsync", "launcher/bootstrap", "launcher/console", "launcher/exit", "launcher/placement", "launcher/ssh", "launcher/embedded", "launcher/artifacts", "launcher/slurm", "launcher/transport", "launcher/via",
		"launcher/driver", "launcher/protocol", "logs/style"}},
	{from: "launcher/reservation", to: []string{"launcher/console", "launcher/hosts", "launcher/protocol"}},
	{from: "launcher/exec", to: []string{"envsync", "logs", "launcher/artifacts", "launcher/console", "launcher/exit", "launcher/hosts", "launcher/protocol", "launcher/transport", "logs/style"}},
	{from: "launcher/doctor", to: []string{"internal/plural", "envsync", "gpuprobe", "hostfile", "launcher/bootstrap", "launcher/console", "launcher/exit", "launcher/hosts", "launcher/provision", "launcher/jobs", "launcher/placement", "launcher/protocol", "launcher/transport", "logs/style"}},
	{from: "launcher/provision", to: []string{"internal/plural", "envsync", "hostfile", "envsync/tree", "envsync/venv", "launcher/console", "launcher/exit", "launcher/hosts", "launcher/protocol", "launcher/scratch", "launcher/transport"}},
	{from: "launcher/fetch", to: []string{"internal/plural", "internal/digest", "internal/holes", "launcher/console", "launcher/exit", "launcher/hosts", "launcher/protocol", "launcher/transport", "logs"}},
	{from: "launcher/logstream", to: []string{"launcher/console", "launcher/exit", "launcher/hosts", "launcher/jobstate", "launcher/protocol", "logs", "trainer/cluster", "launcher/transport", "launcher/live"}},
	{from: "launcher/jobs", to: []string{
		"internal/plural", "internal/bounded", "internal/filelock", "hostfile", "envsync", "envsync/venv", "logs", "trainer/cluster", "launcher/artifacts", "launcher/reservation", "launcher/console", "launcher/exit", "launcher/fetch", "launcher/hang", "launcher/hosts",
		"launcher/logstream", "launcher/placement", "launcher/driver", "launcher/protocol", "launcher/slurm", "launcher/scratch", "launcher/submission", "launcher/transport", "launcher/provision", "logs/style", "launcher/live", "launcher/metrics", "launcher/notify", "launcher/openmetrics", "launcher/top", "launcher/event", "launcher/report", "internal/atomicfile"}},
	// Jobs that wait in Slurm's queue: the local record of each, and the
	// submission.
	{from: "launcher/notify", to: []string{"launcher/console", "launcher/protocol", "logs", "logs/style"}},
	{from: "launcher/submission", to: []string{"internal/atomicfile", "internal/bounded", "launcher/exit", "launcher/slurm"}},
	{from: "launcher/submit", to: []string{"launcher/console", "launcher/entrypoint", "launcher/exit", "launcher/jobs", "launcher/slurm", "launcher/submission", "logs"}},
	// Pure functions from machines and options to ranks.
	{from: "launcher/placement", std: true, not: []string{"os", "os/exec"},
		to: []string{"internal/plural", "hostfile", "gpuprobe", "launcher/console", "launcher/exit", "launcher/protocol", "trainer/cluster"}},
	{from: "launcher/ssh", to: []string{"internal/bounded", "launcher/exit", "launcher/scratch", "launcher/ssh/pipe", "launcher/ssh/sshconfig", "launcher/transport"}},
	{from: "launcher/ssh/pipe"},
	{from: "launcher/ssh/sshconfig", to: []string{"launcher/exit", "launcher/scratch"}},
	{from: "launcher/transport", std: true, not: []string{"os", "os/exec"}},
	{from: "launcher/embedded", to: []string{"launcher/ssh", "launcher/sshserver"}},
	{from: "launcher/sshserver", to: []string{"launcher/ssh"}},
	{from: "launcher/slurm", to: []string{"hostfile", "launcher/exit"}},
	{from: "launcher/bootstrap", to: []string{"envsync"}, not: []string{"os", "os/exec"}},
	{from: "launcher/via", to: []string{"envsync", "launcher/bootstrap", "launcher/exit", "launcher/ssh", "launcher/ssh/pipe"}},
	{from: "launcher/protocol", to: []string{"launcher/metrics", "trainer/cluster"}},
	// A pure state machine, without network, files or child processes.
	{from: "launcher/jobstate", std: true,
		to:  []string{"internal/plural", "launcher/exit", "launcher/hang", "launcher/protocol", "trainer/cluster"},
		not: []string{"net", "os", "os/exec"}},
	// Pure functions from the functions in which tasks wait to the cause of a
	// hang.
	{from: "launcher/hang", std: true, to: []string{"launcher/protocol", "trainer/cluster"}, not: []string{"net", "os", "os/exec"}},
	// Pure functions from lines of output to metrics.
	{from: "launcher/metrics", std: true, not: []string{"net", "os", "os/exec"}},
	{from: "launcher/driver", to: []string{"launcher/event", "launcher/jobstate", "launcher/protocol", "trainer/cluster"}},
	{from: "launcher/agent/process", to: []string{"internal/plural", "launcher/protocol", "trainer/cluster"}},
	// Pure, except for a function that reads the machine's clock.
	{from: "launcher/agent/lease"},
	{from: "launcher/agent/jobfolder", to: []string{"internal/atomicfile", "internal/bounded", "launcher/exit", "launcher/agent/process", "launcher/metrics", "launcher/protocol", "envsync", "envsync/tree", "envsync/tree/store", "trainer/cluster"}},
	{from: "launcher/agent/program", to: []string{"launcher/exit", "launcher/agent/jobfolder", "launcher/agent/process", "launcher/protocol", "trainer/cluster"}},
	{from: "launcher/agent/gpulock", to: []string{"launcher/protocol"}},
	{from: "launcher/agent/outputs", to: []string{"internal/digest", "envsync/tree", "launcher/agent/jobfolder", "launcher/protocol", "logs"}},
	{from: "launcher/agent/sockets", to: []string{"envsync/fanout", "launcher/protocol", "trainer/cluster", "trainer/cluster/channel"}},
	{from: "launcher/agent/checkup", to: []string{"launcher/agent/jobfolder", "launcher/agent/process", "launcher/agent/sockets", "launcher/agent/watchdog", "launcher/protocol"}},
	{from: "launcher/agent/sampler", to: []string{"launcher/metrics", "gpuprobe", "launcher/agent/process", "launcher/agent/sockets", "launcher/protocol", "trainer/cluster"}},
	{from: "launcher/agent/waits", to: []string{"launcher/agent/process", "launcher/agent/sockets", "launcher/protocol"}},
	{from: "launcher/agent/watchdog", to: []string{"launcher/agent/jobfolder", "launcher/agent/process", "launcher/agent/program", "launcher/protocol"}},
	{from: "launcher/agent/supervisor", to: []string{"launcher/event", "launcher/agent/gpulock", "launcher/agent/jobfolder", "launcher/agent/lease", "launcher/agent/outputs", "launcher/agent/process",
		"launcher/agent/program", "launcher/agent/sampler", "launcher/agent/sockets", "launcher/agent/waits", "launcher/agent/watchdog", "launcher/driver", "launcher/metrics", "launcher/protocol",
		"logs", "trainer/cluster", "trainer/summary"}},
	{from: "launcher/agent", to: []string{"launcher/event", "launcher/metrics", "internal/bounded", "internal/filelock", "envsync", "gpuprobe", "envsync/tree", "envsync/venv", "envsync/venv/install", "launcher/agent/...", "launcher/exit", "launcher/limits", "launcher/protocol", "launcher/sshserver", "logs", "trainer/cluster"}},

	{from: "trainer/cluster", std: true},
	// Pure parts of the trainer that can be understood without the rest.
	{from: "trainer/random", std: true, not: []string{"net", "os"}},
	{from: "trainer/data", std: true, to: []string{"trainer/random"}},
	{from: "trainer/timeline", std: true, to: []string{"internal/atomicfile"}},
	{from: "trainer/summary", std: true},
	{from: "trainer/autotune/partition", std: true, not: []string{"net", "os"}},
	{from: "trainer/autotune/cost", std: true, to: []string{"internal/plural"}, not: []string{"net", "os"}},
	{from: "trainer/safetensors", std: true, not: []string{"net", "os"}},
	{from: "trainer/graph", to: []string{"internal/atomicfile"}},
	{from: "trainer/wire", std: true},
	{from: "trainer/blas"},
	{from: "trainer/optimizer", std: true, to: []string{"trainer/wire"}, not: []string{"net"}},
	{from: "trainer/sparse", std: true, to: []string{"trainer/optimizer", "trainer/random", "trainer/wire"}, not: []string{"net"}},
	// Checkpoint files on disk. Other packages find out which hosts have which
	// files.
	{from: "trainer/checkpoint", std: true, to: []string{"internal/digest", "trainer/cluster", "trainer/optimizer"}, not: []string{"net"}},
	// Communication between tasks: channels and peers, and the two protocols
	// that use them.
	{from: "trainer/cluster/channel", std: true, to: []string{"trainer/cluster"}},
	{from: "trainer/peers", to: []string{"trainer/cluster", "trainer/cluster/channel", "trainer/wire"}},
	{from: "trainer/collective", to: []string{"trainer/cluster", "trainer/peers", "trainer/wire"}},
	// Decisions about which workers wait for each other and which task holds
	// which shard, without network.
	{from: "trainer/policy", std: true, to: []string{"trainer/optimizer"}, not: []string{"net", "os"}},
	{from: "trainer/layout", std: true, to: []string{"trainer/cluster", "trainer/optimizer", "trainer/policy", "trainer/sparse"}, not: []string{"net", "os"}},
	// Gradient sums, optimizers and shard values, without network or files.
	{from: "trainer/aggregate", std: true, to: []string{"trainer/cluster", "trainer/layout", "trainer/optimizer", "trainer/policy", "trainer/sparse", "trainer/wire"}, not: []string{"net", "os"}},
	{from: "trainer/exchange/transition", to: []string{"trainer/aggregate", "trainer/cluster", "trainer/layout", "trainer/peers", "trainer/wire"}},
	// Messages of the exchange, and local aggregation on a host, without
	// network.
	{from: "trainer/exchange/message", std: true, to: []string{"trainer/aggregate", "trainer/layout", "trainer/sparse", "trainer/wire"}, not: []string{"net", "os"}},
	{from: "trainer/exchange/localsum", std: true, to: []string{"trainer/exchange/message", "trainer/aggregate", "trainer/cluster", "trainer/layout",
		"trainer/sparse", "trainer/wire"}, not: []string{"net", "os"}},
	{from: "trainer/exchange/server", to: []string{"trainer/exchange/localsum", "trainer/exchange/message", "trainer/exchange/transition", "trainer/aggregate",
		"trainer/cluster", "trainer/layout", "trainer/peers", "trainer/policy", "trainer/sparse", "trainer/wire"}},
	{from: "trainer/exchange/client", to: []string{"trainer/exchange/localsum", "trainer/exchange/message", "trainer/exchange/server",
		"trainer/exchange/transition", "trainer/aggregate", "trainer/cluster", "trainer/peers", "trainer/wire", "trainer/layout", "trainer/policy",
		"trainer/sparse", "trainer/timeline"}},
	{from: "trainer/exchange"}, // documentation
	{from: "trainer/lifetime", std: true, not: []string{"net", "os"}},
	// The choice of a checkpoint, its file format, its transfer, and the store
	// that controls these.
	{from: "trainer/checkpoint/choose", std: true, to: []string{"trainer/checkpoint", "trainer/cluster"}, not: []string{"net", "os"}},
	{from: "trainer/checkpoint/tensors", std: true, to: []string{"trainer/aggregate", "trainer/checkpoint", "trainer/cluster", "trainer/exchange/transition", "trainer/layout", "trainer/safetensors"}, not: []string{"net", "os"}},
	{from: "trainer/checkpoint/transfer", to: []string{"trainer/checkpoint", "trainer/cluster", "trainer/lifetime", "trainer/peers", "trainer/safetensors", "trainer/wire"}},
	{from: "trainer/checkpoint/store", to: []string{"internal/plural", "trainer/checkpoint", "trainer/checkpoint/choose",
		"trainer/checkpoint/tensors", "trainer/checkpoint/transfer", "trainer/cluster", "trainer/exchange/transition", "trainer/layout", "trainer/lifetime",
		"trainer/peers", "trainer/safetensors", "trainer/wire"}},
	// Reads the values of a checkpoint without the job that wrote it.
	{from: "trainer/checkpoint/weights", std: true, to: []string{"trainer/aggregate", "trainer/checkpoint", "trainer/checkpoint/choose", "trainer/checkpoint/tensors",
		"trainer/cluster", "trainer/exchange/transition", "trainer/layout", "trainer/safetensors"}, not: []string{"net", "os/exec"}},
	// Decides when to make a checkpoint; the store writes it.
	{from: "trainer/checkpoint/saver", std: true, to: []string{"trainer/checkpoint/store", "trainer/cluster", "trainer/exchange/client"}, not: []string{"net", "os"}},
	// Passes state that a model carries from step to step to the checkpoint
	// store.
	{from: "trainer/checkpoint/carriage", to: []string{"internal/plural", "trainer/checkpoint/store", "trainer/checkpoint/tensors", "trainer/replica"}, not: []string{"net", "os"}},
	// Decides when to call the user's hook functions. It sends nothing.
	{from: "trainer/hooks", std: true, to: []string{"trainer/layout", "trainer/replica", "trainer/wire"}, not: []string{"net", "os"}},
	// Settings of the program and the user, independent of a model.
	{from: "trainer/config", std: true, to: []string{"internal/plural", "trainer/cluster", "trainer/hooks", "trainer/policy", "trainer/timeline"}, not: []string{"net"}},
	{from: "trainer/telemetry", std: true, to: []string{"trainer/cluster", "trainer/config", "trainer/graph", "trainer/layout", "trainer/summary", "trainer/timeline", "trainer/wire"}, not: []string{"net"}},
	// Transforms graphs, without computing values.
	{from: "trainer/growth", to: []string{"trainer/executor/memory", "trainer/executor/vertex", "trainer/nn/ops"}},
	{from: "trainer/rewrite", to: []string{"trainer/executor/memory", "trainer/executor/vertex", "trainer/nn/ops", "trainer/replica"}},
	// A worker's computation: graphs, and the table rows that they use.
	{from: "trainer/replica", to: []string{"trainer/executor", "trainer/executor/gpu", "trainer/executor/memory", "trainer/executor/vertex", "trainer/operation", "trainer/wire"}},
	// The GPU that is assigned to a worker, and the variables that stay in its
	// memory.
	{from: "trainer/device", std: true, to: []string{"trainer/config", "trainer/executor/device", "trainer/executor/device/cgocuda", "trainer/executor/device/cuda", "trainer/executor/gpu"}, not: []string{"net"}},
	{from: "trainer/resident", to: []string{"trainer/aggregate", "trainer/executor/gpu", "trainer/layout", "trainer/operation", "trainer/optimizer", "trainer/replica"}},
	{from: "trainer/embedding", to: []string{"trainer/exchange/client", "trainer/exchange/message", "trainer/replica", "trainer/sparse", "trainer/wire"}},
	// Decides on which server each table row should be. The exchange moves the
	// rows.
	{from: "trainer/autotune", std: true, not: []string{"net"}, to: []string{"trainer/autotune/cost", "trainer/autotune/partition", "trainer/cluster",
		"trainer/collective", "trainer/exchange/client", "trainer/exchange/transition", "trainer/layout", "trainer/timeline"}},
	// What a replica executes: graphs and their operations.
	{from: "trainer/operation", to: []string{"trainer/executor/gpu/kernels", "trainer/random"}},
	{from: "trainer/executor/memory"},
	// Pure: it computes no values and does not depend on a device.
	{from: "trainer/executor/vertex", not: []string{"net", "os"}},
	{from: "trainer/executor/compile", to: []string{"trainer/executor/memory", "trainer/executor/vertex", "trainer/operation"}, not: []string{"net", "os"}},
	{from: "trainer/executor/cpu", to: []string{"trainer/executor/compile", "trainer/executor/memory", "trainer/operation"}},
	// The executor's interface to a GPU, and the driver bindings that
	// implement it.
	{from: "trainer/executor/device", std: true, not: []string{"net", "os"}},
	{from: "trainer/executor/device/cuda", to: []string{"trainer/executor/device"}},
	{from: "trainer/executor/device/cgocuda", to: []string{"trainer/executor/device"}},
	{from: "trainer/executor/device/cublas", to: []string{"trainer/executor/device"}},
	{from: "trainer/executor/gpu", to: []string{"trainer/executor/compile", "trainer/executor/cpu", "trainer/executor/device", "trainer/executor/device/cublas", "trainer/executor/gpu/kernels",
		"trainer/executor/memory", "trainer/operation", "trainer/optimizer"}},
	{from: "trainer/executor/gpu/kernels", std: true, to: []string{"trainer/optimizer"}, not: []string{"net"}},
	{from: "trainer/executor", to: []string{"trainer/executor/compile", "trainer/executor/cpu", "trainer/executor/gpu", "trainer/executor/memory", "trainer/operation"}},
	{from: "trainer/nn/matrix"},
	{from: "trainer/nn/exponential", to: []string{"trainer/nn/matrix"}},
	// Passes over memory: no graph.
	{from: "trainer/nn/recurrent", to: []string{"trainer/nn/exponential", "trainer/nn/matrix"}},
	{from: "trainer/nn/ops", to: []string{"trainer/executor/gpu/kernels", "trainer/executor/memory", "trainer/nn/exponential", "trainer/nn/matrix", "trainer/nn/recurrent",
		"trainer/operation", "trainer/random"}},
	// Builds models layer by layer. It imports the trainer; the trainer must
	// not import it.
	{from: "trainer/nn", to: []string{"trainer", "trainer/layout", "trainer/nn/ops"}},
	{from: "trainer", to: []string{"internal/plural", "trainer/..."}},
	{from: "examples/...", to: []string{"trainer/...", "examples/internal/..."}},

	// Packages for reading and writing files.
	{from: "internal/atomicfile", std: true, not: []string{"net", "os/exec"}},
	{from: "internal/bounded", std: true, not: []string{"net", "os/exec"}},
	{from: "internal/digest", std: true, not: []string{"net", "os", "os/exec"}},
	{from: "internal/filelock", not: []string{"net", "os/exec"}},
	{from: "internal/holes", std: true, not: []string{"net", "os", "os/exec"}},
	{from: "internal/plural", std: true, not: []string{"net", "os", "os/exec"}},
	// Test support may import everything, but product packages must not import
	// it.
	{from: "internal/test/...", to: []string{"defaults", "envsync/...", "examples/...", "gpuprobe", "hostfile", "internal/...", "launcher/...", "logs/...", "trainer/..."}},
	// Tests, and no other code.
	{from: "e2e/..."},
}

// namesOfNothing are package names that are forbidden because they do not
// describe the content.
var namesOfNothing = []string{"util", "utils", "common", "types", "helper", "helpers", "misc", "base", "shared", "node"}

// listed is the output of go list for a package.
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

// within returns a package's path in the module, "main" for the root package.
// It returns false for a package of another module.
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

// breach returns how an import violates the rule; "" if it does not. An import
// path with a dot belongs to another module, one without to the standard
// library.
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

// check returns a line for every import of a package that violates its rule.
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
		if imported == "testing" && !matches("internal/test/...", path) {
			wrong = append(wrong, path+" imports testing and is no support of tests")
		}
	}
	return wrong
}

func TestImportRules(t *testing.T) {
	packages := list(t, "./...")
	if len(packages) == 0 {
		t.Fatal("no packages found")
	}
	opening := list(t, "-tags=cu", "./trainer/device", "./trainer/executor/device/...") // with cgo from other files
	for _, p := range append(packages, opening...) {
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

func TestCheckFindsViolations(t *testing.T) {
	for _, test := range []struct {
		from, imported string
		wrong          bool
	}{
		{"", "/launcher", false},
		{"", "/trainer", true},
		{"/hostfile", "/logs", true},
		{"/launcher", "/launcher/hosts", false},
		{"/launcher", "/launcher/ssh", true},
		{"/launcher/ssh", "/launcher", true},
		{"/launcher/jobstate", "net", true},
		{"/launcher/jobstate", "sort", false},
		{"/trainer", "/trainer/cluster", false},
		{"/trainer", "/launcher", true},
		{"/trainer/exchange", "/hostfile", true},
		{"/trainer/cluster", "golang.org/x/sys/unix", true},
		{"/trainer/cluster", "encoding/json", false},
		{"/launcher", "/internal/test/testhosts", true},
		{"/launcher", "/internal/test/transporttest", true},
		{"/logs", "testing", true},
		{"/internal/test/testhosts", "testing", false},
		{"/internal/test/chaos", "/internal/test/testhosts", false},
		{"/nowhere", "fmt", true},
		{"/trainer/nowhere", "fmt", true},
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
