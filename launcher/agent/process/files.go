//go:build linux

package process

import (
	"os"
	"strconv"
	"strings"
)

// Files returns, for each open descriptor of a process, what it refers to,
// such as "/dev/null", "socket:[123]" or "pipe:[456]". The map is empty for a
// process that has ended or belongs to another user.
func Files(pid int) map[int]string {
	folder := "/proc/" + strconv.Itoa(pid) + "/fd"
	all := map[int]string{}
	dir, err := os.Open(folder)
	if err != nil {
		return all
	}
	defer dir.Close()                // the folder was only read
	names, _ := dir.Readdirnames(-1) // ignore an error and use the names read so far: the process may be ending
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if to, err := os.Readlink(folder + "/" + name); err == nil {
			all[fd] = to
		}
	}
	return all
}

// Inode parses the number in "socket:[123]" or "pipe:[123]". kind is "socket"
// or "pipe"; ok is false if file refers to something else.
func Inode(file, kind string) (inode uint32, ok bool) {
	number, found := strings.CutPrefix(file, kind+":[")
	number, closed := strings.CutSuffix(number, "]")
	n, err := strconv.ParseUint(number, 10, 32)
	return uint32(n), found && closed && err == nil
}

// Sockets returns the inode numbers of the sockets that a process has open.
func Sockets(pid int) (inodes []uint32) {
	for _, to := range Files(pid) {
		if inode, ok := Inode(to, "socket"); ok {
			inodes = append(inodes, inode)
		}
	}
	return inodes
}
