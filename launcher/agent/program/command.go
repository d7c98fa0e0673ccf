//go:build linux

package program

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/protocol"
)

// unstarted is the error for a task that could not be started.
type unstarted struct {
	code int // exit status that plx reports for the task, the same as a shell's: 126 (not executable) or 127 (not found)
	error
}

// ExitCode returns the exit status that plx reports for a task that failed to
// start with err.
func ExitCode(err error) int {
	if u := (unstarted{}); errors.As(err, &u) {
		return u.code
	}
	return exit.CodePlx
}

func unstartedf(code int, format string, args ...any) error {
	return unstarted{code, fmt.Errorf(format, args...)}
}

// Command is the program that a task executes, with its arguments and
// environment.
type Command struct {
	Path string   // the file to execute
	Argv []string // arguments, argv[0] first

	dir   string   // working folder
	env   []string // environment, as NAME=VALUE
	name  string   // name of the user's program in error messages
	added int      // number of elements at the start of Argv that plx has added, including argv[0]; the elements after them are the user's
}

// Resolve finds the executable file of a task's program. It looks it up in the
// PATH of env; relative paths begin at dir, the task's working folder.
func Resolve(c protocol.Command, env []string, dir string) (Command, error) {
	args := []string{}
	for _, a := range c.Args {
		args = append(args, string(a))
	}
	path, _ := Lookup(env, "PATH")
	program, name := string(c.Name), string(c.Name)
	var err error
	if c.Blob != "" {
		name = string(c.Base)
		if program, err = shipped(c.Blob, name); err != nil {
			return Command{}, err
		}
	}
	cmd := Command{dir: dir, env: env, name: name}
	if c.Setup != "" {
		return cmd.setup(string(c.Setup), path, program, args), nil
	}
	if cmd.Path, err = find(program, path, dir); err != nil {
		return Command{}, err
	}
	if c.Blob == "" {
		cmd.name = cmd.Path // the path shows which of several programs with this name was found
		if why := missingInterpreter(cmd.Path); why != "" {
			return Command{}, unstartedf(exit.CodeNotRunning, "%s: %s", cmd.name, why)
		}
	}
	cmd.Argv, cmd.added = append([]string{name}, args...), 1
	return cmd, nil
}

// shipped returns the path of a program that plx has copied to this host. It
// checks that the copy is executable. A shell would report a broken copy with
// the copy's path, which means nothing to the user.
func shipped(sum, name string) (string, error) {
	path, err := jobfolder.BlobPath(sum)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err != nil {
		var cause *fs.PathError
		if errors.As(err, &cause) {
			err = cause.Err
		}
		return "", unstartedf(exit.CodeNotFound, "%s: its copy on this host, %s: %w", name, path, err)
	}
	if why := missingInterpreter(path); why != "" {
		return "", unstartedf(exit.CodeNotRunning, "%s: %s", name, why)
	}
	return path, nil
}

// WorkingFolder returns the folder that a task runs in: wanted, relative to
// the user's home folder. If wanted is "", it returns own, which is the task's
// own folder.
func WorkingFolder(wanted, own string) (string, error) {
	if wanted == "" {
		return own, nil
	}
	base, err := jobfolder.Home()
	if err != nil {
		return "", err
	}
	wanted = absolute(wanted, base)
	info, err := os.Stat(wanted)
	if err != nil {
		return "", fmt.Errorf("working folder: %w", err)
	}
	if !info.IsDir() {
		return "", fmt.Errorf("working folder %s is not a folder", wanted)
	}
	return wanted, nil
}

// guarded returns a shell script that runs the user's --setup line, and exits
// if the line fails. Otherwise the program would run without its setup. eval
// gets the line as one quoted word, so an open quote in the line cannot hide
// the check after it. The word ends with an empty line in case the user's line
// ends with a backslash.
func guarded(line string) string { return lockSetup + evaluated(line, "") + unlockSetup }

// evaluated returns a shell script that runs the line with the given
// redirections, and exits if the line fails.
func evaluated(line, redirections string) string {
	return "eval ' " + strings.ReplaceAll(line, "'", `'\''`) + "\n\n'" + redirections + "\n" +
		`{ s=$?; [ $s = 0 ] || { echo "plx: --setup ended with status $s" >&2; ` + startUpHint(line) + `exit $s; }; unset s; }` + "\n"
}

// startUpHint returns a shell script for a --setup line that uses bashrc,
// profile or conda. If the shell has not found a command of the line, the
// script prints a hint: start-up files usually have no effect in a shell that
// is not interactive. For other lines, startUpHint returns "".
func startUpHint(line string) string {
	if !slices.ContainsFunc([]string{"bashrc", "profile", "conda"}, func(word string) bool { return strings.Contains(line, word) }) {
		return ""
	}
	const hint = `plx: --setup: hint: start-up files such as .bashrc usually return early in a shell that is not interactive; ` +
		`for conda: --setup 'eval "$(~/miniconda3/bin/conda shell.bash hook)" && conda activate NAME'; for a folder of programs: --path DIR`
	return "[ $s != 127 ] || echo '" + strings.ReplaceAll(hint, "'", `'\''`) + "' >&2; "
}

// lockSetup is a shell script that takes a file lock, so that the tasks of a
// host run their --setup lines one after another: the lines may write files
// that the tasks share. The locked file is the parent of the tasks' folders.
// On a host without the flock command, the lines run at the same time.
//
// unlockSetup releases the lock explicitly. A background process of the line
// may have inherited the descriptor, and would keep the lock.
const (
	lockSetup   = `[ -n "$PLX_DIR" ] && [ -d "$PLX_DIR/.." ] && { exec 9<"$PLX_DIR/.." && flock 9; } 2>/dev/null` + "\n"
	unlockSetup = "{ flock -u 9; exec 9<&-; } 2>/dev/null\n"
)

// subject is $0 of the shell that runs a --setup line, so that the shell's
// error messages begin with it.
const subject = "plx: --setup"

// setup returns c changed to run a shell, which runs the user's --setup line
// and then replaces itself by the program. The shell searches for the program,
// because the line may change PATH.
func (c Command) setup(line, path, program string, args []string) Command {
	if shell, err := find("bash", path, c.dir); err == nil {
		c.Path = shell
		c.Argv = []string{"bash", "--noprofile", "--norc", "-c", guarded(line) + `BASH_ARGV0=plx; exec -a "$1" "${@:2}"`, subject, c.name, program}
	} else {
		c.Path = "/bin/sh"
		c.Argv = []string{"sh", "-c", guarded(line) + `exec "$@"`, subject, program}
	}
	c.added = len(c.Argv)
	c.Argv = append(c.Argv, args...)
	return c
}

// find searches the folders of path for an executable file, as execvp does. If
// name contains a slash, it is a path relative to dir.
func find(name, path, dir string) (string, error) {
	if strings.Contains(name, "/") {
		return file(absolute(name, dir))
	}
	var denied error
	for _, place := range filepath.SplitList(path) {
		found, err := file(filepath.Join(absolute(place, dir), name))
		if err == nil {
			return found, nil
		}
		if u := (unstarted{}); errors.As(err, &u) && u.code == exit.CodeNotRunning && denied == nil {
			denied = err
		}
	}
	if denied != nil {
		return "", denied
	}
	there := ""
	if name == "python" { // python may exist only under the name python3
		if _, err := find("python3", path, dir); err == nil {
			there = "; python3 is there"
		}
	}
	return "", unstartedf(exit.CodeNotFound, "%s: not found on PATH %s%s", name, path, there)
}

func absolute(path, dir string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// file returns path if path is an executable file. If not, the error gives the
// reason.
func file(path string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
		return "", unstartedf(exit.CodeNotFound, "%w", err)
	case err != nil:
		return "", unstartedf(exit.CodeNotRunning, "%w", err)
	case info.IsDir():
		return "", unstartedf(exit.CodeNotRunning, "%s is a folder, not a program", path)
	case unix.Access(path, unix.X_OK) != nil:
		return "", unstartedf(exit.CodeNotRunning, "%s is not executable", path)
	}
	return path, nil
}
