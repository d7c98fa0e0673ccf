package testhosts

import "syscall"

// newNamespaces returns attributes that start a process as process 1 of a new
// host. The kernel kills it when the thread that started it ends.
func newNamespaces() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET |
			syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
		Pdeathsig: syscall.SIGKILL,
		Setsid:    true,
	}
}
