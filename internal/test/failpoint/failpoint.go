// Package failpoint injects faults into a program at named places: between two
// system calls, in the third write, or when half of a file is written.
//
// Code calls a function at the places where it can fail:
//
//	if err := fault("checkpoint.rename"); err != nil {
//		return err
//	}
//
// A test starts the program with an environment variable:
//
//	PLX_FAILPOINTS="checkpoint.rename=kill@2;checkpoint.write=error"
//
// An entry consists of the name of a place, an action and, after @, the number
// of the hit at which the action happens. A hit is one call of the function at
// this place; each process counts its hits from 1. Without @, the action
// happens at every hit. Names of places consist of letters, digits and . - _.
// The @ can also be followed by the path of a file, as in
// "wire.send=error@/tmp/now". Then the action happens once, at the first hit
// in any process that finds and removes the file. With this file, a test can
// trigger the fault when the program has reached a certain state.
//
//	error    the function Here returns an error
//	short    Here returns io.ErrShortWrite, and the caller writes half of its data
//	exit     the process exits with status 0
//	kill     the process sends itself SIGKILL
//
// Before each fault, the process writes a line such as "failpoint
// checkpoint.rename: kill" to standard error, so that a test can check that
// the fault happened.
//
// The process reads the variable at its start. If the value is invalid, it
// exits with status 2, so that no test passes because of a misspelled fault.
// If the variable is not set, Here only makes one comparison.
//
// Only programs built with the tag failpoint can fail this way; released
// binaries do not contain this package. A package with such places calls a
// function variable that does nothing by default. A file with the build tag
// sets that variable to Here.
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

// armed holds the faults of this process; nil means none. It does not change
// after init.
var armed faults

func init() {
	var err error
	if armed, err = parse(os.Getenv(variable)); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", variable, err)
		os.Exit(2)
	}
}

// Here marks the place called name. It performs the action of the first entry
// whose action is due at this hit. If there is no such entry, it returns nil.
// Several goroutines may call Here at the same time.
func Here(name string) error {
	if armed == nil {
		return nil
	}
	return armed.hit(name)
}

type faults []*fault

// fault is one entry of PLX_FAILPOINTS.
type fault struct {
	name, action string
	hit          uint64        // number of the hit at which the action happens, from 1; 0 means every hit
	file         string        // path of a file; the action happens at the hit that finds and removes the file; "" means that the field hit decides
	seen         atomic.Uint64 // number of calls of Here with this name so far
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

// actions maps each action's name to its function. If the function returns,
// Here returns the function's error.
var actions = map[string]func() error{
	"error": func() error { return errors.New("an error") },
	"short": func() error { return io.ErrShortWrite },
	"exit":  func() error { os.Exit(0); return nil },
	"kill":  kill,
}

// kill does not return. The kernel may deliver the signal to another thread,
// so this thread must not continue until the process dies.
func kill() error {
	for {
		if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
			panic(err) // cannot happen, because a process may always send a signal to itself
		}
	}
}

// parse parses the value of PLX_FAILPOINTS. It returns nil if the value is
// empty.
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

// parseEntry parses name=action, name=action@n or name=action@/path.
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
