package entrypoint

import (
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// interpreters are programs whose first argument without a dash is a script. interpreter are
// names of Python's, python those and scripts, pythonScript are scripts of Python in a line of a shell.
var (
	interpreters = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(python|pypy|perl|ruby|node|lua|julia|Rscript|php|tclsh)[0-9.]*$|^(ba|da|z|k)?sh$`)
	})
	interpreter  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(python|pypy)[0-9.]*$`) })
	python       = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(python|pypy)[0-9.]*$|\.py$`) })
	pythonScript = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[\w./-]+\.py\b`) })
)

// maxScripts is how many scripts of Python a line of a shell may name, and maxScript how much
// of one is read, in bytes.
const (
	maxScripts = 10
	maxScript  = 64 << 10
)

// isShell reports whether a program is a shell.
func isShell(program string) bool {
	name := path.Base(program)
	return interpreters().MatchString(name) && strings.HasSuffix(name, "sh") && name != "tclsh"
}

// withValue are options of interpreters whose value is an argument of its own.
var withValue = []string{"-W", "-X", "--check-hash-based-pycs", "-o", "-O", "--init-file", "--rcfile"}

// withoutScript reports whether an interpreter runs no script after an argument. In
// shells "-e" is another option, in Python "-s" is.
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

// script returns the file that an interpreter is told to run, and the arguments that
// come after it. The file is empty if there is none; a module of Python stands for
// its file.
func (s Source) script() (file string, others []string) {
	s, _ = s.inner()
	file, module, others := target(s.Program, s.Args)
	if module != "" {
		file = moduleFile(module)
	}
	return file, others
}

// target returns the file or the Python module that an interpreter is told to run, and the
// arguments that come after it.
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

// moduleFile returns the file of a Python module of the present folder, or "".
func moduleFile(module string) string {
	base := strings.ReplaceAll(module, ".", "/")
	for _, file := range []string{base + ".py", base + "/__main__.py"} {
		if isFile(file) {
			return file
		}
	}
	return ""
}

// shellLine returns what a shell is given by -c.
func (s Source) shellLine() (line string, given bool) {
	s, _ = s.inner()
	at := slices.Index(s.Args, "-c")
	if at < 0 || at+1 >= len(s.Args) || !isShell(s.Program) {
		return "", false
	}
	return s.Args[at+1], true
}

// code is what can be read here of what the tasks execute.
type code struct {
	src   Source
	text  string // a script of this machine, or the line for an interpreter's -c; empty: none can be read
	where string // its file, or what stands for that in a message
	shell bool   // a shell executes it
}

func (s Source) code() code {
	s, _ = s.inner()
	if !interpreters().MatchString(filepath.Base(s.Program)) {
		c := code{src: s, text: s.read(s.Program), where: s.Program}
		first, _, _ := strings.Cut(c.text, "\n")
		c.shell = strings.HasSuffix(s.Program, ".sh") || strings.HasPrefix(first, "#!") && strings.HasSuffix(strings.TrimSpace(first), "sh")
		if !c.shell && !strings.HasPrefix(first, "#!") && !strings.HasSuffix(s.Program, ".py") {
			c.text = "" // a binary
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

// read returns the beginning of a file of this machine, in the working directory of the job
// if it is not in the present one. It is empty for what is none, such as a command of the
// hosts.
func (s Source) read(file string) string {
	if !isFile(file) {
		file = filepath.Join(s.Workdir, file)
	}
	return beginning(file, maxScript)
}

// byLocalRank are words of a program that chooses its device by LOCAL_RANK, or leaves that
// to a library that does.
var byLocalRank = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)\b(local_rank|torch|lightning|accelerate|transformers|deepspeed)\b`)
})

// ownChoice is in a program that knows which devices it sees.
const ownChoice = "CUDA_VISIBLE_DEVICES"

// choosesDevice reports whether the code, or a script of Python that it names, says that it
// chooses its device by LOCAL_RANK.
func (c code) choosesDevice() bool {
	text := c.text
	for _, script := range pythonScript().FindAllString(text, maxScripts) {
		text += c.src.read(script)
	}
	return byLocalRank().MatchString(text) && !strings.Contains(text, ownChoice)
}
