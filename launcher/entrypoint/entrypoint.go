// Package entrypoint decides what the tasks of a launch run: how the program reaches the
// hosts, which script it executes, what it sees of a host, and what its user should know.
//
//	src := entrypoint.Source{Program: "python3", Args: []string{"train.py"}, Workdir: "."}
//	if err := src.Check(); err != nil {
//		return err
//	}
//	p, err := entrypoint.Resolve(ctx, src, folder) // as package tree has read src.Workdir
//
// The launch decides nothing else about its program: it reads the Program.
//
// # What it refuses to do
//
// It sends and builds nothing, and starts nothing but "go list". It refuses a program that
// cannot be run, a launcher whose place plx takes, and a script of this machine that does not
// reach the hosts.
package entrypoint

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/plx-run/plx/envsync/tree"
)

// Source is what the user has said of the program, and of the files that go with it.
type Source struct {
	// Program is a local executable ("./train"), a Go package folder, or the bare name of
	// a command on the hosts' PATH.
	Program string
	Args    []string // arguments of the program
	Workdir string   // folder of this machine whose content the tasks run in; empty: none
	Venv    string   // folder of this machine with the tasks' virtual environment; empty: none
	Copy    []string // files and folders of this machine for the tasks' working folders
	Chdir   string   // folder of the hosts to run in; empty: the task's own
	Setup   string   // shell line that runs before the program; empty: none
	Path    string   // folders before the hosts' PATH; empty: none
}

// Program is what the tasks run.
type Program struct {
	Kind    Kind
	Command string // what tasks execute unless the program is sent: a name on PATH, or a path in the working directory
	Trainer bool   // it links plx's trainer, and so can use parameter servers
	// AskHosts tells that only the hosts know whether it links the trainer: it is a command of
	// theirs, and no interpreter, wrapper or launcher that is known not to.
	AskHosts bool
	// SeesHost tells that it chooses its device by LOCAL_RANK, as programs for torchrun do,
	// or starts others that do: each task sees the devices of all workers of its host.
	SeesHost bool
	// Launcher is a program such as mpirun that it starts, or is, and that starts processes
	// of its own; empty: none is known. Where names the script and the line that starts
	// Launcher; empty: each worker runs Launcher itself.
	Launcher, Where string
	Notes           []string // lines for the user on files that the program is given
}

// Check refuses what no folder of --workdir makes right, before one is read.
func (s Source) Check() error {
	if err := s.checkLauncher(); err != nil {
		return err
	}
	if _, err := kindOf(s.Program); err != nil {
		return err
	}
	if err := s.checkVenv(); err != nil {
		return err
	}
	return s.checkMissing()
}

// Resolve decides what tasks run. sent is Source.Workdir as it was read; nil: there is none.
func Resolve(ctx context.Context, s Source, sent *tree.Folder) (p Program, err error) {
	p = Program{Command: s.Program}
	if p.Kind, err = kindOf(s.Program); err != nil {
		return p, err
	}
	if p.Trainer, err = linksTrainer(ctx, p.Kind, s.Program); err != nil {
		return p, err
	}
	if p.Kind == Local {
		p.Kind, p.Command = s.place(sent)
	}
	if p.Kind == Local {
		if p.Notes, err = s.checkInterpreter(); err != nil {
			return p, err
		}
	}
	c := s.code()
	p.Launcher, p.Where = c.launcher()
	p.SeesHost = p.Launcher != "" || c.choosesDevice()
	_, before := s.inner()
	p.AskHosts = p.Kind == OnHost && p.Launcher == "" && before == 0 && s.Venv == "" && !interpreters().MatchString(s.Program)
	notes, err := s.checkFiles(sent)
	p.Notes = slices.Concat(p.Notes, s.noteManager(), s.noteVenv(c), notes)
	return p, err
}

// place decides how an executable of this machine reaches the hosts, and what tasks there
// execute.
func (s Source) place(sent *tree.Folder) (Kind, string) {
	if root, command := venvOf(s.Program); root != "" && sameFolder(root, s.Venv) {
		return InVenv, command
	}
	if sent != nil {
		if p, ok := inside(sent, s.Program); ok {
			if e, found := sent.Find(p); found && e.Kind == tree.File {
				return InWorkdir, "./" + p
			}
		}
	}
	return Local, s.Program
}

// inside returns the path of a file of this machine relative to a folder.
func inside(folder *tree.Folder, file string) (string, bool) {
	abs, err := filepath.Abs(file)
	if err != nil {
		return "", false
	}
	parent, err := filepath.EvalSymlinks(filepath.Dir(abs))
	if err != nil {
		return "", false
	}
	p, err := filepath.Rel(folder.Root(), filepath.Join(parent, filepath.Base(abs)))
	return filepath.ToSlash(p), err == nil && filepath.IsLocal(p)
}
