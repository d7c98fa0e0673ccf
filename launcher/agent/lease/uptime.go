//go:build linux

package lease

import (
	"time"

	"golang.org/x/sys/unix"
)

// Uptime is the time since the machine started. It includes the time for which
// the machine was suspended, because the rest of the job gives the host up
// meanwhile. It does not jump when somebody sets the clock.
func Uptime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(err) // every kernel that Go supports has it
	}
	return time.Duration(t.Nano())
}
