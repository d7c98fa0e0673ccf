package entrypoint

import (
	"cmp"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// starters are programs that run the command among their arguments. Of those that are true any
// option may have a value.
var starters = map[string]bool{"env": false, "nice": false, "ionice": false, "nohup": false, "setsid": false, "stdbuf": false, "taskset": false,
	"numactl": false, "time": false, "timeout": false, "srun": true, "uv": true, "conda": true, "mamba": true, "poetry": true, "pixi": true, "pipenv": true}

var (
	scriptFile = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\.(py|sh|bash|pl|rb|js|lua|jl|R|php|tcl)$`) })
	assignment = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`) })
	quantity   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(0x[0-9a-fA-F]+|[0-9][0-9.,-]*[smhd]?)$`) })
)

// Title returns what a job is called after its program: the script or module that an
// interpreter, a launcher such as torchrun, or a program such as env runs, without its
// extension; else the program.
func Title(program string, args []string) string {
	name := filepath.Base(program)
	if words := command(name, args); len(words) > 0 {
		return Title(words[0], words[1:])
	}
	file, module, others := target(program, args)
	if words := command(module, others); len(words) > 0 {
		return Title(words[0], words[1:])
	}
	if module != "" {
		file = strings.ReplaceAll(module, ".", "/")
	}
	file = filepath.Clean(cmp.Or(file, program))
	if base := filepath.Base(file); base == "." || base == ".." || base == "__main__" || base == "__main__.py" {
		if abs, err := filepath.Abs(file); err == nil {
			file = abs
		}
		if strings.HasPrefix(base, "__main__") {
			file = filepath.Dir(file)
		}
	}
	base := filepath.Base(file)
	return cmp.Or(scriptFile().ReplaceAllString(base, ""), base)
}

// command returns the words of the command that a starter or a launcher runs, or nil.
func command(program string, args []string) []string {
	manyOptions, starts := starters[program]
	_, launches := launchers[program]
	for i, arg := range args {
		switch {
		case !launches && !manyOptions:
		case (arg == "-m" || arg == "--module") && i+1 < len(args) && launches:
			return append([]string{"python3", "-m"}, args[i+1:]...)
		case scriptFile().MatchString(arg) || interpreters().MatchString(filepath.Base(arg)) || arg == "torchrun":
			return args[i:]
		}
	}
	if !starts {
		return nil
	}
	if manyOptions {
		args = args[slices.Index(args, "run")+1:]
	}
	valued := []string{"-u", "-C", "-S", "-s", "-k"} // of env and timeout
	for i, arg := range args {
		plain := !strings.HasPrefix(arg, "-") && !assignment().MatchString(arg) && !quantity().MatchString(arg)
		if plain && (i == 0 || !slices.Contains(valued, args[i-1])) {
			return args[i:]
		}
	}
	return nil
}
