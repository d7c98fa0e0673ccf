// Package limits tells ahead whether the limits of the shell (ulimit) leave plx what it needs.
//
//	if err := limits.Check(); err != nil {
//		return err // the shell limits the number of open files to 20 (ulimit -n)
//	}
//
// Go ends a process that gets no memory or thread with pages of stacks. It also does that before
// main begins, which nothing in the process can prevent: the launcher puts what an agent says then
// into words, see package bootstrap.
package limits

import (
	"fmt"

	"golang.org/x/sys/unix"
)

const (
	// files are those that plx opens on its own: what it does for each host or task comes on top.
	files = 48
	// room is what plx maps after its start, at the least, in bytes.
	room = 128 << 20
	// threads are those that plx starts, at the least.
	threads = 16
	// many is the number of processes from which a limit is none for plx.
	many = 8192
)

// Check returns which limit is too low for plx; nil: none is.
func Check() error {
	if most, limited := limit(unix.RLIMIT_NOFILE); limited && most < files {
		return fmt.Errorf("the shell limits the number of open files to %d (ulimit -n)", most)
	}
	if err := memory(); err != nil {
		return err
	}
	return processes()
}

// limit returns a limit of this process. Go has raised that of files to the hard one.
func limit(resource int) (most uint64, limited bool) {
	var l unix.Rlimit
	err := unix.Getrlimit(resource, &l)
	return uint64(l.Cur), err == nil && uint64(l.Cur) < 1<<62
}

// memory tries whether a limit of memory leaves room. How much Go has reserved for itself by now
// depends on the limit.
func memory() error {
	space, spaceLimited := limit(unix.RLIMIT_AS)
	data, dataLimited := limit(unix.RLIMIT_DATA)
	if !spaceLimited && !dataLimited {
		return nil
	}
	try := func(access int) error {
		mapped, err := unix.Mmap(-1, 0, room, access, unix.MAP_ANON|unix.MAP_PRIVATE)
		if err == nil {
			err = unix.Munmap(mapped)
		}
		return err
	}
	switch {
	case spaceLimited && try(unix.PROT_NONE) == unix.ENOMEM:
		return fmt.Errorf("the shell limits the address space to %d MiB (ulimit -v)", space>>20)
	case dataLimited && try(unix.PROT_READ|unix.PROT_WRITE) == unix.ENOMEM:
		return fmt.Errorf("the shell limits the memory for data to %d MiB (ulimit -d)", data>>20)
	}
	return nil
}
