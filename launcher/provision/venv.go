package provision

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/envsync/tree"
	"github.com/plx-run/plx/envsync/venv"
	"github.com/plx-run/plx/internal/plural"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
)

// Venv is the Python virtual environment of --venv, as read from disk. The
// zero value means that the job has none.
type Venv struct {
	named   string     // value of --venv, or a description of the environment for messages
	read    *venv.Venv // content of the environment; nil if there is none, or if take has not copied it from a host yet
	request venv.Request

	from *hosts.AgentHost // host of a running job that has the environment; nil if the environment is on this machine
	dir  string           // empty local folder for the files that plx copies from a host of the running job
}

// ReadVenv reads the virtual environment in the folder dir. It returns the
// zero Venv if dir is "". The tasks will run in workdir.
func ReadVenv(ctx context.Context, dir, workdir string, printer *console.Printer) (v Venv, err error) {
	if dir == "" {
		return v, nil
	}
	v.named = dir
	count := new(tree.Count)
	defer watchReading(printer, "--venv "+dir, count)()
	if v.read, err = venv.Read(ctx, dir, venv.Options{Home: os.Getenv("HOME"), Cache: hashCache(), Count: count, Workdir: realFolder(workdir)}); err != nil {
		return v, cmp.Or(context.Cause(ctx), exit.Mistake(fmt.Errorf("--venv %s on this machine: %w", dir, err), "--venv names the folder of an environment that works here: python3 -m venv .venv makes one"))
	}
	v.request = v.read.Request()
	for _, note := range v.read.Notes {
		printer.Printf("note: --venv %s: %s", v.named, note)
	}
	return v, nil
}

// realFolder returns the absolute path of a local folder, with all symbolic
// links resolved. If it cannot find the folder, it returns "". The caller then
// gets the error when it reads the folder.
func realFolder(named string) string {
	if named == "" {
		return ""
	}
	abs, err := filepath.Abs(named)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return ""
	}
	return abs
}

// Importing adds a PYTHONPATH to the tasks' variables if packages were
// installed from the working directory in editable mode (pip install -e). The
// paths in PYTHONPATH are relative to the working directory.
func (v Venv) Importing(environ []string) []string {
	if v.read == nil || len(v.read.InPlace) == 0 {
		return environ
	}
	const name = "PYTHONPATH="
	value := name + strings.Join(v.read.InPlace, ":")
	for _, e := range slices.Backward(environ) {
		if users, found := strings.CutPrefix(e, name); found && users != "" {
			value += ":" + users
			break
		}
	}
	return append(slices.Clone(environ), value)
}

// Lines returns lines for the user which say what parts of the environment plx
// sends. on is the number of hosts.
func (v Venv) Lines(on int) (lines []string) {
	if v.read == nil {
		return nil
	}
	for _, p := range v.parts() {
		n, size := p.folder.Files()
		lines = append(lines, fmt.Sprintf("send: %s of %s: %s, at most %s", p.name, v.named, plural.Count(n, "file"), ToHosts(size, on)))
	}
	return lines
}

// Installed returns the description of the environment for the job's agents.
// It returns nil if there is no environment.
func (v Venv) Installed() *protocol.Venv {
	if v.read == nil {
		return nil
	}
	request, _ := json.Marshal(v.request) // the error is ignored: Marshal cannot fail, because the request contains only strings
	told := &protocol.Venv{Folder: v.request.Folder(), Base: v.request.BaseFolder(), Manifests: []string{v.request.Manifest}, Request: request}
	if v.request.Base != "" {
		told.Manifests = append(told.Manifests, v.request.Base)
	}
	return told
}

// part is a folder of the environment that plx sends, with its name in
// messages.
type part struct {
	name   string
	folder *tree.Folder
}

// parts returns the folders to send. The last is the folder of the packages.
// The first is that of the Python interpreter, if the environment has its own.
func (v Venv) parts() (parts []part) {
	if v.read.Base != nil {
		parts = append(parts, part{"the interpreter", v.read.Base})
	}
	return append(parts, part{"the packages", v.read.Folder})
}

// installTime limits the installation of an environment from cached files on a
// host, which copies several GB.
const installTime = time.Hour

// installVenv installs the environment on the hosts. It sends a host only the
// files that the host does not have. If the environment is already installed
// on a host, it sends nothing. It returns an error for hosts whose platform
// cannot run the environment.
func (r *Recipe) installVenv(ctx context.Context, on []*Target) error {
	if r.Venv.read == nil && r.Venv.from == nil {
		return nil
	}
	err := r.Venv.install(ctx, on, r)
	if err == nil {
		return nil
	}
	if r.Venv.from == nil {
		return exit.WithHint(fmt.Errorf("--venv %s: %w", r.Venv.named, err), exit.Hint(err))
	}
	return exit.WithHint(fmt.Errorf("%s: %w", r.Venv.named, err), exit.Hint(err))
}

func (v Venv) install(ctx context.Context, on []*Target, r *Recipe) error {
	request, installed := v.request, make([]bool, len(on))
	ask := func(i int, t *Target) (err error) {
		installed[i], err = hosts.Call[bool](ctx, t.AgentHost, installTime, protocol.DoVenv, request)
		return err
	}
	err := each(ctx, on, r.Printer.NewHostProgress("looking for "+v.named, len(on)), func(i int, t *Target) error {
		if why := incompatible(request.Python, t.Facts.Platform); why != "" {
			return errors.New(why)
		}
		return ask(i, t)
	})
	if err != nil {
		return exit.WithHint(err, "install the same version of Python on all hosts, or make the environment with uv's own Python, which is sent too: see docs/environment.md")
	}
	var lacking []*Target
	for i, t := range on {
		if !installed[i] {
			lacking = append(lacking, t)
		}
	}
	if len(lacking) == 0 {
		return nil
	}
	if v.read == nil {
		if err := v.take(ctx); err != nil {
			return err
		}
	}
	request.Stored = true
	err = v.fill(ctx, lacking, r, ask)
	failed := slices.DeleteFunc(lacking, func(t *Target) bool { return t.Err == nil })
	if len(failed) == 0 || slices.ContainsFunc(failed, func(t *Target) bool { return !r.reportDamage(t, t.Err) }) || ctx.Err() != nil {
		return err
	}
	return v.fill(ctx, failed, r, ask)
}

// fill sends each host the files of the environment that the host does not
// have. Then it calls ask for each host, which installs the environment.
func (v Venv) fill(ctx context.Context, on []*Target, r *Recipe, ask func(int, *Target) error) error {
	for _, p := range v.parts() {
		if err := r.sendFolder(ctx, on, p.folder, false, r.options(v.named, p.name)); err != nil {
			return err
		}
	}
	return each(ctx, on, r.Printer.NewHostProgress("installing "+v.named, len(on)), ask)
}

// venvOf returns the Python environment v of a running job. It is installed on
// one of the job's hosts, the argument from. dir is an empty local folder for
// the files that plx must copy from that host.
func venvOf(v protocol.Venv, from *hosts.AgentHost, dir string) (Venv, error) {
	of := Venv{named: "the job's virtual environment", from: from, dir: dir}
	if err := json.Unmarshal(v.Request, &of.request); err != nil {
		return of, from.Named(fmt.Errorf("the job's virtual environment: %w", err))
	}
	if of.request.Folder() != v.Folder || of.request.BaseFolder() != v.Base {
		return of, from.Named(errors.New("the job's virtual environment is of another version of plx: scale with the plx that launched the job"))
	}
	return of, nil
}

// take copies the files of the environment from the host v.from.
func (v *Venv) take(ctx context.Context) (err error) {
	v.read = &venv.Venv{}
	if v.read.Folder, err = takeFolder(ctx, v.from, v.request.Manifest, filepath.Join(v.dir, "venv")); err == nil && v.request.Base != "" {
		v.read.Base, err = takeFolder(ctx, v.from, v.request.Base, filepath.Join(v.dir, "interpreter"))
	}
	return err
}

// machines maps Python's names of CPU architectures to Go's names, if the
// names differ.
var machines = map[string]string{"x86_64": "amd64", "aarch64": "arm64", "i686": "386"}

// incompatible returns why a host cannot run programs for the platform of the
// Python p. It returns "" if it can.
func incompatible(p venv.Python, host envsync.Platform) string {
	system, machine, _ := strings.Cut(p.Platform, "-")
	if i := strings.LastIndexByte(machine, '-'); i >= 0 { // for example macosx-14.0-arm64
		machine = machine[i+1:]
	}
	if system == host.OS && cmp.Or(machines[machine], machine) == host.Arch {
		return ""
	}
	return fmt.Sprintf("the environment is for %s, and this host is %s", p, host)
}
