package launcher

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/plx-run/plx/envsync/tree"
	"github.com/plx-run/plx/launcher/artifacts"
	"github.com/plx-run/plx/launcher/exit"
)

// checkLocal refuses a program or script that is a file of this machine and does not
// reach the hosts. It returns a note on other arguments of that kind.
func checkLocal(cfg Config, w workdir) (notes []string, err error) {
	if cfg.Chdir != "" {
		return nil, nil // the folder of the hosts may have the files
	}
	c := localCheck{cfg: cfg, workdir: w}
	if isBareFile(cfg.Program) {
		bare := fmt.Sprintf("%s is a file here, and a name without a slash means a command of the hosts", cfg.Program)
		if !c.sent(cfg.Program) {
			if _, err := artifacts.KindOf("./" + cfg.Program); err != nil {
				return nil, exit.Mistake(errors.New(bare), "%s", exit.Hint(err)) // which leads to the end at once
			}
			return nil, exit.Mistake(errors.New(bare), "plx launch ./%s", cfg.Program)
		}
		if cfg.Path == "" && cfg.Setup == "" { // they may put its folder on the PATH
			notes = append(notes, fmt.Sprintf("note: %s: the file is ./%s", bare, cfg.Program))
		}
	}
	script, others := scriptOf(cfg.Program, cfg.Args)
	if script != "" && c.lost(script) {
		if !movesAway(cfg.Setup) {
			return nil, c.refuse(script)
		}
		others = append(others, script)
	}
	if err := c.checkLine(); err != nil {
		return nil, err
	}
	return slices.Concat(notes, c.note(others), c.absolute(script)), nil
}

// checkLine refuses a line for a shell that names a script which a pattern leaves here.
func (c localCheck) checkLine() error {
	at := slices.Index(c.cfg.Args, "-c")
	if c.workdir.folder == nil || at < 0 || at+1 >= len(c.cfg.Args) || !isShell(c.cfg.Program) || movesAway(c.cfg.Args[at+1]) || movesAway(c.cfg.Setup) {
		return nil
	}
	for _, script := range pythonScript().FindAllString(c.cfg.Args[at+1], maxScripts) {
		if p, inside := c.workdir.inside(script); inside && c.lost(script) && c.workdir.folder.Excluded(p) != "" {
			return c.refuse(script)
		}
	}
	return nil
}

// isShell reports whether a program is a shell.
func isShell(program string) bool {
	name := path.Base(program)
	return interpreters().MatchString(name) && strings.HasSuffix(name, "sh") && name != "tclsh"
}

// isBareFile reports whether a name without a slash is a file here and no command: the
// user has forgotten the "./".
func isBareFile(program string) bool {
	if strings.Contains(program, "/") || !isFile(program) {
		return false
	}
	_, err := exec.LookPath(program)
	return err != nil
}

func isFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

func isFolder(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// refuseMissing refuses a script that is not in the folder of --workdir, before that is read.
// A setup line may make it.
func refuseMissing(cfg Config) error {
	script, _ := scriptOf(cfg.Program, cfg.Args)
	if cfg.Workdir == "" || cfg.Setup != "" || script == "" || filepath.IsAbs(script) || isFile(script) {
		return nil // that the folder does not have one of the present folder is noticed later
	}
	first, _, _ := strings.Cut(path.Clean(filepath.ToSlash(script)), "/")
	if slices.ContainsFunc(cfg.Copy, func(copied string) bool { return filepath.Base(copied) == first }) {
		return nil
	}
	if _, err := os.Stat(filepath.Join(cfg.Workdir, script)); !errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return exit.Mistake(fmt.Errorf("%s %s: there is no %s in --workdir %s", cfg.Program, script, script, cfg.Workdir),
		"name the file by its path in that folder; a file that --setup makes needs --setup")
}

// movesAway reports whether a setup line may leave the working directory.
func movesAway(setup string) bool {
	words := strings.FieldsFunc(setup, func(r rune) bool { return strings.ContainsRune(" \t\n;&|({", r) })
	return slices.Contains(words, "cd") || slices.Contains(words, "pushd")
}

// interpreters are programs whose first argument without a dash is a script.
var interpreters = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(python|pypy|perl|ruby|node|lua|julia|Rscript|php|tclsh)[0-9.]*$|^(ba|da|z|k)?sh$`)
})

// withValue are options of interpreters whose value is an argument of its own.
var withValue = map[string]bool{"-W": true, "-X": true, "--check-hash-based-pycs": true, "-o": true, "-O": true, "--init-file": true, "--rcfile": true}

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

// scriptOf returns the file that an interpreter is told to run, and the arguments that
// come after it. The script is empty if there is none; a module of Python stands for
// its file.
func scriptOf(program string, args []string) (script string, others []string) {
	interpreter := path.Base(program)
	if !interpreters().MatchString(interpreter) {
		return "", args
	}
	python := strings.HasPrefix(interpreter, "py")
	for i := 0; i < len(args); i++ {
		switch arg := args[i]; {
		case python && arg == "-m" && i+1 < len(args):
			return moduleFile(args[i+1]), args[i+2:]
		case withoutScript(interpreter, arg):
			return "", args[i+1:]
		case arg == "--" && i+1 < len(args):
			return args[i+1], args[i+2:]
		case withValue[arg]:
			i++
		case !strings.HasPrefix(arg, "-"):
			return arg, args[i+1:]
		}
	}
	return "", nil
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

// localCheck finds arguments that name files of this machine.
type localCheck struct {
	cfg     Config
	workdir workdir
}

// sent reports whether a relative path names the same file on the hosts.
func (c localCheck) sent(file string) bool {
	file = path.Clean(filepath.ToSlash(file))
	if c.workdir.folder != nil {
		if e, found := c.workdir.folder.Find(file); found && e.Kind != tree.Directory {
			return true
		}
	}
	if c.workdir.folder != nil && isFolder(file) {
		if e, found := c.workdir.folder.Find(file); found && e.Kind == tree.Directory {
			return true
		}
	}
	first, _, _ := strings.Cut(file, "/")
	return slices.ContainsFunc(c.cfg.Copy, func(copied string) bool { return filepath.Base(copied) == first })
}

// lost reports whether a path names a file here that the hosts do not get.
func (c localCheck) lost(file string) bool {
	return file != "" && !filepath.IsAbs(file) && isFile(file) && !c.sent(file)
}

// lostFolder is lost for a folder. A task makes folders that it writes into, so an empty one
// counts as sent, and so does one that holds the present folder.
func (c localCheck) lostFolder(name string) bool {
	if name == "" || !filepath.IsLocal(name) || path.Clean(name) == "." || !isFolder(name) || c.sent(name) {
		return false
	}
	entries, err := os.ReadDir(name)
	return err == nil && len(entries) > 0
}

// refuse is the error of a script that the hosts do not get.
func (c localCheck) refuse(script string) error {
	if c.workdir.folder == nil {
		return exit.Mistake(fmt.Errorf("%s is not on the hosts", script), "%s is a local file: add --workdir .", script)
	}
	p, inside := c.workdir.inside(script)
	if !inside {
		return exit.Mistake(fmt.Errorf("%s is not in --workdir %s", script, c.workdir.named),
			"name a folder that has it, such as --workdir ., or add --copy %s", script)
	}
	if why := c.workdir.folder.Excluded(p); why != "" {
		return exit.Mistake(fmt.Errorf("%s does not reach the hosts: %s excludes it", script, why), "add the line !/%s to .plxignore", c.excluded(p))
	}
	return exit.Mistake(fmt.Errorf("%s is not in --workdir %s under that path", script, c.workdir.named),
		"tasks run in that folder: name it %s", p)
}

// excluded returns the excluded folder that an excluded path is in, with a slash at its
// end, or the path.
func (c localCheck) excluded(p string) string {
	for up := path.Dir(p); up != "."; up = path.Dir(up) {
		if c.workdir.folder.Excluded(up) != "" {
			p = up + "/"
		}
	}
	return p
}

// absolute returns a line on a script in the working directory that is named by its path
// on this machine. On hosts with a shared disk that path may be meant.
func (c localCheck) absolute(script string) []string {
	if c.workdir.folder == nil || !filepath.IsAbs(script) || !isFile(script) {
		return nil
	}
	p, inside := c.workdir.inside(script)
	if !inside {
		return nil
	}
	return []string{fmt.Sprintf("note: %s is that path on the hosts too; in the working directory the file is %s", script, p)}
}

// note returns one line on arguments that name local files.
func (c localCheck) note(args []string) []string {
	var files []string
	for _, arg := range args {
		if _, value, found := strings.Cut(arg, "="); found && strings.HasPrefix(arg, "-") {
			arg = value
		}
		if (c.lost(arg) || c.lostFolder(arg)) && !slices.Contains(files, arg) {
			files = append(files, arg)
		}
	}
	what := "a local file"
	switch len(files) {
	case 0:
		return nil
	case 1:
		if isFolder(files[0]) {
			what = "a local folder"
		}
	default:
		what = "local files"
		if slices.ContainsFunc(files, isFolder) {
			what = "local files and folders"
		}
	}
	more := ""
	if c.workdir.folder == nil {
		more = " (--workdir DIR and --copy FILE send files)"
	} else if p, inside := c.workdir.inside(files[0]); inside {
		if why := c.workdir.folder.Excluded(p); why != "" {
			if isFolder(files[0]) {
				p += "/"
			}
			more = fmt.Sprintf(" (%s excludes it; a line !/%s in .plxignore sends it)", why, p)
		}
	}
	return []string{fmt.Sprintf("note: %s: %s that the hosts do not get%s", strings.Join(files, ", "), what, more)}
}
