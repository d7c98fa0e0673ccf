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

// CanAsk reports whether Ask can show a question: stderr is a terminal.
func (p *Printer) CanAsk() bool { return p != nil && p.display.Terminal(logs.Stderr) }

// Ask asks the user on the terminal of the process, and returns the line that is typed. Without
// echo it is not shown. Nothing else is printed meanwhile.
func (p *Printer) Ask(ctx context.Context, question string, echo bool) (answer string, err error) {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return "", fmt.Errorf("there is no terminal to ask at: %w", err)
	}
	defer tty.Close()                                                               // what was typed is read
	stop := context.AfterFunc(ctx, func() { tty.SetReadDeadline(time.Unix(1, 0)) }) // ends the read
	defer stop()
	p.display.Alone(func() { answer, err = ask(tty, p.question(question), echo) })
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return answer, err
}

// question returns what stands before the answer.
func (p *Printer) question(text string) string { return p.prefix() + oneLine(text) + ": " }

// ask reads a line in raw mode: the terminal itself would show it.
func ask(tty *os.File, prompt string, echo bool) (answer string, err error) {
	raw, err := tty.SyscallConn() // Fd would make the file block
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
	if err == io.EOF { // Ctrl-C or Ctrl-D
		err = fmt.Errorf("no answer was given")
	}
	return answer, err
}
