//go:build linux

package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/protocol"
)

// lookTimeout is how long ReadFolder waits for the file system of a folder,
// which may be a network file system that hangs.
const lookTimeout = 5 * time.Second

// ReadFolder examines a folder: its size, free space, mount point and whether
// this user can write to it. To test that, ReadFolder creates a small file and
// removes it. If the file system does not respond within lookTimeout,
// ReadFolder returns without these values.
func ReadFolder(path string) protocol.Folder {
	found := make(chan protocol.Folder, 1)
	go func() { found <- folder(path) }()
	select {
	case f := <-found:
		return f
	case <-time.After(lookTimeout):
		f := notKnown(path)
		f.Unwritable = fmt.Sprintf("no answer within %s", lookTimeout)
		return f
	}
}

func notKnown(path string) protocol.Folder {
	return protocol.Folder{Path: path, SizeKiB: protocol.NotKnown, FreeKiB: protocol.NotKnown, FreeInodes: protocol.NotKnown}
}

func folder(path string) protocol.Folder {
	f := notKnown(path)
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		f.Missing = true
		return f
	}
	var disk unix.Statfs_t
	if unix.Statfs(path, &disk) == nil {
		if disk.Blocks > 0 { // a file system without a size limit, such as a tmpfs with size=0, reports 0 blocks
			f.SizeKiB, f.FreeKiB = int64(disk.Blocks)*disk.Bsize>>10, int64(disk.Bavail)*disk.Bsize>>10
		}
		if disk.Files > 0 { // a file system that creates inodes on demand, such as btrfs, reports 0 inodes
			f.FreeInodes = int64(disk.Ffree)
		}
		f.NoExec = disk.Flags&unix.ST_NOEXEC != 0
	}
	f.Mount = mountOf(path)
	file, err := os.CreateTemp(path, ".plx-look.*")
	if err == nil {
		_, err = file.WriteString("#!/bin/sh\n")
		err = errors.Join(err, file.Close(), os.Remove(file.Name()))
	}
	if cause := unix.Errno(0); errors.As(err, &cause) {
		f.Unwritable = cause.Error()
	} else if err != nil {
		f.Unwritable = err.Error()
	}
	return f
}

// mountOf returns the mount point of the file system that contains path, or ""
// if that cannot be determined.
func mountOf(path string) string {
	path, err := filepath.EvalSymlinks(path)
	for err == nil && path != "/" {
		var is, above unix.Stat_t
		if err = errors.Join(unix.Stat(path, &is), unix.Stat(filepath.Dir(path), &above)); err == nil && is.Dev != above.Dev {
			return path
		}
		path = filepath.Dir(path)
	}
	if err != nil {
		return ""
	}
	return path
}
