// Package limits checks whether the resource limits of the shell (ulimit)
// allow plx to run.
//
//	if err := limits.Check(); err != nil {
//		return err // the shell limits the number of open files to 20 (ulimit -n)
//	}
//
// Without this check, the Go runtime would print pages of stack traces when it
// gets no memory or thread. If the runtime fails before main begins, this
// check comes too late. For agents, package bootstrap then turns the runtime's
// output into a short message.
package limits

import (
	"fmt"

	"golang.org/x/sys/unix"
)

const (
	// minFiles is the number of files that plx opens for itself. It does not
	// include the files for each host or task.
	minFiles = 48
	// minMemory is the smallest amount of memory, in bytes, that plx must be
	// able to map after its start.
	minMemory = 128 << 20
	// minThreads is the smallest number of threads that plx starts.
	minThreads = 16
	// enoughProcesses is a number of processes that suffices in every case. If
	// the limit is at least this high, plx does not count the user's
	// processes.
	enoughProcesses = 8192
)

// Check returns an error that names the first limit that is too low for plx.
// It returns nil if none is.
func Check() error {
	if most, limited := limit(unix.RLIMIT_NOFILE); limited && most < minFiles {
		return fmt.Errorf("the shell limits the number of open files to %d (ulimit -n)", most)
	}
	if err := memory(); err != nil {
		return err
	}
	return processes()
}

// limit returns the soft limit of this process for a resource, and whether
// there is a limit. For open files, the Go runtime has already raised the soft
// limit to the hard limit.
func limit(resource int) (most uint64, limited bool) {
	var l unix.Rlimit
	err := unix.Getrlimit(resource, &l)
	return uint64(l.Cur), err == nil && uint64(l.Cur) < 1<<62
}

// memory checks whether the memory limits leave enough room for plx. It tries
// to map minMemory bytes. The limits alone do not tell how much room is left,
// because the Go runtime reserves a different amount of address space under
// each limit.
func memory() error {
	space, spaceLimited := limit(unix.RLIMIT_AS)
	data, dataLimited := limit(unix.RLIMIT_DATA)
	if !spaceLimited && !dataLimited {
		return nil
	}
	try := func(access int) error {
		mapped, err := unix.Mmap(-1, 0, minMemory, access, unix.MAP_ANON|unix.MAP_PRIVATE)
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
