package tree

import (
	"syscall"
	"time"
)

// changed returns the time of the inode's last change (ctime).
func changed(s *syscall.Stat_t) time.Time { return time.Unix(s.Ctim.Unix()) }
