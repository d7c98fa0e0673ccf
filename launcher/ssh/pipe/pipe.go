// Package pipe makes a connection of the standard input and output of a command.
//
//	conn, err := pipe.Start(exec.Command("nc", "gpu03", "22"), "gpu03:22", true)
//	if err != nil {
//		return err
//	}
//	defer conn.Close()
//
// It does not know what the command or the other end speaks, and it prints nothing.
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
	leaveTime = time.Second // from the end of the command's input to killing it
	reapTime  = 2 * time.Second
)

// Conn is a command that runs, as a connection. It has a session of its own: no terminal
// to ask at, and Ctrl-C is for plx alone.
type Conn struct {
	// Explain returns why a Read or Write has failed, such as how the command has ended. Nil: its
	// error says enough.
	Explain func(error) error

	cmd     *exec.Cmd
	in, out *os.File
	errs    *ending
	remote  string
	hangUp  bool          // Close sends SIGHUP at once
	ended   chan struct{} // closed once the command has ended
	once    sync.Once
}

// Start starts cmd, of which it sets the outputs and the input. remote is the address of
// the other end. With hangUp, Close sends the command SIGHUP and does not wait until the
// end of its input has ended it.
func Start(cmd *exec.Cmd, remote string, hangUp bool) (*Conn, error) {
	fromUs, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, toUs, err := os.Pipe() // not StdoutPipe, which Wait closes before all is read
	if err != nil {
		return nil, errors.Join(err, fromUs.Close(), in.Close())
	}
	c := &Conn{cmd: cmd, in: in, out: out, errs: &ending{}, remote: remote, hangUp: hangUp, ended: make(chan struct{})}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = fromUs, toUs, c.errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.WaitDelay = reapTime // a process that the command left may hold stderr open
	err = cmd.Start()
	_, _ = fromUs.Close(), toUs.Close() // the command has them
	if err != nil {
		_, _ = in.Close(), out.Close() // nothing went through them
		return nil, err
	}
	go func() {
		_ = cmd.Wait() // ProcessState has the result
		close(c.ended)
	}()
	return c, nil
}

// Read implements net.Conn.
func (c *Conn) Read(b []byte) (int, error) { return c.explained(c.out.Read(b)) }

// Write implements net.Conn. A command that ends at once breaks the pipe before anything is read.
func (c *Conn) Write(b []byte) (int, error) { return c.explained(c.in.Write(b)) }

func (c *Conn) explained(n int, err error) (int, error) {
	if err != nil && c.Explain != nil {
		err = c.Explain(err)
	}
	return n, err
}

// Close ends the command's input, and kills the command if it does not end. Its error is
// nil.
func (c *Conn) Close() error {
	c.once.Do(func() {
		_ = c.in.Close() // fails only if the command has ended
		if c.hangUp {
			_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGHUP) // fails if it has ended
		}
		c.wait(leaveTime)
		// The command may have left processes in its session.
		_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL) // fails if none is left
		c.wait(reapTime)
		_ = c.out.SetReadDeadline(time.Unix(1, 0)) // one that left the session may hold it open
	})
	return nil
}

func (c *Conn) wait(most time.Duration) {
	select {
	case <-c.ended:
	case <-time.After(most):
	}
}

// End waits a second for the end of the command, and returns how it ended. Nil: it runs.
func (c *Conn) End() *os.ProcessState {
	c.wait(leaveTime)
	select {
	case <-c.ended:
		return c.cmd.ProcessState
	default:
		return nil
	}
}

// Said returns the last line that the command printed on stderr, "" for none.
func (c *Conn) Said() string { return c.errs.lastLine() }

// ending keeps the last bytes of an output.
type ending struct {
	mu   sync.Mutex
	text []byte
}

func (e *ending) Write(b []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.text = append(e.text, b[max(0, len(b)-1024):]...)
	e.text = append([]byte(nil), e.text[max(0, len(e.text)-1024):]...)
	return len(b), nil
}

func (e *ending) lastLine() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(string(e.text)), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

// address is the address of one end.
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
