package embedded

import (
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// pipes are a command's three streams. The pipes of exec.Cmd would make Wait wait for every
// process that holds them.
type pipes struct {
	stdin, stdout, stderr *os.File
	theirs                []*os.File
}

func newPipes(cmd *exec.Cmd) (*pipes, error) {
	p := &pipes{}
	read, write, err := os.Pipe()
	if err != nil {
		return p, err
	}
	p.stdin, cmd.Stdin, p.theirs = write, read, append(p.theirs, read)
	read, write, err = os.Pipe()
	if err != nil {
		return p, err
	}
	p.stdout, cmd.Stdout, p.theirs = read, write, append(p.theirs, write)
	read, write, err = os.Pipe()
	if err != nil {
		return p, err
	}
	p.stderr, cmd.Stderr, p.theirs = read, write, append(p.theirs, write)
	return p, nil
}

// closeTheirs closes the command's ends in this process.
func (p *pipes) closeTheirs() {
	for _, file := range p.theirs {
		_ = file.Close() // the command has its own copy
	}
}

// close closes both ends; those closed before do not mind.
func (p *pipes) close() {
	p.closeTheirs()
	for _, file := range []*os.File{p.stdin, p.stdout, p.stderr} {
		if file != nil {
			_ = file.Close() // pipes have nothing to flush
		}
	}
}

// signalName returns the name without SIG, as the protocol has it.
func signalName(signal os.Signal) string {
	number, is := signal.(unix.Signal)
	if name := unix.SignalName(number); is && len(name) > 3 {
		return name[3:]
	}
	return "UNKNOWN"
}
