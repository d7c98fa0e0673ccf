package entrypoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/plx-run/plx/launcher/exit"
)

// OwnVenv returns the folder of the virtual environment of this machine that the program is
// in, such as ".venv" for ".venv/bin/python"; "": it is in none.
func (s Source) OwnVenv() string {
	root, _ := venvOf(s.Program)
	return root
}

// maxLinks bounds a chain of links.
const maxLinks = 10

// venvOf returns the virtual environment that a file of this machine is in, or is a link into,
// and the command's name there. Python finds its environment in the same way: the interpreter
// itself is a link that leads out.
func venvOf(file string) (root, command string) {
	if !strings.Contains(file, "/") || !isFile(file) {
		return "", ""
	}
	for range maxLinks {
		dir, command := filepath.Split(file)
		real, err := filepath.EvalSymlinks(filepath.Clean(dir))
		if err != nil {
			return "", ""
		}
		for _, bin := range []string{filepath.Clean(dir), real} {
			if root := filepath.Join(bin, ".."); isFile(filepath.Join(root, "pyvenv.cfg")) && isBin(bin) {
				return root, command
			}
		}
		to, err := os.Readlink(file)
		if err != nil {
			return "", ""
		}
		if file = to; !filepath.IsAbs(to) {
			file = filepath.Join(dir, to)
		}
	}
	return "", ""
}

func isBin(dir string) bool {
	abs, err := filepath.Abs(dir)
	return err == nil && filepath.Base(abs) == "bin"
}

// sameFolder reports whether two names are those of one folder.
func sameFolder(a, b string) bool {
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}

// checkVenv refuses a program of another virtual environment than that of --venv.
func (s Source) checkVenv() error {
	root, command := venvOf(s.Program)
	if root == "" || s.Venv == "" || sameFolder(root, s.Venv) {
		return nil
	}
	return exit.Mistake(fmt.Errorf("%s is of the virtual environment %s, and --venv is %s", s.Program, root, s.Venv),
		"--venv %s %s, or name the program of the other one: %s", root, command, command)
}

// checkInterpreter refuses a Python of this machine that would be sent without the modules
// that belong to it. That of the system finds the hosts' modules: it returns a note.
func (s Source) checkInterpreter() (notes []string, err error) {
	real, err := filepath.EvalSymlinks(s.Program)
	if err != nil || !interpreter().MatchString(filepath.Base(s.Program)) && !interpreter().MatchString(filepath.Base(real)) || beginning(real, 2) == "#!" {
		return nil, nil // who sends it reports why; so below
	}
	alone := fmt.Sprintf("%s would be sent alone, without its modules", s.Program)
	hosts := shellWords("python3", s.Args)
	prefix := filepath.Dir(filepath.Dir(real))
	switch {
	case isFolder(filepath.Join(prefix, "conda-meta")):
		return nil, exit.Mistake(errors.New(alone+": it is of the conda environment "+prefix),
			"conda-pack and --setup send that environment: docs/environment.md; with the Python of the hosts: plx launch %s", hosts)
	case slices.Contains([]string{"/", "/usr", "/usr/local"}, prefix):
		return []string{fmt.Sprintf("note: %s is sent alone, and finds modules of the hosts if they have the same version; for their own Python: plx launch %s", s.Program, hosts)}, nil
	}
	return nil, exit.Mistake(errors.New(alone), "%s -m venv .venv makes an environment: plx launch --venv .venv %s; with the Python of the hosts, without --venv", s.Program, hosts)
}

// noteVenv returns a line on the first word that names a file of a virtual environment of
// this machine, which hosts do not have at that path: of what a wrapper runs, or of the code of
// a shell.
func (s Source) noteVenv(c code) []string {
	in, before := s.inner()
	var words []string
	if before > 0 {
		words = append(words, in.Program)
	}
	if c.shell {
		words = append(words, strings.FieldsFunc(c.text, func(r rune) bool { return strings.ContainsRune(" \t\r\n;&|()'\"`=", r) })...)
	}
	for _, word := range words {
		if !strings.Contains(word, "/bin/") || filepath.IsAbs(word) && s.Chdir != "" {
			continue
		}
		for _, file := range []string{word, filepath.Join(s.Workdir, word)} {
			root, command := venvOf(file)
			if root == "" {
				continue
			}
			cure := fmt.Sprintf("--venv %s sends it, and its programs need no folder: python", root)
			if s.Venv != "" {
				cure = "with --venv the environment's programs need no folder: python"
			}
			if command == "activate" {
				cure += ", without activate"
			}
			return []string{fmt.Sprintf("note: %s: hosts have no virtual environment at that path; %s", word, cure)}
		}
	}
	return nil
}
