package launcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/plx-run/plx/envsync"
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
	program string // name of the program in the environment's bin, if the user named a file there; empty: none
}

// readVenv reads the folder of --venv.
func readVenv(ctx context.Context, cfg Config) (e environment, err error) {
	if cfg.Venv == "" {
		return e, nil
	}
	e.named = cfg.Venv
	if e.venv, err = venv.Read(ctx, cfg.Venv, venv.Options{Home: os.Getenv("HOME"), Cache: hashCache()}); err != nil {
		return e, causeOr(ctx, exit.Mistake(fmt.Errorf("--venv %s on this machine: %w", cfg.Venv, err), exit.Hint(err)))
	}
	e.request = e.venv.Request()
	if dir, err := filepath.Abs(filepath.Dir(cfg.Program)); err == nil && strings.Contains(cfg.Program, "/") {
		if bin, err := filepath.Abs(filepath.Join(cfg.Venv, "bin")); err == nil && dir == bin {
			e.program = filepath.Base(cfg.Program)
		}
	}
	return e, nil
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
func (e environment) lines() (lines []string) {
	for _, p := range e.parts() {
		n, size := p.folder.Files()
		lines = append(lines, fmt.Sprintf("send: %s of %s (%s, %s), what a host lacks of it", p.name, e.named, console.Count(n, "file"), console.Size(size)))
	}
	return lines
}

// part is a folder that is sent.
type part struct {
	name   string
	folder *tree.Folder
}

// parts returns what is sent, the interpreter first.
func (e environment) parts() (parts []part) {
	if e.venv != nil && e.venv.Base != nil {
		parts = append(parts, part{"the interpreter", e.venv.Base})
	}
	if e.venv != nil {
		parts = append(parts, part{"the packages", e.venv.Folder})
	}
	return parts
}

// installed returns what tasks are told, or nil.
func (e environment) installed() *protocol.Venv {
	if e.venv == nil {
		return nil
	}
	v := &protocol.Venv{Folder: e.request.Folder(), Base: e.request.BaseFolder(), Manifests: []string{e.request.Manifest}}
	if e.request.Base != "" {
		v.Manifests = append(v.Manifests, e.request.Base)
	}
	return v
}

// installAll installs the environment on the hosts of a launch, and shows that.
func (e environment) installAll(ctx context.Context, on []*hosts.AgentHost, printer *console.Printer) error {
	if e.venv == nil {
		return nil
	}
	bar := printer.NewTransfer("sending " + e.named)
	err := e.install(ctx, on, bar.Moved)
	bar.Sent(err)
	if err != nil {
		return causeOr(ctx, exit.WithHint(fmt.Errorf("--venv %s: %w", e.named, err), exit.Hint(err)))
	}
	return nil
}

// install installs the environment on hosts that have the agent's binary. A host gets
// what it lacks, and nothing if it has installed the environment before.
func (e environment) install(ctx context.Context, on []*hosts.AgentHost, progress envsync.Progress) error {
	if e.venv == nil {
		return nil
	}
	ready := make([]bool, len(on))
	err := together(ctx, on, func(i int, a *hosts.AgentHost) (err error) {
		if why := misfit(e.venv.Python, a.Facts.Platform); why != "" {
			return errors.New(why)
		}
		ready[i], err = hosts.Install(ctx, a, e.request)
		return err
	})
	if err != nil {
		return exit.WithHint(err, "install the same version of Python on all hosts, or make the environment with uv's own Python, which is sent too: see docs/torch.md")
	}
	var lacking []*hosts.AgentHost
	for i, a := range on {
		if !ready[i] {
			lacking = append(lacking, a)
		}
	}
	if len(lacking) == 0 {
		return nil
	}
	for _, p := range e.parts() {
		named := func(host, _ string, sent, total int64) {
			if progress != nil {
				progress(host, p.name, sent, total)
			}
		}
		if err := hosts.SendFolder(ctx, lacking, p.folder, named); err != nil {
			return err
		}
	}
	stored := e.request
	stored.Stored = true
	return together(ctx, lacking, func(_ int, a *hosts.AgentHost) error {
		_, err := hosts.Install(ctx, a, stored)
		return err
	})
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

// together calls work for every host. It returns equal errors once, with the names of
// their hosts.
func together(ctx context.Context, on []*hosts.AgentHost, work func(int, *hosts.AgentHost) error) error {
	failed := make([]error, len(on))
	_ = hosts.Each(ctx, on, func(i int, a *hosts.AgentHost) error { // the errors are in failed
		failed[i] = work(i, a)
		return nil
	})
	names := map[string][]string{}
	var errs []error
	for i, err := range failed {
		if err == nil {
			continue
		}
		if names[err.Error()] == nil {
			errs = append(errs, err)
		}
		names[err.Error()] = append(names[err.Error()], on[i].Name())
	}
	for i, err := range errs {
		errs[i] = fmt.Errorf("%s: %w", listed(names[err.Error()]), err)
	}
	return cmp.Or(context.Cause(ctx), errors.Join(errs...))
}

// listed names hosts.
func listed(names []string) string {
	if len(names) == 1 {
		return "host " + names[0]
	}
	return "hosts " + console.Names(names)
}
