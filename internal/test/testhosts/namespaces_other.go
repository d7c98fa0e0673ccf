//go:build !linux

package testhosts

import "syscall"

// newNamespaces is never reached where [Available] wants Linux.
func newNamespaces() *syscall.SysProcAttr { return nil }
