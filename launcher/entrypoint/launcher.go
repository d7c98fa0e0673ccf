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

// launchers are programs and Python modules that start one process per device. plx launch
// takes the place of those that are true. With the others each worker may have reasons to
// start processes.
var launchers = sync.OnceValue(func() map[string]bool {
	return map[string]bool{"torchrun": true, "torch.distributed.run": true, "torch.distributed.launch": true,
		"accelerate": true, "accelerate.commands.launch": true, "deepspeed": false, "mpirun": false, "mpiexec": false, "horovodrun": false}
})

// launcher returns the launcher that the user wants to run in each task, or "".
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

// startedByPython returns the name of the module or script that an interpreter runs; or "".
func startedByPython(args []string) string {
	for i, arg := range args {
		module, joined := strings.CutPrefix(arg, "-m")
		switch {
		case joined && module != "":
			return module
		case joined && i+1 < len(args):
			return args[i+1]
		case !strings.HasPrefix(arg, "-") && (i == 0 || !slices.Contains(withValue, args[i-1])):
			return filepath.Base(arg) // such as .venv/bin/torchrun
		}
	}
	return ""
}

// checkLauncher refuses a launcher as the program that plx launch takes the place of.
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

// withoutLauncher returns the command that a launcher is told to run, as far as that can
// be seen: a script, or a module of Python.
func withoutLauncher(inner string, args []string) string {
	if i := slices.Index(args, inner); i >= 0 { // python3 -m torch.distributed.run
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

// shellWords adds words to a command as a shell takes them.
func shellWords(command string, words []string) string {
	for _, w := range words {
		if w == "" || strings.ContainsAny(w, " \t\n'\"$`\\*?[]();&|<>#~!{}") {
			w = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
		command += " " + w
	}
	return command
}

// launcherCall matches a call of a launcher in a line of a shell script.
var launcherCall = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?:^|[\s;&|("'/=])(torchrun|torch\.distributed\.(?:run|launch)|accelerate(?:\.commands\.|\s+)launch|deepspeed\s.*\.py|(?:mpirun|mpiexec|horovodrun)\s+-)(?:["'\s\w]|$)`)
})

// launcher returns which launcher the program is, or starts and where; or "".
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
