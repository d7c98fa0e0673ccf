package tree

import (
	"syscall"
	"time"
)

// changed is when the inode changed last.
func changed(s *syscall.Stat_t) time.Time { return time.Unix(s.Ctimespec.Unix()) }
