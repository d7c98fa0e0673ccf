// Package failpoint makes a program fail where a test wants it to: between two
// system calls, in the third write, with a file half on disk.
//
// Code names the places where it can fail:
//
//	if err := fault("checkpoint.rename"); err != nil {
//		return err
//	}
//
// and a test starts the program with
//
//	PLX_FAILPOINTS="checkpoint.rename=kill@2;checkpoint.write=error"
//
// An entry is a place, what happens there and, after @, at which hit, counted
// from 1 in each process. Without @ it happens at every hit. A place's name is made
// of letters, digits and . - _. With the path of a file, as in
// "wire.send=error@/tmp/now", it happens at the first hit that can remove such a
// file: a test that sees how far a program has come decides when. It then happens
// once, in whichever process.
//
//	error    Here returns an error
//	short    Here returns io.ErrShortWrite, and the caller writes half of what it has
//	exit     the process exits with status 0
//	kill     the process sends itself SIGKILL
//
// Before each fault a line "failpoint checkpoint.rename: kill" is written to
// standard error: a test can tell a fault that came from one that did not.
//
// The variable is read when the process starts. If it cannot be read the process
// exits with status 2: no test may pass because a fault was misspelt. Without the
// variable Here is one comparison.
//
// Only a program that is built with the tag failpoint can fail so: nothing of this package
// is in what users get. A package with places calls a variable that does nothing, and which a
// file with that tag sets to Here.
package failpoint

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

const variable = "PLX_FAILPOINTS"

// armed are the faults of this process; nil means none. It does not change.
var armed faults

func init() {
	var err error
	if armed, err = parse(os.Getenv(variable)); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", variable, err)
		os.Exit(2)
	}
}

// Here is a place called name. It does what the first entry wants that is due
// there, and returns nil if none is. Any goroutine may call it.
func Here(name string) error {
	if armed == nil {
		return nil
	}
	return armed.hit(name)
}

type faults []*fault

// fault is one entry of the variable.
type fault struct {
	name, action string
	hit          uint64        // number of the hit at which it happens, from 1; 0 means every hit
	file         string        // it happens at the hit that removes this file; "" means hit counts
	seen         atomic.Uint64 // hits so far
}

func (all faults) hit(name string) error {
	var due *fault
	for _, f := range all {
		if f.name == name && f.due() && due == nil {
			due = f
		}
	}
	if due == nil {
		return nil
	}
	fmt.Fprintf(os.Stderr, "failpoint %s: %s\n", name, due.action)
	return fmt.Errorf("failpoint %s: %w", name, actions[due.action]())
}

func (f *fault) due() bool {
	if f.file != "" {
		return os.Remove(f.file) == nil
	}
	n := f.seen.Add(1)
	return f.hit == 0 || f.hit == n
}

// actions do what an entry asks for. Those that return give the error of Here.
var actions = map[string]func() error{
	"error": func() error { return errors.New("an error") },
	"short": func() error { return io.ErrShortWrite },
	"exit":  func() error { os.Exit(0); return nil },
	"kill":  kill,
}

// kill does not return. Another thread may take the signal: until it comes this
// one must not go on.
func kill() error {
	for {
		if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
			panic(err) // a process may always signal itself
		}
	}
}

// parse reads the variable; of an empty one it returns nil.
func parse(text string) (faults, error) {
	if text == "" {
		return nil, nil
	}
	var all faults
	for entry := range strings.SplitSeq(text, ";") {
		f, err := parseEntry(entry)
		if err != nil {
			return nil, fmt.Errorf("entry %q: %w", entry, err)
		}
		all = append(all, f)
	}
	return all, nil
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_"

// parseEntry reads name=action, name=action@n or name=action@/path.
func parseEntry(entry string) (*fault, error) {
	name, rest, _ := strings.Cut(entry, "=")
	action, when, counted := strings.Cut(rest, "@")
	f := &fault{name: name, action: action}
	var err error
	switch {
	case name == "" || strings.Trim(name, letters) != "":
		return nil, fmt.Errorf("name %q, want letters, digits and . - _", name)
	case actions[action] == nil:
		return nil, fmt.Errorf("action %q, want error, exit, kill or short", action)
	case strings.HasPrefix(when, "/"):
		f.file = when
	case counted:
		if f.hit, err = strconv.ParseUint(when, 10, 64); err != nil || f.hit == 0 {
			return nil, fmt.Errorf("hit %q, want a whole number from 1 on, or a file's path from the root", when)
		}
	}
	return f, nil
}
