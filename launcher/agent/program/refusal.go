//go:build linux

package program

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// busy bounds how long Run waits for a program file that another process has
// open for writing. A process that was forked while the file was written closes
// it at once.
const busy = 2 * time.Second

// Run starts the command by start, which returns the error of exec. It says in
// words why the kernel refused.
func (c Command) Run(start func() error) error {
	deadline := time.Now().Add(busy)
	err := start()
	for errors.Is(err, unix.ETXTBSY) && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
		err = start()
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENOEXEC):
		return unstartedf(codeNotRunning, "%s: not a program for this machine: "+
			"a script without a #! line, or built for another architecture", c.name)
	case errors.Is(err, unix.ENOENT):
		return unstartedf(codeNotRunning, "%s: its interpreter or dynamic loader is not on this host", c.name)
	case errors.Is(err, unix.E2BIG):
		return unstartedf(codeNotRunning, "%s: %s", c.name, c.tooLong())
	}
	return unstartedf(codeNotRunning, "execute %s: %w", c.name, err)
}

// tooLong says which argument or variable is longer than the kernel accepts, or
// that all are together. It shows no values, because they may be secrets.
func (c Command) tooLong() string {
	limit := 32 * os.Getpagesize() // MAX_ARG_STRLEN: bytes of one string with its final 0
	total, what, longest := 0, "", -1
	note := func(name, s string) {
		total += len(s) + 1
		if len(s) > longest {
			what, longest = name, len(s)
		}
	}
	for i, a := range c.Argv {
		name := "the command"
		switch {
		case i >= c.own:
			name = fmt.Sprintf("argument %d", i-c.own+1)
		case c.own > 1:
			name = "--setup"
		}
		note(name, a)
	}
	for _, e := range c.env {
		name, _, _ := strings.Cut(e, "=")
		note("the variable "+name, e)
	}
	if longest >= limit {
		return fmt.Sprintf("%s has %d bytes, the kernel takes less than %d KiB in one: put it into a file", what, longest, limit>>10)
	}
	return fmt.Sprintf("arguments and environment have %d bytes in %d strings, more than the kernel takes on this host "+
		"(a quarter of the limit on the stack, ulimit -s); the longest is %s with %d bytes", total, len(c.Argv)+len(c.env), what, longest)
}
