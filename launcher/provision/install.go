package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/envsync/tree"
	"github.com/plx-run/plx/envsync/venv"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
)

// installTime bounds the installation of contents that the host has: some GB are copied.
const installTime = time.Hour

// take copies the contents of the environment from the host that has it.
func (v *Venv) take(ctx context.Context) (err error) {
	v.read = &venv.Venv{}
	if v.read.Folder, err = takeInto(ctx, v.from, v.request.Manifest, filepath.Join(v.dir, "venv")); err == nil && v.request.Base != "" {
		v.read.Base, err = takeInto(ctx, v.from, v.request.Base, filepath.Join(v.dir, "interpreter"))
	}
	return err
}

// takeInto copies the folder of a manifest from a host into dir, which it makes.
func takeInto(ctx context.Context, from *hosts.AgentHost, manifest, dir string) (*tree.Folder, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	return takeFolder(ctx, from, manifest, dir)
}

// lackingVenv returns the hosts that have not installed an environment. It refuses hosts
// that cannot run it.
func lackingVenv(ctx context.Context, on []*hosts.AgentHost, r venv.Request) (lacking []*hosts.AgentHost, err error) {
	ready := make([]bool, len(on))
	err = hosts.Together(ctx, on, func(i int, a *hosts.AgentHost) (err error) {
		if why := misfit(r.Python, a.Facts.Platform); why != "" {
			return errors.New(why)
		}
		ready[i], err = hosts.Call[bool](ctx, a, installTime, protocol.DoVenv, r)
		return err
	})
	if err != nil {
		return nil, exit.WithHint(err, "install the same version of Python on all hosts, or make the environment with uv's own Python, which is sent too: see docs/environment.md")
	}
	for i, a := range on {
		if !ready[i] {
			lacking = append(lacking, a)
		}
	}
	return lacking, nil
}

// finishVenv installs an environment whose contents the hosts have.
func finishVenv(ctx context.Context, on []*hosts.AgentHost, r venv.Request) error {
	r.Stored = true
	return hosts.Together(ctx, on, func(_ int, a *hosts.AgentHost) error {
		_, err := hosts.Call[bool](ctx, a, installTime, protocol.DoVenv, r)
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
