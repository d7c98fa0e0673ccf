package via

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/plx-run/plx/launcher/exit"
)

const (
	leaveTime = time.Second // from the end of the command's input to killing it
	reapTime  = 2 * time.Second
)

// pipe is a command of the user's that runs, as a connection to the host. It has a session
// of its own: no terminal to ask at, and Ctrl-C is for plx alone.
type pipe struct {
	host  string
	line  string // the command, for messages
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	errs  *ending
	ended chan struct{} // closed once the command has ended
	once  sync.Once
}

func startPipe(c *Config) (*pipe, error) {
	p := &pipe{host: c.Host, line: c.line(), errs: &ending{}, ended: make(chan struct{})}
	p.cmd = exec.Command("/bin/sh", "-c", p.line)
	env := c.Env
	if env == nil {
		env = os.Environ()
	}
	p.cmd.Env = append(slices.Clip(env), "PLX_HOST="+c.Host)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	p.cmd.Stderr = p.errs
	p.cmd.WaitDelay = reapTime // a process that the command left may hold stderr open
	in, errIn := p.cmd.StdinPipe()
	out, toUs, errOut := os.Pipe() // not StdoutPipe, which Wait closes before all is read
	if err := errors.Join(errIn, errOut); err != nil {
		return nil, err
	}
	p.in, p.out, p.cmd.Stdout = in, bufio.NewReaderSize(out, 32<<10), toUs
	err := p.cmd.Start()
	toUs.Close() // the command has it
	if err != nil {
		out.Close() // nothing was read
		return nil, fmt.Errorf("start /bin/sh for --via: %w", err)
	}
	go func() {
		p.cmd.Wait() // ProcessState has the result
		close(p.ended)
	}()
	return p, nil
}

// Read implements net.Conn. At the end it says how the command ended.
func (p *pipe) Read(b []byte) (int, error) {
	n, err := p.out.Read(b)
	if err != nil {
		err = p.reason(err, "")
	}
	return n, err
}

func (p *pipe) Write(b []byte) (int, error) { return p.in.Write(b) }

// Close ends the command's input, and kills it if it does not end.
func (p *pipe) Close() error {
	p.once.Do(func() {
		p.in.Close() // fails only if the command has ended
		select {
		case <-p.ended:
		case <-time.After(leaveTime):
		}
		// The command may have left processes in its session.
		syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // fails if none is left
		select {
		case <-p.ended:
		case <-time.After(reapTime):
		}
	})
	return nil
}

// String names the command in messages.
func (p *pipe) String() string { return fmt.Sprintf("the command %q", p.line) }

// said is the last line that the command printed on stderr, "" for none.
func (p *pipe) said() string { return p.errs.lastLine() }

// reason explains the end of the pipe: err, or how the command ended. printed is the last
// line of its output that was no answer.
func (p *pipe) reason(err error, printed string) error {
	select {
	case <-p.ended:
	case <-time.After(leaveTime):
		return fmt.Errorf("%s: %w", p, err)
	}
	return p.quote(fmt.Errorf("%s ended with %v", p, p.cmd.ProcessState), printed)
}

// silent says that no answer came.
func (p *pipe) silent(printed string) error {
	return p.quote(fmt.Errorf("%s gave no shell within %v", p, startLimit), printed)
}

// quote adds what the command printed last, first of all on stderr.
func (p *pipe) quote(err error, printed string) error {
	if said := cmp.Or(p.said(), printed); said != "" {
		err = fmt.Errorf("%w: %s", err, said)
	}
	return exit.WithHint(err, tryHint)
}

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

// address is the address of a pipe's end.
type address string

func (address) Network() string  { return "pipe" }
func (a address) String() string { return string(a) }

// LocalAddr implements net.Conn.
func (p *pipe) LocalAddr() net.Addr { return address("here") }

// RemoteAddr implements net.Conn.
func (p *pipe) RemoteAddr() net.Addr { return address(p.host) }

// SetDeadline implements net.Conn. A pipe has no deadlines: package ssh notices a silent
// host.
func (p *pipe) SetDeadline(time.Time) error { return os.ErrNoDeadline }

// SetReadDeadline implements net.Conn.
func (p *pipe) SetReadDeadline(time.Time) error { return os.ErrNoDeadline }

// SetWriteDeadline implements net.Conn.
func (p *pipe) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }
