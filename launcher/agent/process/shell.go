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

// Shell runs a script, and returns what it has printed to stdout, at most limit bytes, and its exit
// status, -1 if a signal has ended it. At the end of ctx it kills what the script has started. It waits
// for that, which a driver can delay.
func (c *Children) Shell(ctx context.Context, script string, limit int64) (out []byte, status int, err error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, 0, err
	}
	defer null.Close() // the process has its own
	read, write, err := os.Pipe()
	if err != nil {
		return nil, 0, err
	}
	defer read.Close() // nothing is written to it
	attr := &syscall.ProcAttr{Dir: "/", Env: os.Environ(), Files: []uintptr{null.Fd(), write.Fd(), null.Fd()},
		Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}}
	child, err := c.Start("/bin/sh", []string{"sh", "-c", script}, attr, nil)
	write.Close() // the process has its own
	if err != nil {
		return nil, 0, fmt.Errorf("start /bin/sh: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { child.SignalGroup(unix.SIGKILL) })
	defer stop()
	if out, err = io.ReadAll(io.LimitReader(read, limit)); err != nil {
		return nil, 0, err
	}
	read.Close() // a script that prints more gets SIGPIPE
	<-child.Done()
	if ctx.Err() != nil {
		return out, -1, context.Cause(ctx)
	}
	return out, child.Status().ExitStatus(), nil
}
