package provision

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/plx-run/plx/envsync/tree"
	"github.com/plx-run/plx/envsync/venv"
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
		return v, causeOr(ctx, exit.Mistake(fmt.Errorf("--venv %s on this machine: %w", dir, err), "--venv names the folder of an environment that works here: python3 -m venv .venv makes one"))
	}
	v.request = v.read.Request()
	printer.Lines(v.notes())
	return v, nil
}

// realFolder is a folder of this machine, absolute and without links; "" if there is none.
func realFolder(named string) string {
	if named == "" {
		return ""
	}
	abs, err := filepath.Abs(named)
	if err != nil {
		return ""
	}
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return "" // reading the working directory says why
	}
	return real
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

// notes are lines for the user about what hosts will miss.
func (v Venv) notes() (lines []string) {
	if v.read != nil {
		for _, note := range v.read.Notes {
			lines = append(lines, fmt.Sprintf("note: --venv %s: %s", v.named, note))
		}
	}
	return lines
}

// Lines tells what is sent.
func (v Venv) Lines(on int) (lines []string) {
	if v.read == nil {
		return nil
	}
	for _, p := range v.parts() {
		n, size := p.folder.Files()
		lines = append(lines, fmt.Sprintf("send: %s of %s: %s, at most %s", p.name, v.named, console.Count(n, "file"), ToHosts(size, on)))
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

// installAll is install that shows the progress.
func (v Venv) installAll(ctx context.Context, on []*hosts.AgentHost, how Sending) error {
	if v.read == nil && v.from == nil {
		return nil
	}
	how.Bar = how.Printer.NewTransfer("sending " + v.named)
	err := v.install(ctx, on, how)
	how.Bar.Sent(err)
	if err != nil {
		flag := "--venv "
		if v.from != nil {
			flag = ""
		}
		return causeOr(ctx, exit.WithHint(fmt.Errorf("%s%s: %w", flag, v.named, err), exit.Hint(err)))
	}
	return nil
}

// install installs the environment on hosts that have the agent's binary. A host gets what it
// lacks, and nothing if it has installed the environment before.
func (v Venv) install(ctx context.Context, on []*hosts.AgentHost, how Sending) error {
	if v.read == nil && v.from == nil {
		return nil
	}
	lacking, err := lackingVenv(ctx, on, v.request)
	if err == nil && len(lacking) > 0 && v.read == nil {
		err = v.take(ctx)
	}
	if err != nil || len(lacking) == 0 {
		return err
	}
	for _, p := range v.parts() {
		if err := sendFolder(ctx, lacking, p.folder, p.name, how); err != nil {
			return err
		}
	}
	return finishVenv(ctx, lacking, v.request)
}
