package tree

import (
	"syscall"
	"time"
)

// changed returns the time of the inode's last change (ctime).
//
// TODO: run this on macOS; plx compiles for macOS, but was never run there.
func changed(s *syscall.Stat_t) time.Time { return time.Unix(s.Ctimespec.Unix()) }
