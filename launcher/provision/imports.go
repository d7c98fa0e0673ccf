package provision

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
)

// importTime limits the imports on a host. It is long because the first import
// of torch reads gigabytes, perhaps over NFS. pythonTime limits a start of
// python3 without imports.
const (
	importTime = 3 * time.Minute
	pythonTime = 20 * time.Second
)

// script is a Python program that imports the modules named by its arguments.
// It prints the result as JSON in its last line, after the prefix
// "plx-imported".
const script = `import sys
first, sys.path[:1] = sys.path[:1], []  # the user's modules do not stand in for those of this script
import importlib, json, traceback
sys.path[:0] = first
mark, answer = "plx-imported ", {"python": ".".join(map(str, sys.version_info[:3]))}
try:
    for name in sys.argv[1:]:
        answer["module"] = name
        importlib.import_module(name)
    torch = sys.modules.get("torch")
    if torch is not None:
        answer["torch"] = str(getattr(torch, "__version__", ""))
        answer["cuda"] = getattr(torch.version, "cuda", None) or ""
        answer["hip"] = getattr(torch.version, "hip", None) or ""
        answer["available"] = bool(answer["cuda"]) and torch.cuda.is_available()
except BaseException as e:
    answer["error"] = "".join(traceback.format_exception_only(type(e), e)).strip()
print("\n" + mark + json.dumps(answer))
`

const mark = "\nplx-imported "

// Imported is the result that the Python script prints on a host.
type Imported struct {
	Python    string `json:"python"` // version of Python, such as "3.12.3"
	Module    string `json:"module"` // module that the script tried to import last
	Error     string `json:"error"`  // why Module could not be imported; "" if all modules were
	Torch     string `json:"torch"`  // version of torch; "" if torch was not imported
	CUDA      string `json:"cuda"`   // version of CUDA that torch was built for, such as "12.1"; "" if it was not built for CUDA
	HIP       string `json:"hip"`    // version of AMD's HIP that torch was built for; "" if it was not built for HIP
	Available bool   `json:"available"`
}

var moduleName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[\pL_][\pL\pN_]*(\.[\pL_][\pL\pN_]*)*$`) })

// ModuleNames splits the values of --check-import into the names of modules.
func ModuleNames(values []string) (names []string, err error) {
	for _, value := range values {
		for name := range strings.SplitSeq(value, ",") {
			if name = strings.TrimSpace(name); !moduleName().MatchString(name) {
				return nil, exit.Mistake(fmt.Errorf("--check-import: %q is no name of a module", name), "--check-import torch,numpy")
			}
			names = append(names, name)
		}
	}
	return names, nil
}

// Imports imports the modules of r.Spec on each host, in the environment that
// tasks will have. It stores the result in the host's Target. If the host's
// torch cannot use the GPUs, it also stores a note or an error. If the Spec
// has no modules, Imports only determines the version of Python.
func (r *Recipe) Imports(ctx context.Context, on []*Target) error {
	doing := "running python3"
	if len(r.Spec.Imports) > 0 {
		doing = "importing " + strings.Join(r.Spec.Imports, ", ")
	}
	return each(ctx, on, r.Printer.NewHostProgress(doing, len(on)), func(_ int, t *Target) error {
		got, err := askImports(ctx, t.AgentHost, r.Spec)
		if err != nil {
			return err
		}
		t.Python = &got
		t.Note, err = checkTorch(got, t.GPUs, t.Report.Driver, t.Report.Vendor.Torch())
		return err
	})
}

// checkImports calls Imports and prints the notes of the Targets. It does
// nothing if the user has not set --check-import.
func (r *Recipe) checkImports(ctx context.Context, on []*Target) error {
	if len(r.Spec.Imports) == 0 {
		return nil
	}
	err := r.Imports(ctx, on)
	var notes []string
	for _, t := range on {
		if t.Note != "" && !slices.Contains(notes, t.Note) {
			notes = append(notes, t.Note)
			r.Printer.Printf("note: %s", t.Note)
		}
	}
	if err != nil {
		return exit.WithHint(fmt.Errorf("--check-import: %w", err), exit.Hint(err))
	}
	return nil
}

// askImports imports the modules on one host. If the job has a working
// directory, the imports run in it, as the job's tasks will.
func askImports(ctx context.Context, a *hosts.AgentHost, spec protocol.Spec) (got Imported, err error) {
	limit, doing := importTime+pythonTime, "import "+strings.Join(spec.Imports, ", ")
	if len(spec.Imports) == 0 {
		limit, doing = 2*pythonTime, "python3"
	}
	ctx, cancel := bounded(ctx, limit, "python3 does not answer within %v")
	defer cancel()
	c := spec.Command
	c.Blob, c.Base, c.Name = "", "", "python3"
	c.Args = append([]protocol.Raw{"-c", script}, protocol.Raws(spec.Imports)...)
	if c.SetupDone {
		c.Setup = ""
	}
	request := protocol.ExecRequest{Command: c, Env: spec.EnvOf(a.Resource.Env), MaxTime: importTime}
	if spec.Workdir != "" { // run in the job's folder, which exists only if the job has a working directory
		request.Job, request.Folder = a.Job, a.Folder
	}
	stdout, stderr, err := hosts.Ask(ctx, a, request, nil)
	_, text, found := strings.Cut(stdout, mark)
	if err == nil && !found {
		err = errors.New("the script has printed no result")
	}
	if err == nil {
		err = json.Unmarshal([]byte(text), &got)
	}
	if err == nil {
		return got, nil
	}
	said := strings.TrimSpace(stderr)
	if last := strings.TrimPrefix(said[strings.LastIndexByte(said, '\n')+1:], "plx agent: "); last != "" {
		err = fmt.Errorf("%s (%w)", last, err)
	}
	return got, fmt.Errorf("%s: %w", doing, err)
}

// checkTorch returns an error if the host's torch cannot use the host's GPUs,
// or a note if torch is built for CPUs only. gpus is the number of the host's
// workers that have GPUs. built is the platform for which torch must be built
// on this host, such as "CUDA".
func checkTorch(got Imported, gpus int, driver, built string) (note string, err error) {
	switch {
	case got.Error != "":
		return "", fmt.Errorf("import %s: %s", got.Module, got.Error)
	case got.Torch == "" || got.HIP != "" || got.Available || gpus == 0:
		return "", nil
	case got.CUDA == "":
		return fmt.Sprintf("torch %s is built for CPUs only, and workers have GPUs", got.Torch), nil
	case built != "CUDA":
		err = fmt.Errorf("torch %s is built for CUDA %s, and the GPUs there need one for %s", got.Torch, got.CUDA, built)
		return "", exit.WithHint(err, "install a torch for "+built+" into the environment")
	}
	err = fmt.Errorf("torch %s is built for CUDA %s and finds no GPU; the driver is %s", got.Torch, got.CUDA, cmp.Or(driver, "unknown"))
	if least := leastDriver(got.CUDA); driver != "" && slices.Compare(numbers(driver), numbers(least)) < 0 {
		err = fmt.Errorf("torch %s is built for CUDA %s, which needs NVIDIA driver %s or later, and the driver is %s", got.Torch, got.CUDA, least, driver)
		return "", exit.WithHint(err, "install a torch for an older CUDA into the environment, or a later driver on the host")
	}
	return "", err
}

// leastDriver returns the oldest NVIDIA driver that supports a version of
// CUDA, or "" if plx does not know it. A driver for one minor version of CUDA
// also supports later minor versions.
func leastDriver(cuda string) string {
	major, _, _ := strings.Cut(cuda, ".")
	return map[string]string{"10": "410.48", "11": "450.80.02", "12": "525.60.13", "13": "580"}[major]
}

func numbers(version string) (ns []int) {
	for part := range strings.SplitSeq(version, ".") {
		n, _ := strconv.Atoi(part) // the error is ignored: a text that is not a number counts as 0
		ns = append(ns, n)
	}
	return ns
}
