package entrypoint

import (
	"cmp"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
)

var scriptFile = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\.(py|sh|bash|pl|rb|js|lua|jl|R|php|tcl)$`) })

// Title returns the name of a job, derived from its program. If the program is
// an interpreter, a launcher such as torchrun or a wrapper such as env, the
// name is that of the script or module which it runs, without the extension.
// For any other program, it is the program's own name.
func Title(program string, args []string) string {
	in, _ := Source{Program: program, Args: args}.inner()
	program, args = in.Program, in.Args
	if words := launched(filepath.Base(program), args); len(words) > 0 {
		return Title(words[0], words[1:])
	}
	file, module, others := target(program, args)
	if words := launched(module, others); len(words) > 0 {
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

// launched returns the command that a launcher such as torchrun starts,
// according to its arguments. It returns nil if launcher is no launcher, or if
// its arguments name no command.
func launched(launcher string, args []string) []string {
	if _, known := launchers()[launcher]; !known {
		return nil
	}
	for i, arg := range args {
		switch {
		case (arg == "-m" || arg == "--module") && i+1 < len(args):
			return append([]string{"python3", "-m"}, args[i+1:]...)
		case scriptFile().MatchString(arg) || interpreters().MatchString(filepath.Base(arg)) || arg == "torchrun":
			return args[i:]
		}
	}
	return nil
}
