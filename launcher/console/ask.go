package console

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/plx-run/plx/logs"
)

// CanAsk reports whether stderr is a terminal, so that Ask can prompt the
// user.
func (p *Printer) CanAsk() bool { return p != nil && p.display.Terminal(logs.Stderr) }

// Ask shows a prompt on /dev/tty and returns the line that the user types. If
// echo is false the typed text stays hidden. All other output waits until the
// user has finished.
func (p *Printer) Ask(ctx context.Context, question string, echo bool) (answer string, err error) {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return "", fmt.Errorf("there is no terminal for the prompt: %w", err)
	}
	defer tty.Close()                                                               // ignore an error, because the line was read
	stop := context.AfterFunc(ctx, func() { tty.SetReadDeadline(time.Unix(1, 0)) }) // when ctx ends, the deadline makes the read fail
	defer stop()
	p.display.Alone(func() { answer, err = ask(tty, p.question(question), echo) })
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return answer, err
}

// question returns the prompt for a question: the "plx: " prefix, the text and
// a colon.
func (p *Printer) question(text string) string { return p.prefix() + oneLine(text) + ": " }

// ask reads one line from the terminal in raw mode, in which the terminal does
// not echo the typed characters.
func ask(tty *os.File, prompt string, echo bool) (answer string, err error) {
	raw, err := tty.SyscallConn() // do not use tty.Fd, which would set the file to blocking mode
	if err != nil {
		return "", err
	}
	var before *term.State
	failed := raw.Control(func(fd uintptr) { before, err = term.MakeRaw(int(fd)) })
	if err := cmp.Or(failed, err); err != nil {
		return "", fmt.Errorf("ask at the terminal: %w", err)
	}
	defer func() {
		var restored error
		failed := raw.Control(func(fd uintptr) { restored = term.Restore(int(fd), before) })
		err = cmp.Or(err, failed, restored)
	}()
	t := term.NewTerminal(tty, prompt)
	if echo {
		answer, err = t.ReadLine()
	} else {
		answer, err = t.ReadPassword(prompt)
	}
	if err == io.EOF { // the user pressed Ctrl-C or Ctrl-D
		err = fmt.Errorf("no answer was given")
	}
	return answer, err
}
