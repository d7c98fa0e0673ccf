package transporttest

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"

	"github.com/plx-run/plx/launcher/transport"
)

// Shell is a Transport that runs commands on the local machine, for tests of
// other packages. Its value is the home directory of the commands. It does not
// support Copy.
type Shell string

// Run runs a script of /bin/sh.
func (s Shell) Run(ctx context.Context, command string, stdin io.Reader, stdout, stderr io.Writer) error {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	cmd.Env = append(os.Environ(), "HOME="+string(s))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
	err := cmd.Run()
	if e := (&exec.ExitError{}); errors.As(err, &e) {
		return &transport.ExitError{Status: e.ExitCode()}
	}
	return err
}

// Copy panics.
func (s Shell) Copy(context.Context, io.Reader, string) error {
	panic("transporttest: a Shell copies nothing")
}

// Close returns nil.
func (s Shell) Close() error { return nil }
