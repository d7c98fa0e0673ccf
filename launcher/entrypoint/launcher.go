package entrypoint

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/plx-run/plx/launcher/exit"
)

// launchers are programs and Python modules that start one process per device.
// The value true means that plx launch replaces the launcher, so plx rejects
// it as the program. The value false means that plx runs the launcher in each
// worker, because the user may have reasons for that.
var launchers = sync.OnceValue(func() map[string]bool {
	return map[string]bool{"torchrun": true, "torch.distributed.run": true, "torch.distributed.launch": true,
		"accelerate": true, "accelerate.commands.launch": true, "deepspeed": false, "mpirun": false, "mpiexec": false, "horovodrun": false}
})

// launcher returns the name of the launcher, such as torchrun, that the user
// wants to run in each task. It returns "" if the program is no launcher.
func (s Source) launcher() string {
	s, _ = s.inner()
	name := filepath.Base(s.Program)
	if python().MatchString(name) {
		name = startedByPython(s.Args)
	}
	if _, is := launchers()[name]; !is {
		return ""
	}
	return name
}

// startedByPython returns the name of the module or script that a Python
// interpreter with these arguments runs, or "".
func startedByPython(args []string) string {
	for i, arg := range args {
		module, joined := strings.CutPrefix(arg, "-m")
		switch {
		case joined && module != "":
			return module
		case joined && i+1 < len(args):
			return args[i+1]
		case !strings.HasPrefix(arg, "-") && (i == 0 || !slices.Contains(withValue, args[i-1])):
			return filepath.Base(arg) // the name is, for example, "torchrun" for .venv/bin/torchrun
		}
	}
	return ""
}

// checkLauncher returns an error if the program is a launcher that plx launch
// replaces, such as torchrun. The hint is the same command without the
// launcher.
func (s Source) checkLauncher() error {
	inner := s.launcher()
	in, before := s.inner()
	if !launchers()[inner] || inner == "accelerate" && !slices.Contains(in.Args, "launch") {
		return nil
	}
	out, flags := inner, "[FLAGS]"
	kept := ""
	if manager, venv := s.manager(); manager != "" {
		out, flags = manager+", "+inner, flags+" "+venv
	} else if before > 0 {
		kept = shellWords(s.Program, s.Args[:before-1]) + " "
	}
	if root := in.OwnVenv(); root != "" && s.Venv == "" {
		flags += " --venv " + root
	}
	return exit.Mistake(fmt.Errorf("%s would start processes of its own in each worker: plx starts one worker per device itself", inner),
		"leave %s and its options out: plx launch %s %s%s", out, flags, kept, withoutLauncher(inner, in.Args))
}

// withoutLauncher returns the command that a launcher with these arguments
// would run: a script or a Python module. If it finds no script and no module,
// it returns "python3 SCRIPT".
func withoutLauncher(inner string, args []string) string {
	if i := slices.Index(args, inner); i >= 0 { // an argument names the launcher, as in python3 -m torch.distributed.run
		args = args[i+1:]
	}
	for i, arg := range args {
		switch {
		case strings.HasSuffix(arg, ".py"):
			return shellWords("python3", args[i:])
		case (arg == "-m" || arg == "--module") && i+1 < len(args):
			return shellWords("python3 -m", args[i+1:])
		}
	}
	return "python3 SCRIPT"
}

// shellWords appends words to a command line, and quotes them for a shell if
// necessary.
func shellWords(command string, words []string) string {
	for _, w := range words {
		if w == "" || strings.ContainsAny(w, " \t\n'\"$`\\*?[]();&|<>#~!{}") {
			w = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
		command += " " + w
	}
	return command
}

// launcherCall matches a line of a shell script that calls a launcher such as
// torchrun.
var launcherCall = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?:^|[\s;&|("'/=])(torchrun|torch\.distributed\.(?:run|launch)|accelerate(?:\.commands\.|\s+)launch|deepspeed\s.*\.py|(?:mpirun|mpiexec|horovodrun)\s+-)(?:["'\s\w]|$)`)
})

// launcher returns the name of the launcher that the program is, or that the
// program's shell script starts. where is the script and line of that call.
// Both are "" if no launcher was found.
func (c code) launcher() (name, where string) {
	if inner := c.src.launcher(); inner != "" || !c.shell {
		return inner, ""
	}
	number := 0
	for line := range strings.Lines(c.text) {
		number++
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") || strings.HasPrefix(line, "echo ") {
			continue
		}
		line, _, _ = strings.Cut(line, " #")
		if m := launcherCall().FindStringSubmatch(line); m != nil {
			where = c.where
			if isFile(where) {
				where = fmt.Sprintf("%s:%d", where, number)
			}
			return strings.Fields(m[1])[0], where
		}
	}
	return "", ""
}
