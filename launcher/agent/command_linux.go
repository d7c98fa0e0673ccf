package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

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

// command is what is executed: a file, its arguments with argv[0], and the
// folder it runs in.
type command struct {
	path string
	argv []string
	dir  string
}

// resolve finds the program of a task, whose environment and own folder are
// given. Its errors are unstarted ones.
func resolve(c protocol.Command, env []string, own string) (command, error) {
	dir, err := chdir(string(c.Chdir), own)
	if err != nil {
		return command{}, err
	}
	program, name := string(c.Name), string(c.Name)
	if c.Blob != "" {
		if program, err = blobPath(c.Blob); err != nil {
			return command{}, unstarted{codePlx, err}
		}
		name = string(c.Base)
	}
	args := []string{}
	for _, a := range c.Args {
		args = append(args, string(a))
	}
	path, _ := lookup(env, "PATH")
	if c.Setup != "" {
		return setup(string(c.Setup), path, dir, program, name, args)
	}
	if program, err = find(program, path, dir); err != nil {
		return command{}, err
	}
	return command{path: program, argv: append([]string{name}, args...), dir: dir}, nil
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
// without its setup would fail later, or compute something else.
const guarded = "\n" + `{ s=$?; [ $s = 0 ] || { echo "plx: --setup ended with status $s" >&2; exit $s; }; unset s; }` + "\n"

// setup makes a shell run the user's line and become the program, which is
// looked up only then, as the line may change PATH.
func setup(line, path, dir, program, name string, args []string) (command, error) {
	if shell, err := find("bash", path, dir); err == nil {
		argv := []string{"bash", "--noprofile", "--norc", "-c", line + guarded + `exec -a "$1" "${@:2}"`, "plx", name, program}
		return command{path: shell, argv: append(argv, args...), dir: dir}, nil
	}
	argv := []string{"sh", "-c", line + guarded + `exec "$@"`, "plx", program}
	return command{path: "/bin/sh", argv: append(argv, args...), dir: dir}, nil
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

// busy bounds how long a program file is waited for that another process
// still has open for writing: a copy of it that was forked at the wrong moment
// closes it at once.
const busy = 2 * time.Second

// run starts the command with f, which returns exec's error.
func (c command) run(f func() error) error {
	deadline := time.Now().Add(busy)
	err := f()
	for errors.Is(err, unix.ETXTBSY) && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
		err = f()
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENOEXEC):
		return unstartedf(codeNotRunning, "%s: not a program for this machine: "+
			"a script without a #! line, or built for another architecture", c.path)
	case errors.Is(err, unix.ENOENT):
		return unstartedf(codeNotRunning, "%s: its interpreter or dynamic loader is not on this host", c.path)
	}
	return unstartedf(codeNotRunning, "execute %s: %w", c.path, err)
}
