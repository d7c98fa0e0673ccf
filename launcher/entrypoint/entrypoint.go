// Package entrypoint determines what the tasks of a launch execute: how the
// program reaches the hosts, which script it runs, which GPUs each task sees,
// and which notes plx prints for the user.
//
//	src := entrypoint.Source{Program: "python3", Args: []string{"train.py"}, Workdir: "."}
//	if err := src.Check(); err != nil {
//		return err
//	}
//	p, err := entrypoint.Resolve(ctx, src, folder) // folder: src.Workdir, read by package tree
//
// The returned Program contains all that the launch knows about the program.
//
// # What it refuses to do
//
// The package sends nothing and builds nothing. The only command that it
// starts is "go list". It returns an error for a program that cannot be run,
// for a launcher such as torchrun that plx replaces, and for a local script
// that is not sent to the hosts.
package entrypoint

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/plx-run/plx/envsync/tree"
)

// Source is the user's choice of the program, and of the files that are sent
// to the hosts with it.
type Source struct {
	// Program is a local executable ("./train"), a Go package folder, or the bare name of
	// a command on the hosts' PATH.
	Program string
	Args    []string // arguments of the program
	Workdir string   // local folder that is sent to the hosts, and that the tasks run in; "" for none
	Venv    string   // local virtual environment that is sent to the hosts for the tasks; "" for none
	Copy    []string // local files and folders that are copied into the tasks' working folders
	Chdir   string   // folder on the hosts in which the tasks run; "" means each task's own folder
	Setup   string   // shell line that each task runs before the program; "" for none
	Path    string   // folders that are put before the hosts' PATH; "" for none
}

// Program describes what the tasks execute, and how it reaches the hosts.
type Program struct {
	Kind    Kind
	Command string // name on the hosts' PATH, or path in the working folder; unused if plx sends the program itself
	Trainer bool   // true if the program contains plx's trainer package, so that it can use parameter servers
	// AskHosts is true if only the hosts can find out whether the program
	// contains plx's trainer package. It is true for a command on the hosts,
	// unless plx knows the command as an interpreter, a wrapper (such as
	// numactl) or a launcher (such as torchrun).
	AskHosts bool
	// SeesAllDevices is true if the program, or a program that it starts,
	// selects its device by LOCAL_RANK. Programs for torchrun do. Each task
	// then sees the devices of all workers on its host.
	SeesAllDevices bool
	// Launcher is the name of a launcher (a program such as mpirun that starts
	// processes), if the program is one or starts one; otherwise "". Where
	// names the script and the line that start it; "" if each worker executes
	// it directly.
	Launcher, Where string
	Notes           []string // lines to print for the user, for example about arguments that name local files
}

// Check returns the errors that can be found before the folder of --workdir is
// read.
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

// Resolve determines what the tasks execute. sent is the content of the folder
// s.Workdir; nil if there is no such folder.
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
	p.SeesAllDevices = p.Launcher != "" || c.choosesDevice()
	_, before := s.inner()
	p.AskHosts = p.Kind == OnHost && p.Launcher == "" && before == 0 && s.Venv == "" && !interpreters().MatchString(s.Program)
	notes, err := s.checkFiles(sent)
	p.Notes = slices.Concat(p.Notes, s.noteManager(), s.noteVenv(c), notes)
	return p, err
}

// place returns how a local executable reaches the hosts, and the path by
// which the tasks execute it on the hosts.
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

// inside returns the path of a local file relative to folder. It returns false
// if the file is not below that folder.
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
