//go:build linux

package process

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// AllowedCores returns the cores that this process may run on.
func AllowedCores() ([]int, error) {
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

// ShareOfCores returns the cores of worker i among the n workers of a host. Each
// share is contiguous and has at least one core. Shares are disjoint unless there
// are more workers than cores.
func ShareOfCores(cores []int, i, n int) []int {
	m := len(cores)
	if m == 0 || n <= 0 || i < 0 || i >= n {
		return nil
	}
	if m < n {
		return cores[i%m : i%m+1]
	}
	return cores[i*m/n : (i+1)*m/n]
}

// bind binds the calling thread to cores, so that a process that it forks inherits
// that. The caller must be locked to its thread.
func bind(cores []int) error {
	set := unix.NewCPUSet(maxCores)
	for _, c := range cores {
		set.Set(c)
	}
	if err := unix.SchedSetaffinityDynamic(0, set); err != nil {
		return fmt.Errorf("bind to cores %v: %w", cores, err)
	}
	return nil
}
