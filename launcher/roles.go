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
	"sync"

	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/artifacts"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/placement"
)

// decideByProgram reports whether the program is foreign: it does not link plx's trainer.
// With AutoServers the job then has no servers. With AutoVisible a program that chooses
// its device by LOCAL_RANK, as those for torchrun do, sees the devices of its whole host.
func decideByProgram(ctx context.Context, c *Config) (foreign bool, err error) {
	links, err := artifacts.LinksTrainer(ctx, c.Program)
	if c.AutoServers {
		c.NoServers = !links
	}
	if c.AutoVisible {
		_, inScript := launcherInScript(*c)
		c.VisibleHost = choosesDevice(*c) || innerLauncher(c.Program, c.Args) != "" || inScript != ""
	}
	return !links, err
}

// byLocalRank are words of a program that chooses its device by LOCAL_RANK, or leaves that
// to a library that does.
var byLocalRank = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)\b(local_rank|torch|lightning|accelerate|transformers|deepspeed)\b`)
})

// ownChoice is in a program that knows which devices it sees.
const ownChoice = "CUDA_VISIBLE_DEVICES"

// choosesDevice reports whether the text of the program says that it chooses its device by
// LOCAL_RANK. Text is a script of this machine, a line for an interpreter's -c, and the
// scripts of Python that either names.
func choosesDevice(c Config) bool {
	text := programText(c)
	for _, script := range pythonScript().FindAllString(text, maxScripts) {
		text += beginning(c, script)
	}
	return byLocalRank().MatchString(text) && !strings.Contains(text, ownChoice)
}

// python are names of its interpreters and scripts, pythonScript are scripts in a line of
// a shell.
var (
	python       = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(python|pypy)[0-9.]*$|\.py$`) })
	pythonScript = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[\w./-]+\.py\b`) })
)

// maxScripts is how many scripts of Python a line of a shell may name.
const maxScripts = 10

// programText is the text of the program, as far as it is one of this machine.
func programText(c Config) string {
	if !interpreters().MatchString(filepath.Base(c.Program)) {
		if text := beginning(c, c.Program); strings.HasPrefix(text, "#!") || strings.HasSuffix(c.Program, ".py") {
			return text
		}
		return ""
	}
	script, _ := scriptOf(c.Program, c.Args)
	if script == "" { // -c
		return strings.Join(c.Args, " ")
	}
	return beginning(c, script)
}

// maxScript is how much of a script is read to find out what it runs, in bytes.
const maxScript = 64 << 10

// beginning returns the first bytes of a file of this machine, in the working directory of
// the job if it is not in the present one. It is empty for what is none, such as a command
// of the hosts.
func beginning(c Config, file string) string {
	if !isFile(file) {
		file = filepath.Join(c.Workdir, file)
	}
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
	if i := slices.Index(args, "-m"); python().MatchString(name) && i >= 0 && i+1 < len(args) {
		name = args[i+1]
	}
	if !innerLaunchers[name] {
		return ""
	}
	return name
}

// replaced are launchers that plx launch takes the place of, by their names as programs or
// modules. With others, such as mpirun, each worker may have reasons to start processes.
var replaced = map[string]bool{"torchrun": true, "torch.distributed.run": true, "torch.distributed.launch": true,
	"accelerate": true, "accelerate.commands.launch": true}

// checkLauncher refuses a launcher as the program that plx launch takes the place of.
func (c *Config) checkLauncher() error {
	inner := innerLauncher(c.Program, c.Args)
	if !replaced[inner] || inner == "accelerate" && !slices.Contains(c.Args[:min(1, len(c.Args))], "launch") {
		return nil
	}
	return exit.Mistake(fmt.Errorf("%s would start processes of its own in each worker: plx starts one worker per device itself", inner),
		"leave %s and its options out: plx launch [FLAGS] %s", inner, withoutLauncher(inner, c.Args))
}

// withoutLauncher returns the command that a launcher is told to run, as far as that can
// be seen: a script, or a module of Python.
func withoutLauncher(inner string, args []string) string {
	if i := slices.Index(args, inner); i >= 0 { // python3 -m torch.distributed.run
		args = args[i+1:]
	}
	for i, arg := range args {
		switch {
		case strings.HasSuffix(arg, ".py"):
			return shellWords(append([]string{"python3"}, args[i:]...))
		case (arg == "-m" || arg == "--module") && i+1 < len(args):
			return shellWords(append([]string{"python3", "-m"}, args[i+1:]...))
		}
	}
	return "python3 SCRIPT"
}

// shellWords joins words as a shell takes them.
func shellWords(words []string) string {
	var quoted []string
	for _, w := range words {
		if w == "" || strings.ContainsAny(w, " \t\n'\"$`\\*?[]();&|<>#~!{}") {
			w = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
		quoted = append(quoted, w)
	}
	return strings.Join(quoted, " ")
}

// launcherCall matches a call of a launcher in a line of a shell script.
var launcherCall = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?:^|[\s;&|("'/=])(torchrun|torch\.distributed\.(?:run|launch)|accelerate(?:\.commands\.|\s+)launch|deepspeed\s.*\.py|(?:mpirun|mpiexec|horovodrun)\s+-)(?:["'\s\w]|$)`)
})

// launcherInScript returns which launcher a script for a shell starts, and where; or "".
func launcherInScript(c Config) (where, inner string) {
	text, where := programText(c), "the line for "+c.Program
	if script, _ := scriptOf(c.Program, c.Args); !isShell(c.Program) {
		text, where = beginning(c, c.Program), c.Program
		first, _, _ := strings.Cut(text, "\n")
		if !strings.HasSuffix(c.Program, ".sh") && !strings.HasSuffix(strings.TrimSpace(first), "sh") {
			return "", ""
		}
	} else if script != "" {
		where = script
	}
	number := 0
	for line := range strings.Lines(text) {
		number++
		code := strings.TrimSpace(line)
		if strings.HasPrefix(code, "#") || strings.HasPrefix(code, "echo ") {
			continue
		}
		code, _, _ = strings.Cut(code, " #")
		if m := launcherCall().FindStringSubmatch(code); m != nil {
			if isFile(where) {
				where = fmt.Sprintf("%s:%d", where, number)
			}
			return where, strings.Fields(m[1])[0]
		}
	}
	return "", ""
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
	if where, inner := launcherInScript(c); inner != "" {
		notes = append(notes, fmt.Sprintf("note: %s starts %s in each worker, which starts processes of its own: plx starts one worker per device itself, so leave %s and its options out", where, inner, inner))
	}
	if c.TLS {
		notes = append(notes, fmt.Sprintf("note: --tls does not encrypt what the tasks of %s send each other (NCCL, Gloo, MPI): it covers plx's trainer and plx's own connections", c.Program))
	}
	if c.Fetch != "" && len(c.outputs) == 0 {
		notes = append(notes, fmt.Sprintf("note: --fetch %s brings nothing: %s does not link plx's trainer, so it has no checkpoints, and no --output names files that it makes, as --output '*.pt' does", c.Fetch, c.Program))
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
