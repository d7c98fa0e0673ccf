package agent

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
)

// busy bounds how long a program file is waited for that another process
// still has open for writing: a copy of it that was forked at the wrong moment
// closes it at once.
const busy = 2 * time.Second

// run starts the command with f, which returns exec's error, and says in words
// why the kernel refused.
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
			"a script without a #! line, or built for another architecture", c.name)
	case errors.Is(err, unix.ENOENT):
		return unstartedf(codeNotRunning, "%s: its interpreter or dynamic loader is not on this host", c.name)
	case errors.Is(err, unix.E2BIG):
		return unstartedf(codeNotRunning, "%s: %s", c.name, c.tooLong())
	}
	return unstartedf(codeNotRunning, "execute %s: %w", c.name, err)
}

// missingInterpreter says which program the kernel or env would run the file
// at path with, and cannot; "" when nothing is known to be missing.
func missingInterpreter(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return "" // an executable need not be readable
	}
	defer f.Close() // only read
	head := make([]byte, 256)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return ""
	}
	if line, ok := bytes.CutPrefix(head[:n], []byte("#!")); ok {
		return missingShell(line)
	}
	loader := loaderOf(f)
	if loader == "" || !notThere(loader) {
		return ""
	}
	return fmt.Sprintf("its loader %s is not on this host, which has another C library (musl?) than the program wants: "+
		"build it static; a Go program that uses plx's trainer with -tags nodlopen", loader)
}

// missingShell judges what stands behind "#!" in a script.
func missingShell(head []byte) string {
	line, _, whole := bytes.Cut(head, []byte("\n"))
	text, windows := strings.CutSuffix(string(line), "\r")
	fields := strings.Fields(text)
	if len(fields) == 0 || !whole {
		return ""
	}
	// With options, the last of them has the CR, and some interpreters
	// pardon that.
	ends := len(fields) == 1 || len(fields) == 2 && filepath.Base(fields[0]) == "env" && fields[1][0] != '-'
	if windows && ends {
		return fmt.Sprintf("the file has Windows line ends, so that its #! line asks for %q: convert it, as with dos2unix",
			fields[len(fields)-1]+"\r")
	}
	if filepath.IsAbs(fields[0]) && notThere(fields[0]) {
		return fmt.Sprintf("its interpreter %s is not on this host", fields[0])
	}
	return ""
}

// maxLoader bounds the path of a loader, as the kernel does.
const maxLoader = 4096

// loaderOf returns the loader that an ELF file asks for, "" where it is static
// or no ELF file.
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

// notThere reports whether nothing has that path.
func notThere(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// tooLong says what of the arguments and the environment is more than the
// kernel takes. Values are not shown: they may be secrets.
func (c command) tooLong() string {
	limit := 32 * os.Getpagesize() // of one string with its final 0: MAX_ARG_STRLEN
	total, what, longest := 0, "", -1
	note := func(name, s string) {
		total += len(s) + 1
		if len(s) > longest {
			what, longest = name, len(s)
		}
	}
	for i, a := range c.argv {
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
		"(a quarter of the limit on the stack, ulimit -s); the longest is %s with %d bytes", total, len(c.argv)+len(c.env), what, longest)
}
