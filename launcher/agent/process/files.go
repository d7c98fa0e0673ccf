//go:build linux

package process

import (
	"os"
	"strconv"
	"strings"
)

// Files returns what the descriptors of a process lead to, such as "/dev/null",
// "socket:[123]" or "pipe:[456]". It is empty for a process that has ended or belongs to
// another user.
func Files(pid int) map[int]string {
	folder := "/proc/" + strconv.Itoa(pid) + "/fd"
	all := map[int]string{}
	dir, err := os.Open(folder)
	if err != nil {
		return all
	}
	defer dir.Close()                // it was only read
	names, _ := dir.Readdirnames(-1) // what could be read counts: the process may be ending
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

// Inode reads the number from "socket:[123]" or "pipe:[123]". kind is "socket" or "pipe".
func Inode(file, kind string) (inode uint32, ok bool) {
	number, found := strings.CutPrefix(file, kind+":[")
	number, closed := strings.CutSuffix(number, "]")
	n, err := strconv.ParseUint(number, 10, 32)
	return uint32(n), found && closed && err == nil
}

// Sockets returns the inodes of a process's sockets.
func Sockets(pid int) (inodes []uint32) {
	for _, to := range Files(pid) {
		if inode, ok := Inode(to, "socket"); ok {
			inodes = append(inodes, inode)
		}
	}
	return inodes
}
