//go:build linux

package checkup

import (
	"context"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/protocol"
)

// facts returns the host's operating system and architecture, the login, its
// limits (ulimit) and the state of the folders that plx uses.
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
	// The Go runtime has raised this process's own limit of open files. A
	// child process gets the login's limit back, so cat reads the limits of a
	// child.
	limits, _ := exec.CommandContext(ctx, "cat", "/proc/self/limits").Output() // ignore an error: the limits then stay unknown
	for line := range strings.Lines(string(limits)) {
		if text, is := strings.CutPrefix(line, "Max open files"); is {
			f.OpenFiles = limitOf(text)
		} else if text, is := strings.CutPrefix(line, "Max processes"); is {
			f.Processes = limitOf(text)
		}
	}
	home, _ := os.UserHomeDir() // ignore the error: plx agents do not start without a home folder
	f.Home, f.Tmp, f.Shm = process.ReadFolder(filepath.Join(home, ".plx")), process.ReadFolder("/tmp"), process.ReadFolder(protocol.Shm)
	return f
}

var unknown = protocol.Limit{Soft: protocol.NotKnown, Hard: protocol.NotKnown}

// limitOf parses the soft and the hard limit of a line of /proc/self/limits.
// text is the line without the limit's name.
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
