//go:build linux

package program

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/exit"
)

// missingInterpreter returns a message if the program at path needs an
// interpreter or dynamic loader that this host does not have. The message
// names the missing file. It is "" if nothing is missing.
func missingInterpreter(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return "" // an executable file need not be readable, and nothing can be found out about such a file
	}
	defer f.Close() // the file was only read
	head := make([]byte, 256)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return ""
	}
	if line, ok := bytes.CutPrefix(head[:n], []byte("#!")); ok {
		return missingShell(line)
	}
	loader := loaderOf(f)
	if loader == "" || !missing(loader) {
		return ""
	}
	return fmt.Sprintf("its dynamic loader %s is not on this host, which has another C library (musl?) than the program needs: "+
		"link the program statically; build a Go program that uses plx's trainer with -tags nodlopen", loader)
}

// missingShell returns a message if a script needs an interpreter that this
// host does not have, or "". head is the start of the file after "#!".
func missingShell(head []byte) string {
	line, _, whole := bytes.Cut(head, []byte("\n"))
	text, windows := strings.CutSuffix(string(line), "\r")
	fields := strings.Fields(text)
	if len(fields) == 0 || !whole {
		return ""
	}
	// In a file with Windows line ends, the last word of the #! line ends with
	// a carriage return. If that word is an option, some interpreters accept
	// it. So report the line ends only if the line has no options.
	ends := len(fields) == 1 || len(fields) == 2 && filepath.Base(fields[0]) == "env" && fields[1][0] != '-'
	if windows && ends {
		return fmt.Sprintf("the file has Windows line ends, so that its #! line asks for %q: convert it, as with dos2unix",
			fields[len(fields)-1]+"\r")
	}
	if filepath.IsAbs(fields[0]) && missing(fields[0]) {
		return fmt.Sprintf("its interpreter %s is not on this host", fields[0])
	}
	return ""
}

// maxLoader is the longest path of a dynamic loader that the kernel accepts,
// in bytes.
const maxLoader = 4096

// loaderOf returns the path of the dynamic loader that an ELF file requires.
// It returns "" for a statically linked program and for a file that is not
// ELF.
func loaderOf(f io.ReaderAt) string {
	program, err := elf.NewFile(f)
	if err != nil {
		return ""
	}
	for _, p := range program.Progs {
		if p.Type != elf.PT_INTERP || p.Filesz == 0 || p.Filesz > maxLoader {
			continue
		}
		text := make([]byte, p.Filesz)
		if _, err := p.ReadAt(text, 0); err != nil {
			return ""
		}
		text, _, _ = bytes.Cut(text, []byte{0})
		return string(text)
	}
	return ""
}

// missing reports whether no file exists at path.
func missing(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// busyTimeout is how long Run retries if another process has the program file
// open for writing (ETXTBSY). Usually that process was forked while plx wrote
// the file, and will close the file when it calls exec.
const busyTimeout = 2 * time.Second

// Run calls start, which executes the command and returns the error of exec.
// If the kernel has refused, Run returns an error that explains the reason.
func (c Command) Run(start func() error) error {
	deadline := time.Now().Add(busyTimeout)
	err := start()
	for errors.Is(err, unix.ETXTBSY) && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
		err = start()
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENOEXEC):
		return unstartedf(exit.CodeNotRunning, "%s: not a program for this machine: "+
			"a script without a #! line, or built for another architecture", c.name)
	case errors.Is(err, unix.ENOENT):
		return unstartedf(exit.CodeNotRunning, "%s: its interpreter or dynamic loader is not on this host", c.name)
	case errors.Is(err, unix.E2BIG):
		return unstartedf(exit.CodeNotRunning, "%s: %s", c.name, c.tooLong())
	}
	return unstartedf(exit.CodeNotRunning, "execute %s: %w", c.name, err)
}

// tooLong returns a message for the kernel's error E2BIG. It names the
// argument or variable that is too long, or says that all of them together are
// too long. The message contains no values, because they may be secrets.
func (c Command) tooLong() string {
	limit := 32 * os.Getpagesize() // MAX_ARG_STRLEN: the kernel's limit for one string, in bytes, with its terminating 0
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
		case i >= c.added:
			name = fmt.Sprintf("argument %d", i-c.added+1)
		case c.added > 1:
			name = "--setup"
		}
		note(name, a)
	}
	for _, e := range c.env {
		name, _, _ := strings.Cut(e, "=")
		note("the variable "+name, e)
	}
	if longest >= limit {
		return fmt.Sprintf("%s has %d bytes, but the kernel accepts less than %d KiB for one: pass the value in a file", what, longest, limit>>10)
	}
	return fmt.Sprintf("arguments and environment have %d bytes in %d strings, more than the kernel accepts on this host "+
		"(a quarter of the limit on the stack, ulimit -s); the longest is %s with %d bytes", total, len(c.Argv)+len(c.env), what, longest)
}
