package launcher

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

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
		c.VisibleHost = isPython(c.Program, c.Args) || innerLauncher(c.Program, c.Args) != ""
	}
	return !links, err
}

// python are names of its interpreters and scripts, shell those of shells, and runsPython
// is a script of the shell that runs Python.
var (
	python     = regexp.MustCompile(`^(python|pypy)[0-9.]*$|\.py$`)
	shell      = regexp.MustCompile(`^(ba|da|z|k)?sh$`)
	runsPython = regexp.MustCompile(`(^|[^\w.-])(python|pypy)[0-9.]*($|[^\w.-])|\w\.py($|\W)`)
)

// isPython reports whether a program runs in an interpreter of Python, or is a script that
// starts one.
func isPython(program string, args []string) bool {
	name := filepath.Base(program)
	if python.MatchString(name) {
		return true
	}
	if shell.MatchString(name) {
		script, _ := scriptOf(program, args)
		return slices.ContainsFunc(args, runsPython.MatchString) || script != "" && runsPython.MatchString(beginning(script))
	}
	text := beginning(program)
	return strings.HasPrefix(text, "#!") && runsPython.MatchString(text)
}

// maxScript is how much of a script is read to find out what it runs, in bytes.
const maxScript = 64 << 10

// beginning returns the first bytes of a file of this machine. It is empty for what is none,
// such as a command of the hosts.
func beginning(file string) string {
	if !isFile(file) {
		return ""
	}
	f, err := os.Open(file)
	if err != nil {
		return "" // Pack reports why it cannot be read
	}
	defer f.Close()                                     // only read
	text, _ := io.ReadAll(io.LimitReader(f, maxScript)) // as above
	return string(text)
}

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
