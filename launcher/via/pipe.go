package via

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"slices"

	"github.com/plx-run/plx/launcher/exit"
	connection "github.com/plx-run/plx/launcher/ssh/pipe"
)

// pipe is the running --via command of one host, as a net.Conn over its stdin
// and stdout.
type pipe struct {
	*connection.Conn
	commandLine string // the --via command as a shell command line, for error messages
	out         *bufio.Reader
}

func startPipe(c *Config) (*pipe, error) {
	cmd := exec.Command("/bin/sh", "-c", c.commandLine())
	env := c.Env
	if env == nil {
		env = os.Environ()
	}
	cmd.Env = append(slices.Clip(env), "PLX_HOST="+c.Host)
	conn, err := connection.Start(cmd, c.Host, false)
	if err != nil {
		return nil, fmt.Errorf("start /bin/sh for --via: %w", err)
	}
	return &pipe{Conn: conn, commandLine: c.commandLine(), out: bufio.NewReaderSize(conn, 32<<10)}, nil
}

// Read implements net.Conn.
func (p *pipe) Read(b []byte) (int, error) { return p.out.Read(b) }

// Cancel closes the pipe, which makes running reads and writes fail; it
// implements bootstrap.Stream.
func (p *pipe) Cancel(error) { p.Close() } // Close always returns nil

// String returns the description of the command for error messages.
func (p *pipe) String() string { return fmt.Sprintf("the command %q", p.commandLine) }

// reason returns an error that says why the pipe ended: how the command
// exited, or err if the command still runs. printed is the last line that the
// command printed on stdout and that is not part of plx's protocol.
func (p *pipe) reason(err error, printed string) error {
	end := p.WaitExit()
	if end == nil {
		return fmt.Errorf("%s: %w", p, err)
	}
	return p.quote(fmt.Errorf("%s ended with %v", p, end), printed)
}

// quote appends to err the command's last line on stderr, or the parameter
// printed if stderr is empty.
func (p *pipe) quote(err error, printed string) error {
	if said := cmp.Or(p.LastStderrLine(), printed); said != "" {
		err = fmt.Errorf("%w: %s", err, said)
	}
	return exit.WithHint(err, tryHint)
}
