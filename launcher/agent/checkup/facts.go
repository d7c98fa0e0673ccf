//go:build linux

package checkup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/protocol"
)

// lookTime bounds the look at a folder, whose file server may be stuck.
const lookTime = 5 * time.Second

// facts returns what the host says of itself.
func facts(ctx context.Context) *protocol.HostFacts {
	f := &protocol.HostFacts{UID: os.Getuid(), OpenFiles: unknown, Processes: unknown}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		text := func(field [65]byte) string { return unix.ByteSliceToString(field[:]) }
		f.OS, f.Arch, f.Kernel, f.HostName = text(u.Sysname), text(u.Machine), text(u.Release), text(u.Nodename)
	}
	f.User = strconv.Itoa(f.UID)
	if login, err := user.LookupId(f.User); err == nil {
		f.User = login.Username
	}
	// This process has raised its own limit of files. Its children have that of the login.
	limits, _ := exec.CommandContext(ctx, "cat", "/proc/self/limits").Output() // without it they are not known
	for line := range strings.Lines(string(limits)) {
		if text, is := strings.CutPrefix(line, "Max open files"); is {
			f.OpenFiles = limitOf(text)
		} else if text, is := strings.CutPrefix(line, "Max processes"); is {
			f.Processes = limitOf(text)
		}
	}
	home, _ := os.UserHomeDir() // plx runs there
	f.Home, f.Tmp = look(filepath.Join(home, ".plx")), look("/tmp")
	return f
}

var unknown = protocol.Limit{Soft: protocol.NotKnown, Hard: protocol.NotKnown}

// limitOf reads the two numbers of a line of /proc/self/limits.
func limitOf(text string) protocol.Limit {
	fields := strings.Fields(text)
	if len(fields) < 2 {
		return unknown
	}
	number := func(text string) int64 {
		if text == "unlimited" {
			return protocol.Unlimited
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return protocol.NotKnown
		}
		return n
	}
	return protocol.Limit{Soft: number(fields[0]), Hard: number(fields[1])}
}

// look looks at a folder, in bounded time.
func look(path string) protocol.Folder {
	found := make(chan protocol.Folder, 1)
	go func() { found <- folder(path) }()
	select {
	case f := <-found:
		return f
	case <-time.After(lookTime):
		return protocol.Folder{Path: path, FreeKiB: protocol.NotKnown, FreeInodes: protocol.NotKnown, Unwritable: fmt.Sprintf("no answer within %s", lookTime)}
	}
}

func folder(path string) protocol.Folder {
	f := protocol.Folder{Path: path, FreeKiB: protocol.NotKnown, FreeInodes: protocol.NotKnown}
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		f.Missing = true
		return f
	}
	var disk unix.Statfs_t
	if unix.Statfs(path, &disk) == nil {
		f.FreeKiB = int64(disk.Bavail) * disk.Bsize >> 10
		if disk.Files > 0 { // some file systems make inodes as they need them
			f.FreeInodes = int64(disk.Ffree)
		}
		f.NoExec = disk.Flags&unix.ST_NOEXEC != 0
	}
	f.Mount = mountOf(path)
	file, err := os.CreateTemp(path, ".plx-doctor.*")
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

// mountOf returns where the file system of a folder is mounted; "": that cannot be told.
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
