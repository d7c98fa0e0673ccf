package tree

import (
	"io/fs"
	"syscall"
	"time"
)

// openFlags keep an open from following a link and from waiting for a writer.
const openFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// identity returns what of a file does not stay when its content changes. False:
// the file system does not tell.
func identity(info fs.FileInfo) (cached, bool) {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return cached{}, false
	}
	return cached{Size: info.Size(), ModTime: info.ModTime().UnixNano(), Change: time.Unix(s.Ctimespec.Unix()).UnixNano(),
		Inode: s.Ino, Device: uint64(s.Dev)}, true
}
