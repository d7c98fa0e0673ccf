//go:build linux

package process

import (
	"context"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Shell runs a script with /bin/sh. It returns at most limit bytes of the
// script's standard output, and its exit status, or -1 if a signal ended the
// script. When ctx ends, Shell kills the script's process group. It then waits
// for the shell to end, which can take long while a device driver blocks the
// process.
func (c *Children) Shell(ctx context.Context, script string, limit int64) (out []byte, status int, err error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, 0, err
	}
	defer null.Close() // the child process has its own descriptor
	read, write, err := os.Pipe()
	if err != nil {
		return nil, 0, err
	}
	defer read.Close() // the pipe's read end has nothing to flush
	attr := &syscall.ProcAttr{Dir: "/", Env: os.Environ(), Files: []uintptr{null.Fd(), write.Fd(), null.Fd()},
		Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}}
	child, err := c.Start("/bin/sh", []string{"sh", "-c", script}, attr, nil)
	write.Close() // the child process has its own descriptor
	if err != nil {
		return nil, 0, fmt.Errorf("start /bin/sh: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { child.SignalGroup(unix.SIGKILL) })
	defer stop()
	if out, err = io.ReadAll(io.LimitReader(read, limit)); err != nil {
		return nil, 0, err
	}
	read.Close() // after this, a script that has printed more than limit bytes gets SIGPIPE
	<-child.Done()
	if ctx.Err() != nil {
		return out, -1, context.Cause(ctx)
	}
	return out, child.Status().ExitStatus(), nil
}
