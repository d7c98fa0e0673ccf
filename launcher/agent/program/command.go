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

// unstarted says why a task could not be started.
type unstarted struct {
	code int // exit status that is reported for the task: 126 or 127
	error
}

// ExitCode is the exit status that is reported for a task that could not be
// started because of err.
func ExitCode(err error) int {
	if u := (unstarted{}); errors.As(err, &u) {
		return u.code
	}
	return exit.CodePlx
}

func unstartedf(code int, format string, args ...any) error {
	return unstarted{code, fmt.Errorf(format, args...)}
}

// Command is what a task executes.
type Command struct {
	Path string   // the file to execute
	Argv []string // arguments, argv[0] first

	dir  string   // working folder
	env  []string // environment, as NAME=VALUE
	name string   // the user's program as messages name it
	own  int      // number of elements at the start of Argv that are not the user's; argv[0] counts
}

// Resolve finds the program of a task with the given environment and working
// folder.
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
		cmd.name = cmd.Path // says which of several was found
		if why := missingInterpreter(cmd.Path); why != "" {
			return Command{}, unstartedf(exit.CodeNotRunning, "%s: %s", cmd.name, why)
		}
	}
	cmd.Argv, cmd.own = append([]string{name}, args...), 1
	return cmd, nil
}

// shipped returns the path of a program that was copied to this host. It reports
// what is wrong with the copy, because a shell that runs it would name a file
// that the user has never seen.
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

// WorkingFolder returns the folder that a task runs in: wanted, relative to the
// home, or the task's own folder if wanted is "".
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

// guarded makes the shell exit if the user's line fails: a program that runs
// without its setup would fail later, or compute something else. The line is one
// quoted word, so that nothing in it, such as an open quote, can include the
// check. The empty line at its end serves a line that ends in a backslash.
func guarded(line string) string { return turn + evaluated(line, "") + endTurn }

// evaluated runs the line, with redirections, and makes the shell exit if it fails.
func evaluated(line, redirections string) string {
	return "eval ' " + strings.ReplaceAll(line, "'", `'\''`) + "\n\n'" + redirections + "\n" +
		`{ s=$?; [ $s = 0 ] || { echo "plx: --setup ended with status $s" >&2; ` + startUpHint(line) + `exit $s; }; unset s; }` + "\n"
}

// startUpHint returns shell that says, if the line did not find a command, that start-up
// files do nothing for it. It is empty for a line that relies on none.
func startUpHint(line string) string {
	if !slices.ContainsFunc([]string{"bashrc", "profile", "conda"}, func(word string) bool { return strings.Contains(line, word) }) {
		return ""
	}
	const hint = `plx: --setup: hint: start-up files such as .bashrc mostly end early where nobody types; ` +
		`for conda: --setup 'eval "$(~/miniconda3/bin/conda shell.bash hook)" && conda activate NAME'; for a folder of programs: --path DIR`
	return "[ $s != 127 ] || echo '" + strings.ReplaceAll(hint, "'", `'\''`) + "' >&2; "
}

// turn makes the tasks of a host run their lines one after another, because a line may
// write files that the tasks share. The lock is on the folder of the tasks' folders; a
// host without flock has none. endTurn unlocks it, also if the line has left a process
// that has inherited the file.
const (
	turn    = `[ -n "$PLX_DIR" ] && [ -d "$PLX_DIR/.." ] && { exec 9<"$PLX_DIR/.." && flock 9; } 2>/dev/null` + "\n"
	endTurn = "{ flock -u 9; exec 9<&-; } 2>/dev/null\n"
)

// subject begins the messages of a shell.
const subject = "plx: --setup"

// setup makes a shell run the user's line and then become the program. The shell
// looks the program up, because the line may change PATH. The shell's messages
// begin with "plx: --setup".
func (c Command) setup(line, path, program string, args []string) Command {
	if shell, err := find("bash", path, c.dir); err == nil {
		c.Path = shell
		c.Argv = []string{"bash", "--noprofile", "--norc", "-c", guarded(line) + `BASH_ARGV0=plx; exec -a "$1" "${@:2}"`, subject, c.name, program}
	} else {
		c.Path = "/bin/sh"
		c.Argv = []string{"sh", "-c", guarded(line) + `exec "$@"`, subject, program}
	}
	c.own = len(c.Argv)
	c.Argv = append(c.Argv, args...)
	return c
}

// find looks a name up on path, as execvp does. A name with a slash is a path
// relative to dir.
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
	if name == "python" { // which many hosts do not have
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

// file returns path if it is an executable file.
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
