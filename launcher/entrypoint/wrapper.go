package entrypoint

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// wrapper describes a program such as nice or "uv run", which runs the command
// that its arguments name.
type wrapper struct {
	sub    string // subcommand before the command, such as "run"; "" if the program has no subcommand
	values string // options whose value is the next argument; options with numeric values need no entry, see numeric
	// A wrapper such as "uv run" selects a Python environment on this machine.
	// venv is the folder of this environment, as a user would write it in
	// plx's option --venv: plx then copies the environment to the hosts. It is
	// "" for all other wrappers.
	venv string
}

var wrappers = sync.OnceValue(func() map[string]wrapper {
	return map[string]wrapper{
		"env": {values: "-u --unset -C --chdir"}, "nohup": {}, "setsid": {}, "nice": {}, "time": {values: "-o --output -f --format"},
		"numactl": {values: "-N --cpunodebind -m --membind -i --interleave -p --preferred -C --physcpubind -w --weighted-interleave"},
		"taskset": {}, "stdbuf": {values: "-i --input -o --output -e --error"}, "timeout": {values: "-s --signal"}, "chrt": {},
		"ionice": {values: "-c --class"}, "prlimit": {}, "unbuffer": {}, "catchsegv": {}, "xvfb-run": {values: "-s --server-args -e --error-file"},
		"strace": {values: "-o -e"}, "valgrind": {}, "nsys": {sub: "profile", values: "-o --output -t --trace -s --sample -c --capture-range"},
		"ncu": {values: "-o --export -k --kernel-name --set"}, "py-spy": {sub: "record", values: "-o --output -f --format"},

		"uv":  {sub: "run", venv: ".venv", values: "--with --with-editable --with-requirements --extra --group --no-group --only-group --package --project --directory --python -p --env-file --index --default-index --index-url --config-file --color --cache-dir --link-mode --refresh-package"},
		"pdm": {sub: "run", venv: ".venv", values: "-p --project"}, "rye": {sub: "run", venv: ".venv", values: "--pyproject"},
		"poetry": {sub: "run", venv: `"$(poetry env info -p)"`, values: "-P --project -C --directory"},
		"pipenv": {sub: "run", venv: `"$(pipenv --venv)"`, values: "--python"},
		"hatch":  {sub: "run", venv: `"$(hatch env find)"`, values: "-e --env -p --project"},
		"conda":  {sub: "run", venv: "DIR", values: condaOptions}, "mamba": {sub: "run", venv: "DIR", values: condaOptions},
		"micromamba": {sub: "run", venv: "DIR", values: condaOptions}, "pixi": {sub: "run", venv: "DIR", values: "-e --environment --manifest-path"},
	}
})

const condaOptions = "-n --name -p --prefix --cwd -a --attach"

// numeric matches numeric values of options, and the number that taskset,
// timeout and chrt expect before the command.
var numeric = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(0x[0-9a-fA-F,]+|[0-9][0-9.,:+-]*[smhd]?|all)$`)
})

// inner returns the command that a chain of wrappers runs, such as "python3
// x.py" in "env X=1 numactl -N 0 python3 x.py". before is the number of
// arguments before that command. If s has no wrapper, inner returns s and 0.
func (s Source) inner() (in Source, before int) {
	for in = s; ; {
		i := wrapped(path.Base(in.Program), in.Args)
		if i < 0 {
			return in, before
		}
		in.Program, in.Args = in.Args[i], in.Args[i+1:]
		before += i + 1
	}
}

// wrapped returns the index in args of the command that a wrapper runs. It
// returns -1 if program is no wrapper, or if args name no command.
func wrapped(program string, args []string) int {
	w, known := wrappers()[program]
	if !known {
		return -1
	}
	first := 0
	if w.sub != "" {
		first = slices.Index(args, w.sub) + 1
		if first == 0 {
			return -1
		}
	}
	values := strings.Fields(w.values)
	for i := first; i < len(args); i++ {
		switch arg := args[i]; {
		case slices.Contains(values, arg):
			i++
		case arg != "" && !strings.HasPrefix(arg, "-") && !numeric().MatchString(arg) && !(program == "env" && strings.Contains(arg, "=")):
			return i
		}
	}
	return -1
}

// manager returns the first wrapper of s that selects a Python environment on
// each host, such as "uv run". flag is the option of plx launch that sends the
// local environment instead. Both are "" if there is no such wrapper.
func (s Source) manager() (name, flag string) {
	for in := s; ; {
		w := wrappers()[path.Base(in.Program)]
		i := wrapped(path.Base(in.Program), in.Args)
		if i < 0 {
			return "", ""
		}
		if w.venv != "" {
			return path.Base(in.Program) + " " + w.sub, "--venv " + w.venv
		}
		in.Program, in.Args = in.Args[i], in.Args[i+1:]
	}
}

// noteManager returns a note if a wrapper such as "uv run" selects a Python
// environment on each host.
func (s Source) noteManager() []string {
	name, flag := s.manager()
	if name == "" {
		return nil
	}
	in, _ := s.inner()
	command := shellWords(in.Program, in.Args)
	if strings.HasSuffix(in.Program, ".py") {
		command = "python3 " + command
	}
	tool, _, _ := strings.Cut(name, " ")
	what := fmt.Sprintf("note: %s uses an environment on each host, which must have %s", name, tool)
	switch {
	case s.Venv != "":
		return []string{fmt.Sprintf("%s, and not that of --venv: leave %s out: %s", what, name, command)}
	case flag == "--venv DIR":
		return []string{fmt.Sprintf("%s; to send a virtual environment of this machine: plx launch %s %s; for one of conda see docs/environment.md", what, flag, command)}
	}
	return []string{fmt.Sprintf("%s; to send the one of this machine: plx launch %s %s", what, flag, command)}
}
