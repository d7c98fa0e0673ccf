package testhosts

import "syscall"

// newNamespaces returns the attributes with which a process starts as process
// 1 of a new host. The kernel kills the process when the thread that started
// it ends.
func newNamespaces() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET |
			syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
		Pdeathsig: syscall.SIGKILL,
		Setsid:    true,
	}
}
