package launcher

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

// environment is the virtual environment of --venv as it was read. The zero value is
// none.
type environment struct {
	named   string // as the user named it
	venv    *venv.Venv
	request venv.Request
}

// readVenv reads the folder of --venv.
func readVenv(ctx context.Context, cfg Config, printer *console.Printer) (e environment, err error) {
	if cfg.Venv == "" {
		return e, nil
	}
	e.named = cfg.Venv
	count := new(tree.Count)
	defer watchReading(printer, "--venv "+cfg.Venv, count)()
	if e.venv, err = venv.Read(ctx, cfg.Venv, venv.Options{Home: os.Getenv("HOME"), Cache: hashCache(), Count: count, Workdir: realFolder(cfg.Workdir)}); err != nil {
		return e, causeOr(ctx, exit.Mistake(fmt.Errorf("--venv %s on this machine: %w", cfg.Venv, err), "--venv names the folder of an environment that works here: python3 -m venv .venv makes one"))
	}
	e.request = e.venv.Request()
	printer.Lines(e.notes())
	return e, nil
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

// importing adds to the tasks' variables where Python finds packages that were installed in
// place from the working directory. Python takes the paths from there.
func (e environment) importing(environ []string) []string {
	if e.venv == nil || len(e.venv.InPlace) == 0 {
		return environ
	}
	const name = "PYTHONPATH="
	value := name + strings.Join(e.venv.InPlace, ":")
	for _, v := range slices.Backward(environ) {
		if users, found := strings.CutPrefix(v, name); found && users != "" {
			value += ":" + users
			break
		}
	}
	return append(slices.Clone(environ), value)
}

// notes are lines for the user about what hosts will miss.
func (e environment) notes() (lines []string) {
	if e.venv != nil {
		for _, note := range e.venv.Notes {
			lines = append(lines, fmt.Sprintf("note: --venv %s: %s", e.named, note))
		}
	}
	return lines
}

// lines tells what is sent.
func (e environment) lines(on int) (lines []string) {
	if e.venv == nil {
		return nil
	}
	for _, p := range (hosts.Venv{Base: e.venv.Base, Folder: e.venv.Folder}).Parts() {
		n, size := p.Folder.Files()
		lines = append(lines, fmt.Sprintf("send: %s of %s: %s, at most %s", p.Name, e.named, console.Count(n, "file"), toHosts(size, on)))
	}
	return lines
}

// installed returns what tasks are told, or nil.
func (e environment) installed() *protocol.Venv {
	if e.venv == nil {
		return nil
	}
	request, _ := json.Marshal(e.request) // it has texts only
	v := &protocol.Venv{Folder: e.request.Folder(), Base: e.request.BaseFolder(), Manifests: []string{e.request.Manifest}, Request: request}
	if e.request.Base != "" {
		v.Manifests = append(v.Manifests, e.request.Base)
	}
	return v
}

// installAll installs the environment on the hosts of a launch, and shows that.
func (e environment) installAll(ctx context.Context, on []*hosts.AgentHost, how hosts.Sending) error {
	if e.venv == nil {
		return nil
	}
	how.Bar = how.Printer.NewTransfer("sending " + e.named)
	err := e.install(ctx, on, how)
	how.Bar.Sent(err)
	if err != nil {
		return causeOr(ctx, exit.WithHint(fmt.Errorf("--venv %s: %w", e.named, err), exit.Hint(err)))
	}
	return nil
}

// install installs the environment on hosts that have the agent's binary.
func (e environment) install(ctx context.Context, on []*hosts.AgentHost, how hosts.Sending) error {
	if e.venv == nil {
		return nil
	}
	return hosts.InstallVenv(ctx, on, hosts.Venv{Request: e.request, Base: e.venv.Base, Folder: e.venv.Folder}, how)
}
