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

// OwnVenv returns the folder of the local virtual environment that contains
// the program, such as ".venv" for ".venv/bin/python". It returns "" if the
// program is in no virtual environment.
func (s Source) OwnVenv() string {
	root, _ := venvOf(s.Program)
	return root
}

// maxLinks is the maximum number of symbolic links that venvOf follows.
const maxLinks = 10

// venvOf returns the root folder of the virtual environment that contains a
// local file, and the file's name in its bin folder. It follows the file's
// symbolic links one by one, and stops at the first path that is in a virtual
// environment. Further links would lead out of it, because a virtual
// environment's python is itself a link to the system's python.
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

// sameFolder reports whether two paths name the same folder.
func sameFolder(a, b string) bool {
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}

// checkVenv returns an error if the program is in a virtual environment that
// is not the one that --venv sends.
func (s Source) checkVenv() error {
	root, command := venvOf(s.Program)
	if root == "" || s.Venv == "" || sameFolder(root, s.Venv) {
		return nil
	}
	return exit.Mistake(fmt.Errorf("%s belongs to the virtual environment %s, but --venv is %s", s.Program, root, s.Venv),
		"--venv %s %s, or name the program of the other one: %s", root, command, command)
}

// checkInterpreter handles a local Python interpreter that would be sent to
// the hosts without its modules. It returns an error, except for the system's
// interpreter. For that it returns a note, because the interpreter can find
// the modules of the hosts' Python.
func (s Source) checkInterpreter() (notes []string, err error) {
	real, err := filepath.EvalSymlinks(s.Program)
	if err != nil || !interpreter().MatchString(filepath.Base(s.Program)) && !interpreter().MatchString(filepath.Base(real)) || beginning(real, 2) == "#!" {
		return nil, nil // the program is no Python interpreter, or cannot be resolved; in the second case, sending it fails with its own error
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

// noteVenv returns a note about the first path that names a file in a local
// virtual environment. Hosts have no file at that path. noteVenv checks the
// program that a wrapper such as numactl runs, and the words of a shell
// script.
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
