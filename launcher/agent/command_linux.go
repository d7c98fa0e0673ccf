package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/protocol"
)

// Exit statuses of tasks that could not be started, as shells use them; the
// first is plx's own.
const (
	codePlx        = 125
	codeNotRunning = 126
	codeNotFound   = 127
)

// unstarted says why a task could not be started and with which exit status
// that is reported.
type unstarted struct {
	code int
	error
}

func unstartedf(code int, format string, args ...any) error {
	return unstarted{code, fmt.Errorf(format, args...)}
}

// command is what is executed: a file, its arguments with argv[0], the folder
// it runs in and its environment.
type command struct {
	path string
	argv []string
	dir  string
	env  []string
	name string // of the user's program, in texts
	own  int    // how many of argv are not the user's arguments
}

// resolve finds the program of a task, whose environment and own folder are
// given. Its errors are unstarted ones.
func resolve(c protocol.Command, env []string, own string) (command, error) {
	dir, err := chdir(string(c.Chdir), own)
	if err != nil {
		return command{}, err
	}
	args := []string{}
	for _, a := range c.Args {
		args = append(args, string(a))
	}
	path, _ := lookup(env, "PATH")
	program, name := string(c.Name), string(c.Name)
	if c.Blob != "" {
		name = string(c.Base)
		if program, err = shipped(c.Blob, name); err != nil {
			return command{}, err
		}
	}
	cmd := command{dir: dir, env: env, name: name}
	if c.Setup != "" {
		return cmd.setup(string(c.Setup), path, program, args), nil
	}
	if cmd.path, err = find(program, path, dir); err != nil {
		return command{}, err
	}
	if c.Blob == "" {
		cmd.name = cmd.path // says which of several was found
		if why := missingInterpreter(cmd.path); why != "" {
			return command{}, unstartedf(codeNotRunning, "%s: %s", cmd.name, why)
		}
	}
	cmd.argv, cmd.own = append([]string{name}, args...), 1
	return cmd, nil
}

// shipped returns the path of a program that was copied to this host. What
// can be said against it is said here, as errors of a shell that runs it would
// name a file that the user has never seen.
func shipped(sum, name string) (string, error) {
	path, err := blobPath(sum)
	if err != nil {
		return "", unstarted{codePlx, err}
	}
	if _, err := os.Stat(path); err != nil {
		var cause *fs.PathError
		if errors.As(err, &cause) {
			err = cause.Err
		}
		return "", unstartedf(codeNotFound, "%s: its copy on this host, %s: %w", name, path, err)
	}
	if why := missingInterpreter(path); why != "" {
		return "", unstartedf(codeNotRunning, "%s: %s", name, why)
	}
	return path, nil
}

// chdir returns the folder that a task runs in.
func chdir(wanted, own string) (string, error) {
	if wanted == "" {
		return own, nil
	}
	if !filepath.IsAbs(wanted) {
		base, err := home()
		if err != nil {
			return "", unstarted{codePlx, err}
		}
		wanted = filepath.Join(base, wanted)
	}
	info, err := os.Stat(wanted)
	if err != nil {
		return "", unstartedf(codePlx, "working folder: %w", err)
	}
	if !info.IsDir() {
		return "", unstartedf(codePlx, "working folder %s is not a folder", wanted)
	}
	return wanted, nil
}

// guarded ends the shell when the user's line failed: a program that runs
// without its setup would fail later, or compute something else. The line is a
// word of its own, so that nothing in it, such as an open quote, can take the
// guard in; the empty line at its end is for one that ends in a backslash.
func guarded(line string) string {
	return "eval ' " + strings.ReplaceAll(line, "'", `'\''`) + "\n\n'\n" +
		`{ s=$?; [ $s = 0 ] || { echo "plx: --setup ended with status $s" >&2; exit $s; }; unset s; }` + "\n"
}

// setup makes a shell run the user's line and become the program, which is
// looked up only then, as the line may change PATH. What the shell complains
// of is said to be in --setup.
func (c command) setup(line, path, program string, args []string) command {
	const subject = "plx: --setup"
	if shell, err := find("bash", path, c.dir); err == nil {
		c.path = shell
		c.argv = []string{"bash", "--noprofile", "--norc", "-c", guarded(line) + `BASH_ARGV0=plx; exec -a "$1" "${@:2}"`, subject, c.name, program}
	} else {
		c.path = "/bin/sh"
		c.argv = []string{"sh", "-c", guarded(line) + `exec "$@"`, subject, program}
	}
	c.own = len(c.argv)
	c.argv = append(c.argv, args...)
	return c
}

// find looks a name up on path, as execvp does. A name with a slash is a file,
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
		if u := (unstarted{}); errors.As(err, &u) && u.code == codeNotRunning && denied == nil {
			denied = err
		}
	}
	if denied != nil {
		return "", denied
	}
	return "", unstartedf(codeNotFound, "%s: not found on PATH %s", name, path)
}

func absolute(path, dir string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// file accepts an executable file.
func file(path string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
		return "", unstartedf(codeNotFound, "%w", err)
	case err != nil:
		return "", unstartedf(codeNotRunning, "%w", err)
	case info.IsDir():
		return "", unstartedf(codeNotRunning, "%s is a folder, not a program", path)
	case unix.Access(path, unix.X_OK) != nil:
		return "", unstartedf(codeNotRunning, "%s is not executable", path)
	}
	return path, nil
}
