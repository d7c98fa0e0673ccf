package driver

import "golang.org/x/sys/unix"

// CLOCK_MONOTONIC of macOS counts sleep, unlike that of Linux.
const bootClock = unix.CLOCK_MONOTONIC
