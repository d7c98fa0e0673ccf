// Package pipe runs a command and returns its standard input and output as a
// net.Conn.
//
//	conn, err := pipe.Start(exec.Command("nc", "gpu03", "22"), "gpu03:22", true)
//	if err != nil {
//		return err
//	}
//	defer conn.Close()
//
// The package knows nothing of the protocol on the connection, and it prints
// nothing.
package pipe

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	exitTime = time.Second // time from closing the command's stdin to killing the command
	reapTime = 2 * time.Second
)

// Conn is a net.Conn over the standard input and output of a running command.
// The command runs in its own session, so it has no terminal to prompt on, and
// Ctrl-C does not reach it.
type Conn struct {
	// Explain adds details to the error of a failed Read or Write, such as how
	// the command exited. If Explain is nil, Read and Write return the plain
	// error.
	Explain func(error) error

	cmd     *exec.Cmd
	in, out *os.File
	errs    *tail
	remote  string
	hangUp  bool          // true if Close sends SIGHUP to the command at once, without waiting for it to exit
	ended   chan struct{} // closed once the command has ended
	once    sync.Once
}

// Start starts cmd and connects its stdin, stdout and stderr. remote is the
// address that RemoteAddr returns. If hangUp is true, Close sends SIGHUP to
// the command at once; otherwise Close first gives the command a second to
// exit after the end of its stdin.
func Start(cmd *exec.Cmd, remote string, hangUp bool) (*Conn, error) {
	fromUs, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, toUs, err := os.Pipe() // cmd.StdoutPipe cannot be used, because Wait closes that pipe before all output was read.
	if err != nil {
		return nil, errors.Join(err, fromUs.Close(), in.Close())
	}
	c := &Conn{cmd: cmd, in: in, out: out, errs: &tail{}, remote: remote, hangUp: hangUp, ended: make(chan struct{})}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = fromUs, toUs, c.errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.WaitDelay = reapTime // Wait at most reapTime for the end of stderr: a process that the command leaves behind may hold it open.
	err = cmd.Start()
	_, _ = fromUs.Close(), toUs.Close() // The command has its own copies of these files.
	if err != nil {
		_, _ = in.Close(), out.Close() // the command did not start, so no data is lost
		return nil, err
	}
	go func() {
		_ = cmd.Wait() // ignored: End returns the exit status from cmd.ProcessState
		close(c.ended)
	}()
	return c, nil
}

// Read implements net.Conn.
func (c *Conn) Read(b []byte) (int, error) { return c.explained(c.out.Read(b)) }

// Write implements net.Conn. If the command exits immediately, Write may
// return an error before any Read does.
func (c *Conn) Write(b []byte) (int, error) { return c.explained(c.in.Write(b)) }

func (c *Conn) explained(n int, err error) (int, error) {
	if err != nil && c.Explain != nil {
		err = c.Explain(err)
	}
	return n, err
}

// Close closes the command's stdin, and kills the command if it does not exit.
// It always returns nil.
func (c *Conn) Close() error {
	c.once.Do(func() {
		_ = c.in.Close() // an error means that the command has ended
		if c.hangUp {
			_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGHUP) // Kill fails if the command has ended.
		}
		c.wait(exitTime)
		// Kill the whole process group, since the command may have left other
		// processes in it.
		_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL) // fails if no process of the group is left
		c.wait(reapTime)
		// A process outside the process group may hold the output open. The
		// deadline ends a Read that waits for it.
		_ = c.out.SetReadDeadline(time.Unix(1, 0))
	})
	return nil
}

func (c *Conn) wait(most time.Duration) {
	select {
	case <-c.ended:
	case <-time.After(most):
	}
}

// WaitExit waits up to a second for the command to exit, and returns its state. It
// returns nil if the command is still running.
func (c *Conn) WaitExit() *os.ProcessState {
	c.wait(exitTime)
	select {
	case <-c.ended:
		return c.cmd.ProcessState
	default:
		return nil
	}
}

// LastStderrLine returns the last line that the command printed on stderr, or "" if it
// printed nothing.
func (c *Conn) LastStderrLine() string { return c.errs.lastLine() }

// tail is a writer that keeps the last 1024 bytes written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (e *tail) Write(b []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.text = append(e.text, b[max(0, len(b)-1024):]...)
	e.text = append([]byte(nil), e.text[max(0, len(e.text)-1024):]...)
	return len(b), nil
}

func (e *tail) lastLine() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(string(e.text)), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

// address is a net.Addr of a pipe, which has only a name.
type address string

func (address) Network() string  { return "pipe" }
func (a address) String() string { return string(a) }

// LocalAddr implements net.Conn.
func (c *Conn) LocalAddr() net.Addr { return address("here") }

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr { return address(c.remote) }

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.out.SetReadDeadline(t) }

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.in.SetWriteDeadline(t) }
