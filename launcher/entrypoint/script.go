package entrypoint

import (
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Patterns for names of programs and files. interpreters matches programs
// whose first argument without a dash is a script. interpreter matches only
// Python interpreters. python matches Python interpreters and scripts.
// pythonScript finds the Python scripts that a shell line names.
var (
	interpreters = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(python|pypy|perl|ruby|node|lua|julia|Rscript|php|tclsh)[0-9.]*$|^(ba|da|z|k)?sh$`)
	})
	interpreter  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(python|pypy)[0-9.]*$`) })
	python       = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(python|pypy)[0-9.]*$|\.py$`) })
	pythonScript = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[\w./-]+\.py\b`) })
)

// maxScripts is the maximum number of Python scripts of a shell line that plx
// examines. maxScript is the maximum number of bytes that it reads of each
// script.
const (
	maxScripts = 10
	maxScript  = 64 << 10
)

// isShell reports whether a program is a shell, such as bash or /bin/sh.
func isShell(program string) bool {
	name := path.Base(program)
	return interpreters().MatchString(name) && strings.HasSuffix(name, "sh") && name != "tclsh"
}

// withValue are options of interpreters whose value is the next argument.
var withValue = []string{"-W", "-X", "--check-hash-based-pycs", "-o", "-O", "--init-file", "--rcfile"}

// withoutScript reports whether arg makes the interpreter run no script file.
// The option -c does so in most interpreters, -s in shells but not in Python,
// and -e in perl and ruby but not in shells.
func withoutScript(interpreter, arg string) bool {
	switch arg {
	case "-", "-c":
		return true
	case "-s":
		return strings.HasSuffix(interpreter, "sh")
	case "-e", "-r", "--eval":
		return !strings.HasSuffix(interpreter, "sh") && !strings.HasPrefix(interpreter, "py")
	}
	return false
}

// script returns the file that the interpreter runs, and the arguments after
// the file. For a Python module, file is the module's file. If the interpreter
// runs no file, file is "".
func (s Source) script() (file string, others []string) {
	s, _ = s.inner()
	file, module, others := target(s.Program, s.Args)
	if module != "" {
		file = moduleFile(module)
	}
	return file, others
}

// target returns the file or the Python module that an interpreter with these
// arguments runs, and the arguments after that. If program is no interpreter,
// it returns all arguments in others.
func target(program string, args []string) (file, module string, others []string) {
	interpreter := path.Base(program)
	if !interpreters().MatchString(interpreter) {
		return "", "", args
	}
	for i := 0; i < len(args); i++ {
		switch arg := args[i]; {
		case strings.HasPrefix(interpreter, "py") && arg == "-m" && i+1 < len(args):
			return "", args[i+1], args[i+2:]
		case withoutScript(interpreter, arg):
			return "", "", args[i+1:]
		case arg == "--" && i+1 < len(args):
			return args[i+1], "", args[i+2:]
		case slices.Contains(withValue, arg):
			i++
		case !strings.HasPrefix(arg, "-"):
			return arg, "", args[i+1:]
		}
	}
	return "", "", nil
}

// moduleFile returns the file of a Python module in the current folder, or ""
// if there is none.
func moduleFile(module string) string {
	base := strings.ReplaceAll(module, ".", "/")
	for _, file := range []string{base + ".py", base + "/__main__.py"} {
		if isFile(file) {
			return file
		}
	}
	return ""
}

// shellLine returns the value of the option -c if the program is a shell.
func (s Source) shellLine() (line string, given bool) {
	s, _ = s.inner()
	at := slices.Index(s.Args, "-c")
	if at < 0 || at+1 >= len(s.Args) || !isShell(s.Program) {
		return "", false
	}
	return s.Args[at+1], true
}

// code is the source code that the tasks run, as far as plx can read it on
// this machine.
type code struct {
	src   Source
	text  string // text of a local script, or the interpreter's arguments if there is no script; "" if no code can be read
	where string // path of the script, or a description of the source for messages
	shell bool   // true if text is shell code
}

func (s Source) code() code {
	s, _ = s.inner()
	if !interpreters().MatchString(filepath.Base(s.Program)) {
		c := code{src: s, text: s.read(s.Program), where: s.Program}
		first, _, _ := strings.Cut(c.text, "\n")
		c.shell = strings.HasSuffix(s.Program, ".sh") || strings.HasPrefix(first, "#!") && strings.HasSuffix(strings.TrimSpace(first), "sh")
		if !c.shell && !strings.HasPrefix(first, "#!") && !strings.HasSuffix(s.Program, ".py") {
			c.text = "" // the file is a compiled program, so there is no source code
		}
		return c
	}
	c := code{src: s, where: "the line for " + s.Program, shell: isShell(s.Program)}
	if script, _ := s.script(); script != "" {
		c.text, c.where = s.read(script), script
	} else {
		c.text = strings.Join(s.Args, " ")
	}
	return c
}

// read returns the first bytes of a local file. It looks in the current
// folder, and then in the folder of --workdir. It returns "" if there is no
// such file, for example if file is a command that exists only on the hosts.
func (s Source) read(file string) string {
	if !isFile(file) {
		file = filepath.Join(s.Workdir, file)
	}
	return beginning(file, maxScript)
}

// byLocalRank matches words which show that a program selects its device by
// LOCAL_RANK: the name of that variable, or of a library that reads it.
var byLocalRank = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)\b(local_rank|torch|lightning|accelerate|transformers|deepspeed)\b`)
})

// ownChoice is a variable's name. A program that mentions it chooses by itself
// which devices it sees.
const ownChoice = "CUDA_VISIBLE_DEVICES"

// choosesDevice reports whether the code, or a Python script that it names,
// selects its device by LOCAL_RANK.
func (c code) choosesDevice() bool {
	text := c.text
	for _, script := range pythonScript().FindAllString(text, maxScripts) {
		text += c.src.read(script)
	}
	return byLocalRank().MatchString(text) && !strings.Contains(text, ownChoice)
}
