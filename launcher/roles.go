package launcher

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/artifacts"
	"github.com/plx-run/plx/launcher/placement"
)

// decideByProgram reports whether the program is foreign: it does not link plx's trainer.
// With AutoServers the job then has no servers. With AutoVisible a program of Python sees
// the devices of its whole host, because programs for torchrun choose theirs by LOCAL_RANK.
func decideByProgram(ctx context.Context, c *Config) (foreign bool, err error) {
	links, err := artifacts.LinksTrainer(ctx, c.Program)
	if c.AutoServers {
		c.NoServers = !links
	}
	if c.AutoVisible {
		c.VisibleHost = isPython(c.Program) || innerLauncher(c.Program, c.Args) != ""
	}
	return !links, err
}

// python are names of its interpreters and scripts, and shebang is the first line of a
// script.
var (
	python  = regexp.MustCompile(`^(python|pypy)[0-9.]*$|\.py$`)
	shebang = regexp.MustCompile(`^#![^\n]*[/ ](python|pypy)[0-9.]*[ \r\n]`)
)

// isPython reports whether a program runs in an interpreter of Python.
func isPython(program string) bool {
	if python.MatchString(filepath.Base(program)) {
		return true
	}
	f, err := os.Open(program)
	if err != nil {
		return false // a command of the hosts, or Pack reports why it cannot be read
	}
	defer f.Close()                                        // only read
	head, _ := io.ReadAll(io.LimitReader(f, maxFirstLine)) // a folder has no first line
	return shebang.Match(head)
}

// maxFirstLine is the kernel's bound on the first line of a script, in bytes.
const maxFirstLine = 256

// innerLaunchers are programs and Python modules that start one process per device.
var innerLaunchers = map[string]bool{"torchrun": true, "torch.distributed.run": true, "torch.distributed.launch": true,
	"accelerate": true, "accelerate.commands.launch": true, "deepspeed": true, "mpirun": true, "mpiexec": true, "horovodrun": true}

// innerLauncher returns the launcher that the user wants to run in each task, or "".
func innerLauncher(program string, args []string) string {
	name := filepath.Base(program)
	if i := slices.Index(args, "-m"); python.MatchString(name) && i >= 0 && i+1 < len(args) {
		name = args[i+1]
	}
	if !innerLaunchers[name] {
		return ""
	}
	return name
}

// foreignNotes describes what the user of a foreign program may not expect of a
// placement.
func foreignNotes(c Config, p placement.Placement, machines []placement.Machine) (notes []string) {
	if p.Servers > 0 {
		notes = append(notes, fmt.Sprintf("%s does not link plx's trainer: on servers it gets TF_CONFIG; RANK, WORLD_SIZE, MASTER_ADDR and torch's other variables are set for workers only", c.Program))
	}
	if inner := innerLauncher(c.Program, c.Args); inner != "" {
		notes = append(notes, fmt.Sprintf("note: each worker runs %s, which starts processes of its own: plx starts one worker per device itself, so leave %s and its options out", inner, inner))
	}
	if !c.AutoServers {
		return notes
	}
	for _, m := range machines {
		if m.Devices.Kind == hostfile.ServerOnly {
			notes = append(notes, fmt.Sprintf("host %s gets no task: %s does not link plx's trainer, so the job has no servers (--ps all)", m.Name, c.Program))
		}
	}
	return notes
}
