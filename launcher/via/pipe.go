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

// pipe is a command of the user's that runs, as a connection to the host.
type pipe struct {
	*connection.Conn
	line string // the command, for messages
	out  *bufio.Reader
}

func startPipe(c *Config) (*pipe, error) {
	cmd := exec.Command("/bin/sh", "-c", c.line())
	env := c.Env
	if env == nil {
		env = os.Environ()
	}
	cmd.Env = append(slices.Clip(env), "PLX_HOST="+c.Host)
	conn, err := connection.Start(cmd, c.Host, false)
	if err != nil {
		return nil, fmt.Errorf("start /bin/sh for --via: %w", err)
	}
	return &pipe{Conn: conn, line: c.line(), out: bufio.NewReaderSize(conn, 32<<10)}, nil
}

// Read implements net.Conn.
func (p *pipe) Read(b []byte) (int, error) { return p.out.Read(b) }

// Cancel ends all reads and writes, as bootstrap.Stream does.
func (p *pipe) Cancel(error) { p.Close() } // it returns nil

// String names the command in messages.
func (p *pipe) String() string { return fmt.Sprintf("the command %q", p.line) }

// reason explains the end of the pipe: err, or how the command ended. printed is the last
// line of its output that was no answer.
func (p *pipe) reason(err error, printed string) error {
	end := p.End()
	if end == nil {
		return fmt.Errorf("%s: %w", p, err)
	}
	return p.quote(fmt.Errorf("%s ended with %v", p, end), printed)
}

// quote adds what the command printed last, first of all on stderr.
func (p *pipe) quote(err error, printed string) error {
	if said := cmp.Or(p.Said(), printed); said != "" {
		err = fmt.Errorf("%w: %s", err, said)
	}
	return exit.WithHint(err, tryHint)
}
