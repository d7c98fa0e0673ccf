// Package failpoint makes a program fail where a test wants it to: between two
// system calls, in the third write, with a file half on disk.
//
// Code names the places where it can fail:
//
//	if err := failpoint.Here("checkpoint.rename"); err != nil {
//		return err
//	}
//
// and a test starts the program with
//
//	PLX_FAILPOINTS="checkpoint.rename=kill@2;checkpoint.write=enospc"
//
// An entry is a place, what happens there and, after @, at which hit, counted
// from 1 in each process; without @ it happens at every hit that has no entry
// of its own. A place's name is made of letters, digits and . - _. With the
// path of a file, as in "wire.send=error@/tmp/now", it happens at the first hit
// that finds such a file and can remove it: a test that sees how far a program
// has come can say when, and it happens once, in whichever process.
//
//	error    Here returns an error
//	enospc   Here returns an error that wraps syscall.ENOSPC
//	short    Here returns ErrShort, and the caller writes half of what it has
//	exit     the process exits with status 0
//	kill     the process sends itself SIGKILL
//	stop     the process sends itself SIGSTOP; Here returns nil after SIGCONT
//
// Each time, a line "failpoint checkpoint.rename: kill" is on standard error
// before it happens, so that a test can tell a fault that came from one that
// did not.
//
// The variable is read when the process starts. One that cannot be read ends
// it there, with exit status 2: a test must not pass because of a fault that
// was misspelt. Without the variable Here is one comparison.
//
// It is no place for behaviour that a user may want: nothing here is part of
// what plx promises.
package failpoint

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
)

// ErrShort asks the caller to write half of what it has and then to fail.
var ErrShort = errors.New("half a write")

const variable = "PLX_FAILPOINTS"

// armed is nil where no faults are wanted. It does not change.
var armed *faults

func init() {
	var err error
	if armed, err = parse(os.Getenv(variable)); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", variable, err)
		os.Exit(2)
	}
}

// Here is a place called name: it does what is wanted there, and returns nil
// where that is nothing. Any goroutine may call it.
func Here(name string) error {
	if armed == nil {
		return nil
	}
	return armed.hit(name)
}

// faults is what is wanted, and how often each place was hit.
type faults struct {
	actions map[place]action
	hits    map[string]*atomic.Uint64
	files   map[string][]awaited // by the place's name
}

// awaited happens once the file is there.
type awaited struct {
	file string
	what action
}

// place is a hit of a name; hit 0 stands for those that have no other entry.
type place struct {
	name string
	hit  uint64
}

func (f *faults) hit(name string) error {
	count := f.hits[name]
	if count == nil {
		return nil
	}
	a, wanted := f.wanted(name, count.Add(1))
	if !wanted {
		return nil
	}
	fmt.Fprintf(os.Stderr, "failpoint %s: %s\n", name, a)
	if err := a.do(); err != nil {
		return fmt.Errorf("failpoint %s: %w", name, err)
	}
	return nil
}

func (f *faults) wanted(name string, hit uint64) (action, bool) {
	for _, w := range f.files[name] {
		if os.Remove(w.file) == nil {
			return w.what, true
		}
	}
	if a, wanted := f.actions[place{name, hit}]; wanted {
		return a, true
	}
	a, wanted := f.actions[place{name, 0}]
	return a, wanted
}

type action string

// actions are what can be asked for, and what does it.
var actions = map[action]func() error{
	"error":  func() error { return errors.New("an error") },
	"enospc": func() error { return syscall.ENOSPC },
	"short":  func() error { return ErrShort },
	"exit":   exit,
	"kill":   kill,
	"stop":   stop,
}

func (a action) do() error { return actions[a]() }

func exit() error {
	os.Exit(0)
	return nil
}

// kill does not return. The signal may be another thread's to take: until it
// has come this one must not go on.
func kill() error {
	for {
		send(syscall.SIGKILL)
	}
}

// stop returns after the process went on. As with kill this thread could be
// ahead of the signal, so it waits for the one that ends the pause.
func stop() error {
	goOn := make(chan os.Signal, 1)
	signal.Notify(goOn, syscall.SIGCONT)
	defer signal.Stop(goOn)
	send(syscall.SIGSTOP)
	<-goOn
	return nil
}

func send(s syscall.Signal) {
	if err := syscall.Kill(os.Getpid(), s); err != nil {
		panic(err) // a process may always signal itself
	}
}
