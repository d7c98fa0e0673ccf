package entrypoint

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/plx-run/plx/envsync/tree"
	"github.com/plx-run/plx/launcher/exit"
)

// checkMissing returns an error if the script is not in the folder of
// --workdir. It accepts a missing script if there is a --setup line, because
// that line may create the script.
func (s Source) checkMissing() error {
	script, _ := s.script()
	if s.Workdir == "" || s.Setup != "" || script == "" || filepath.IsAbs(script) || isFile(script) || s.copies(script) {
		return nil // checkFiles later handles a script that is in the current folder but not in --workdir
	}
	if _, err := os.Stat(filepath.Join(s.Workdir, script)); !errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return exit.Mistake(fmt.Errorf("%s %s: there is no %s in --workdir %s", s.Program, script, script, s.Workdir),
		"use the script's path relative to that folder; if a setup line creates the script, add --setup")
}

// checkFiles returns an error if the program or its script is a local file
// that is not sent to the hosts. notes are lines for the user about other
// arguments that name local files which are not sent.
func (s Source) checkFiles(sent *tree.Folder) (notes []string, err error) {
	if s.Chdir != "" {
		return nil, nil // check nothing: the files may be in the folder of --chdir on the hosts
	}
	f := files{s, sent}
	if isBareFile(s.Program) {
		bare := fmt.Sprintf("%s is a file on this machine, but a name without a slash means a command on the hosts", s.Program)
		if !f.reaches(s.Program) {
			if _, err := kindOf("./" + s.Program); err != nil {
				// "plx launch ./NAME" would fail too. Give the hint for the
				// error of that command.
				return nil, exit.Mistake(errors.New(bare), "%s", exit.Hint(err))
			}
			return nil, exit.Mistake(errors.New(bare), "plx launch ./%s", s.Program)
		}
		if s.Path == "" && s.Setup == "" { // --path or --setup may put the file's folder on the PATH
			notes = append(notes, fmt.Sprintf("note: %s: the file is ./%s", bare, s.Program))
		}
	}
	script, others := s.script()
	if f.lost(script) {
		if !movesAway(s.Setup) {
			return nil, f.refuse(script)
		}
		others = append(others, script)
	}
	if err := f.checkWrapped(); err != nil {
		return nil, err
	}
	if err := f.checkLine(); err != nil {
		return nil, err
	}
	return slices.Concat(notes, f.note(others), f.absolute(script)), nil
}

// isBareFile reports whether program is a name without a slash that is a file
// in the current folder, but no command on PATH. The user has probably
// forgotten the "./".
func isBareFile(program string) bool {
	if strings.Contains(program, "/") || !isFile(program) {
		return false
	}
	_, err := exec.LookPath(program)
	return err != nil
}

// movesAway reports whether a shell line contains cd or pushd, so that the
// program may run in another folder.
func movesAway(setup string) bool {
	words := strings.FieldsFunc(setup, func(r rune) bool { return strings.ContainsRune(" \t\n;&|({", r) })
	return slices.Contains(words, "cd") || slices.Contains(words, "pushd")
}

// copies reports whether --copy sends the file with this relative path to the
// hosts.
func (s Source) copies(file string) bool {
	first, _, _ := strings.Cut(path.Clean(filepath.ToSlash(file)), "/")
	return slices.ContainsFunc(s.Copy, func(copied string) bool { return filepath.Base(copied) == first })
}

// files checks which arguments of the program name local files that are not
// sent to the hosts.
type files struct {
	Source
	sent *tree.Folder // content of the folder of --workdir; nil if the option is not used
}

// checkWrapped returns an error if a wrapper such as numactl runs a program
// from a local virtual environment, such as .venv/bin/python, and plx does not
// send that environment.
func (f files) checkWrapped() error {
	in, before := f.inner()
	root, command := venvOf(in.Program)
	if before == 0 || root == "" || filepath.IsAbs(in.Program) || f.Setup != "" || f.reaches(in.Program) {
		return nil
	}
	return exit.Mistake(fmt.Errorf("%s belongs to the virtual environment %s, which is not on the hosts", in.Program, root),
		"plx launch --venv %s %s", root, shellWords(f.Program, slices.Concat(f.Args[:before-1], []string{command}, in.Args)))
}

// checkLine returns an error if the line for "sh -c" names a Python script
// that plx does not send because a pattern in .plxignore excludes it.
func (f files) checkLine() error {
	line, given := f.shellLine()
	if f.sent == nil || !given || movesAway(line) || movesAway(f.Setup) {
		return nil
	}
	for _, script := range pythonScript().FindAllString(line, maxScripts) {
		if why, _ := f.excluded(script); why != "" && f.lost(script) {
			return f.refuse(script)
		}
	}
	return nil
}

// reaches reports whether --workdir or --copy sends the file with this
// relative path to the hosts, so that the tasks find it by the same path.
func (f files) reaches(file string) bool {
	if f.sent != nil {
		e, found := f.sent.Find(path.Clean(filepath.ToSlash(file)))
		if found && (e.Kind != tree.Directory || isFolder(file)) {
			return true
		}
	}
	return f.copies(file)
}

// lost reports whether a relative path names a local file that is not sent to
// the hosts.
func (f files) lost(file string) bool {
	return file != "" && !filepath.IsAbs(file) && isFile(file) && !f.reaches(file)
}

// lostFolder reports whether a relative path names a local folder that is not
// sent to the hosts. It returns false for an empty folder, because programs
// create the folders that they write to. It also returns false for a path to a
// folder outside of the current folder.
func (f files) lostFolder(name string) bool {
	if name == "" || !filepath.IsLocal(name) || path.Clean(name) == "." || !isFolder(name) || f.reaches(name) {
		return false
	}
	entries, err := os.ReadDir(name)
	return err == nil && len(entries) > 0
}

// excluded returns the rule that excludes a file from the folder of --workdir,
// and the file's path in that folder. The rule is "" if no rule excludes the
// file.
func (f files) excluded(file string) (why, except string) {
	if f.sent == nil {
		return "", ""
	}
	except, in := inside(f.sent, file)
	if !in {
		return "", ""
	}
	return f.sent.Excluded(except), except
}

// refuse returns the error for a script that is not sent to the hosts. Its
// hint says how to send the script.
func (f files) refuse(script string) error {
	if f.sent == nil {
		return exit.Mistake(fmt.Errorf("%s is not on the hosts", script), "%s is a local file: add --workdir .", script)
	}
	p, in := inside(f.sent, script)
	if !in {
		return exit.Mistake(fmt.Errorf("%s is not in --workdir %s", script, f.Workdir),
			"name a folder that has it, such as --workdir ., or add --copy %s", script)
	}
	if why := f.sent.Excluded(p); why != "" {
		for up := path.Dir(p); up != "."; up = path.Dir(up) {
			if f.sent.Excluded(up) != "" {
				p = up + "/"
			}
		}
		return exit.Mistake(fmt.Errorf("%s is not sent to the hosts: %s excludes it", script, why), "add the line !/%s to .plxignore", p)
	}
	return exit.Mistake(fmt.Errorf("%s is not in --workdir %s under that path", script, f.Workdir),
		"tasks run in that folder: name it %s", p)
}

// absolute returns a note if the user named a script of the working folder by
// its absolute path on this machine. That is no error, because the hosts may
// share a file system with this machine.
func (f files) absolute(script string) []string {
	if f.sent == nil || !filepath.IsAbs(script) || !isFile(script) {
		return nil
	}
	p, in := inside(f.sent, script)
	if !in {
		return nil
	}
	return []string{fmt.Sprintf("note: tasks open %s on their own host, by this path; the copy in their working directory is %s", script, p)}
}

// note returns one line that lists the arguments which name local files or
// folders that are not sent to the hosts.
func (f files) note(args []string) []string {
	var lost []string
	for _, arg := range args {
		if _, value, found := strings.Cut(arg, "="); found && strings.HasPrefix(arg, "-") {
			arg = value
		}
		if (f.lost(arg) || f.lostFolder(arg)) && !slices.Contains(lost, arg) {
			lost = append(lost, arg)
		}
	}
	if len(lost) == 0 {
		return nil
	}
	what := "a local file"
	folders := slices.ContainsFunc(lost, isFolder)
	switch {
	case len(lost) == 1 && folders:
		what = "a local folder"
	case len(lost) > 1 && folders:
		what = "local files and folders"
	case len(lost) > 1:
		what = "local files"
	}
	more := ""
	if f.sent == nil {
		more = " (--workdir DIR and --copy FILE send files)"
	} else if why, except := f.excluded(lost[0]); why != "" {
		if isFolder(lost[0]) {
			except += "/"
		}
		more = fmt.Sprintf(" (%s excludes it; a line !/%s in .plxignore sends it)", why, except)
	}
	return []string{fmt.Sprintf("note: %s: %s that the hosts do not get%s", strings.Join(lost, ", "), what, more)}
}
