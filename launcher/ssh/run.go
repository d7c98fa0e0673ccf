package ssh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

const (
	// settle is how long Run waits for its own goroutines once it is decided.
	settle = 200 * time.Millisecond
	// drainIdle ends the reading of a command that has exited while something
	// it left behind holds its output open and writes nothing.
	drainIdle = 5 * time.Second
)

// Run runs command, a script for /bin/sh, and returns when it has exited and
// its output has been written: nil for exit status 0, else an [ExitError]. A
// lost connection is a [LostError]; when ctx ends first its error is returned
// promptly. Streams that are nil are empty or dropped. The command's own bytes
// reach stdout and stderr unchanged, and nothing else does; it is limited to
// about 64 KiB, the rest belongs on stdin.
//
// The command starts in the user's home with the server's environment. It is
// not killed when Run returns early: its stdin ends and its output breaks. A
// program in the background that holds the output of an exited command is
// waited for only while it writes, or was silent for less than 5 s.
//
// After Run returned nothing more is written. A stdin that is an [io.PipeReader] is
// closed by then if the command was started, so that nobody writes to it in vain. A
// Read that blocks on another one is left to return by itself, for there is no way to
// interrupt it: what it returns is lost.
func (c *Client) Run(ctx context.Context, command string, stdin io.Reader, stdout, stderr io.Writer) error {
	sentinel := newSentinel()
	line, err := wrap(command, sentinel)
	if err != nil {
		return fmt.Errorf("host %s: %w", c.cfg.Host, err)
	}
	s, err := c.openSession(ctx, "exec", line)
	if err != nil {
		return err
	}
	defer s.end()
	out, errs := newCleanWriter(stdout, sentinel), newCleanWriter(stderr, sentinel)
	err = c.converse(ctx, s, stdin, out, errs)
	return c.verdict(ctx, err, out, errs)
}

// converse moves the streams until the command is over, and returns its exit.
func (c *Client) converse(ctx context.Context, s *session, stdin io.Reader, out, errs *cleanWriter) error {
	sent, drained := make(chan error, 1), make(chan error, 2)
	// Not among the workers that Close waits for: it may block in a Read that
	// only the caller can end.
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		sent <- feed(s, stdin)
	}()
	c.workers.start(func() { drained <- drain(out, s) })
	c.workers.start(func() { drained <- drain(errs, s.Stderr()) })

	err := c.await(ctx, s, sent, drained, func() bool {
		return min(out.idle(), errs.idle()) > drainIdle
	})
	s.end()
	out.stop(settle)
	errs.stop(settle)
	if pipe, ok := stdin.(*io.PipeReader); ok {
		_ = pipe.Close() // never fails
	}
	select { // a stdin that does not block is not read after Run returned
	case <-fed:
	case <-time.After(settle):
	}
	return err
}

// await waits for the end of both outputs and for the exit status.
func (c *Client) await(ctx context.Context, s *session, sent, drained <-chan error, idle func() bool) error {
	var exit error
	exited, open := false, 2
	exits, ended := s.exit, s.ended
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for !exited || open > 0 {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-sent:
			if err != nil {
				return fmt.Errorf("read stdin: %w", err)
			}
			sent = nil
		case err := <-drained:
			if err != nil {
				return fmt.Errorf("write output: %w", err)
			}
			open--
		case exit = <-exits:
			exited, exits = true, nil
		case <-ended:
			ended = nil
			if exit, exited = s.finalExit(exit, exited); !exited {
				return errNoStatus
			}
		case <-tick.C:
			if exited && idle() {
				return exit
			}
		}
	}
	return exit
}

// finalExit looks for a status that came right before the channel's end.
func (s *session) finalExit(exit error, exited bool) (error, bool) {
	if exited {
		return exit, true
	}
	select {
	case exit = <-s.exit:
		return exit, true
	default:
		return nil, false
	}
}

// feed sends stdin and its end. Only a failure to read is an error: a command
// need not read what it is given.
func feed(s *session, stdin io.Reader) error {
	if stdin != nil {
		source := &readErrors{r: stdin}
		_, _ = io.Copy(s, source) // a failure to write shows in the exit status
		if source.err != nil {
			return source.err
		}
	}
	_ = s.CloseWrite() // likewise
	return nil
}

// readErrors keeps the error of a reader apart from those of its writer.
type readErrors struct {
	r   io.Reader
	err error
}

func (r *readErrors) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if err != nil && err != io.EOF {
		r.err = err
	}
	return n, err
}

// drain copies one output. Only a failure to write is an error.
func drain(to *cleanWriter, from io.Reader) error {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return err
			}
		}
		if err != nil {
			return nil // the channel's end; why is for the exit status to say
		}
	}
}

// verdict names what ended the command: it, its shell, the connection or ctx.
func (c *Client) verdict(ctx context.Context, err error, out, errs *cleanWriter) error {
	found, dropped, noise := out.state()
	foundErr, droppedErr, noiseErr := errs.state()
	var exit *ExitError
	ran := err == nil || errors.As(err, &exit)
	switch {
	case errors.Is(err, errNoise):
		return c.shellError(err, noise+noiseErr)
	case !ran:
		return c.explain(ctx, c.named(err))
	case !found || !foundErr:
		return c.shellError(err, noise+noiseErr)
	}
	if dropped+droppedErr > 0 && !c.noisy.Swap(true) {
		c.cfg.Notice(fmt.Sprintf("host %s: a start-up file of the login shell (such as .bashrc) prints %d bytes at each command; they are dropped",
			c.cfg.Host, dropped+droppedErr))
	}
	return err
}

func (c *Client) named(err error) error { return fmt.Errorf("host %s: %w", c.cfg.Host, err) }

// shellError says that the login shell did not get as far as the command.
func (c *Client) shellError(cause error, noise string) error {
	if cause == nil {
		cause = errors.New("it exited with 0")
	}
	err := fmt.Errorf("host %s: the login shell did not start /bin/sh: %w", c.cfg.Host, cause)
	if noise = strings.TrimSpace(noise); noise != "" {
		err = fmt.Errorf("%w; it printed %q", err, noise)
	}
	return &hintedError{err, "check the user's shell and its start-up files on the host: ssh " + c.cfg.Host + " true must print nothing"}
}
