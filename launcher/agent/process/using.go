//go:build linux

package process

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Using lists this user's processes that use a folder and are marked with no job: their program,
// their working directory or an open file lies in it. One that a job has started with its
// environment cleared is among them, but so is a shell that the user has opened there: this is no
// proof, and nothing in plx kills them. Processes of the calling program are left out, as
// they read logs there.
func Using(folder string) ([]Process, error) {
	all, err := list()
	if err != nil {
		return nil, err
	}
	if folder, err = filepath.EvalSymlinks(folder); err != nil { // links in /proc are resolved too
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

// uses reports whether a process uses a folder, see Using.
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

// InScope lists the processes of the control group that has the name of a scope of systemd.
func InScope(name string) ([]Process, error) {
	all, err := list()
	return slices.DeleteFunc(all, func(p Process) bool {
		groups, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/cgroup")
		return err != nil || p.PID == os.Getpid() || !strings.Contains(string(groups), "/"+name+"\n")
	}), err
}
