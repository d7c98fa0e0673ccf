package driver

import "golang.org/x/sys/unix"

// bootClock is a clock that also counts time while the machine sleeps. On
// macOS, CLOCK_MONOTONIC does so; on Linux it does not.
const bootClock = unix.CLOCK_MONOTONIC
