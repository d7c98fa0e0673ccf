//go:build linux

package process

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// UsersOf lists this user's processes that use a folder although their
// environment names no job. A process uses the folder if its program, its
// working folder or an open file is in it. The list can contain a job's
// process that has cleared its environment. It can also contain a shell that
// the user has opened in the folder, so plx reports the listed processes and
// never kills them. Processes with the caller's executable are omitted,
// because they read logs in the folder.
func UsersOf(folder string) ([]Process, error) {
	all, err := list()
	if err != nil {
		return nil, err
	}
	if folder, err = filepath.EvalSymlinks(folder); err != nil { // links in /proc/PID show resolved paths
		return nil, err
	}
	self, err := os.Stat("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(p Process) bool {
		if p.Zombie || !ownedByUser(p.PID) {
			return true
		}
		if program, err := os.Stat("/proc/" + strconv.Itoa(p.PID) + "/exe"); err != nil || os.SameFile(program, self) {
			return true
		}
		env, err := Environment(p.PID)
		return err != nil || markIn(env).Job != "" || !uses(p.PID, folder)
	}), nil
}

// uses reports whether a process's working folder, program or an open file is
// in the folder.
func uses(pid int, folder string) bool {
	within := func(path string) bool { return path == folder || strings.HasPrefix(path, folder+"/") }
	for _, link := range []string{"cwd", "exe"} {
		if to, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/" + link); err == nil && within(to) {
			return true
		}
	}
	for _, to := range Files(pid) {
		if within(to) {
			return true
		}
	}
	return false
}

// InScope lists the processes in the control group of the systemd scope with
// the given name, without this process.
func InScope(name string) ([]Process, error) {
	all, err := list()
	return slices.DeleteFunc(all, func(p Process) bool {
		groups, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/cgroup")
		return err != nil || p.PID == os.Getpid() || !strings.Contains(string(groups), "/"+name+"\n")
	}), err
}
