//go:build !linux

package testhosts

import "syscall"

// newNamespaces is never called, because [Available] returns an error on
// systems other than Linux.
func newNamespaces() *syscall.SysProcAttr { return nil }
