package agent

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// allowedCores returns the cores that this process may run on.
func allowedCores() ([]int, error) {
	set := unix.NewCPUSet(maxCores)
	if err := unix.SchedGetaffinityDynamic(0, set); err != nil {
		return nil, fmt.Errorf("read the allowed cores: %w", err)
	}
	var cores []int
	for c := range maxCores {
		if set.IsSet(c) {
			cores = append(cores, c)
		}
	}
	return cores, nil
}

// maxCores is the largest number of cores that Linux can be built for.
const maxCores = 8192

// share returns the cores of local worker i of n: contiguous, disjoint while
// there are enough of them, never empty.
func share(cores []int, i, n int) []int {
	m := len(cores)
	if m == 0 || n <= 0 || i < 0 || i >= n {
		return nil
	}
	if m < n {
		return cores[i%m : i%m+1]
	}
	return cores[i*m/n : (i+1)*m/n]
}

// bound runs f with the calling thread bound to cores, so that a process
// forked by f is. The caller is locked to its thread.
func bound(cores []int, f func() error) error {
	if len(cores) == 0 {
		return f()
	}
	before := unix.NewCPUSet(maxCores)
	if err := unix.SchedGetaffinityDynamic(0, before); err != nil {
		return fmt.Errorf("read the allowed cores: %w", err)
	}
	wanted := unix.NewCPUSet(maxCores)
	for _, c := range cores {
		wanted.Set(c)
	}
	if err := unix.SchedSetaffinityDynamic(0, wanted); err != nil {
		return fmt.Errorf("bind to cores %v: %w", cores, err)
	}
	defer func() {
		// These cores were allowed a moment ago. If they are no longer,
		// the kernel has moved the thread itself.
		_ = unix.SchedSetaffinityDynamic(0, before)
	}()
	return f()
}
