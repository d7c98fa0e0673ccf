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

// Venv is the virtual environment of --venv as it was read. The zero value is
// none.
type Venv struct {
	named   string     // as the user named it
	read    *venv.Venv // nil: there is none, or from has it
	request venv.Request

	from *hosts.AgentHost // a host that has installed it; nil: it is of this machine
	dir  string           // empty folder of this machine for what is copied from there
}

// ReadVenv reads the folder of --venv, if that is not empty, for tasks that run in workdir.
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

// realFolder is a folder of this machine, absolute and without links; "" if there is none. What is
// wrong with it, reading it says.
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

// Importing adds to the tasks' variables where Python finds packages that were installed in
// place from the working directory. Python takes the paths from there.
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

// Lines tells what is sent.
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

// Installed returns what tasks are told, or nil.
func (v Venv) Installed() *protocol.Venv {
	if v.read == nil {
		return nil
	}
	request, _ := json.Marshal(v.request) // it has texts only
	told := &protocol.Venv{Folder: v.request.Folder(), Base: v.request.BaseFolder(), Manifests: []string{v.request.Manifest}, Request: request}
	if v.request.Base != "" {
		told.Manifests = append(told.Manifests, v.request.Base)
	}
	return told
}

// part is a folder that is sent.
type part struct {
	name   string
	folder *tree.Folder
}

// parts returns what is sent, the interpreter first unless the hosts have it.
func (v Venv) parts() (parts []part) {
	if v.read.Base != nil {
		parts = append(parts, part{"the interpreter", v.read.Base})
	}
	return append(parts, part{"the packages", v.read.Folder})
}

// installTime bounds the installation of contents that the host has: some GB are copied.
const installTime = time.Hour

// installVenv installs the environment on hosts. A host gets what it lacks, and nothing if it has
// installed the environment before. It refuses hosts that cannot run it.
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
	err := each(ctx, on, r.Printer.NewTally("looking for "+v.named, len(on)), func(i int, t *Target) error {
		if why := misfit(request.Python, t.Facts.Platform); why != "" {
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
	if len(failed) == 0 || slices.ContainsFunc(failed, func(t *Target) bool { return !r.mend(t, t.Err) }) || ctx.Err() != nil {
		return err
	}
	return v.fill(ctx, failed, r, ask)
}

// fill sends hosts what they lack, and has them install it.
func (v Venv) fill(ctx context.Context, on []*Target, r *Recipe, ask func(int, *Target) error) error {
	for _, p := range v.parts() {
		if err := r.sendFolder(ctx, on, p.folder, false, r.options(v.named, p.name)); err != nil {
			return err
		}
	}
	return each(ctx, on, r.Printer.NewTally("installing "+v.named, len(on)), ask)
}

// venvOf returns the environment that a host has installed for a job. dir is an empty folder of this
// machine for what has to be copied from there.
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

// take copies the contents of the environment from the host that has it.
func (v *Venv) take(ctx context.Context) (err error) {
	v.read = &venv.Venv{}
	if v.read.Folder, err = takeFolder(ctx, v.from, v.request.Manifest, filepath.Join(v.dir, "venv")); err == nil && v.request.Base != "" {
		v.read.Base, err = takeFolder(ctx, v.from, v.request.Base, filepath.Join(v.dir, "interpreter"))
	}
	return err
}

// machines are Go's names of what Python names otherwise.
var machines = map[string]string{"x86_64": "amd64", "aarch64": "arm64", "i686": "386"}

// misfit says why programs for one platform do not run on another, or "".
func misfit(p venv.Python, host envsync.Platform) string {
	system, machine, _ := strings.Cut(p.Platform, "-")
	if i := strings.LastIndexByte(machine, '-'); i >= 0 { // macosx-14.0-arm64
		machine = machine[i+1:]
	}
	if system == host.OS && cmp.Or(machines[machine], machine) == host.Arch {
		return ""
	}
	return fmt.Sprintf("the environment is for %s, and this host is %s", p, host)
}
