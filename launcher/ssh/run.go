package ssh

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/transport"
)

const (
	// settle is how long Run waits for its own goroutines after the command's end.
	settle = 200 * time.Millisecond
	// drainIdle bounds the silence of a process that an exited command left, and that
	// holds the command's output open.
	drainIdle = 5 * time.Second
	// startTime bounds the start of a command that has a stdin: a start-up file that reads
	// would wait for ever.
	startTime = 65 * time.Second
)

// Run runs command, a script for /bin/sh of at most about 64 KiB. It returns after the
// command has exited and its output was written. The error is nil for exit status 0, an
// [transport.ExitError] for another one, and a [transport.LostError] if the connection is lost. If ctx ends
// first, Run returns its cause at once. A nil stdin is empty, a nil writer drops the
// output. Only the command's own bytes reach stdout and stderr.
//
// The command starts in the user's home with the server's environment. If Run returns
// early it does not kill the command: stdin ends and the output breaks. A process in the
// background may hold the output of an exited command open. Run waits for it while it
// writes, and until it was silent for 5 s.
//
// Run writes nothing after it returned. If stdin is an [io.PipeReader] and the command
// was started, Run closes it, so that nobody writes to it in vain. A Read that blocks in
// another stdin cannot be interrupted: its bytes are lost.
func (c *Client) Run(ctx context.Context, command string, stdin io.Reader, stdout, stderr io.Writer) error {
	sentinel := newSentinel()
	line, err := wrap(command, sentinel)
	if err != nil {
		return c.named(err)
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

// converse moves the streams until the command has ended, and returns its exit error.
func (c *Client) converse(ctx context.Context, s *session, stdin io.Reader, out, errs *cleanWriter) error {
	sent, drained := make(chan error, 1), make(chan error, 2)
	// Close does not wait for this goroutine: only the caller can end a Read that
	// blocks.
	fed, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(fed)
		if stdin != nil {
			// A start-up file could read what is the command's.
			select {
			case <-out.begun:
			case <-ended:
				return
			case <-time.After(startTime):
				sent <- errNoStart
				return
			}
		}
		sent <- feed(s, stdin)
	}()
	c.workers.start(func() { // a command may run for long
		for _, begun := range []chan struct{}{out.begun, errs.begun} {
			select {
			case <-begun:
			case <-ended:
				return
			}
		}
		c.noticeNoise(out, errs)
	})
	c.workers.start(func() { drained <- drain(out, s) })
	c.workers.start(func() { drained <- drain(errs, s.Stderr()) })

	err := c.await(ctx, s, sent, drained, func() bool {
		return min(out.idle(), errs.idle()) > drainIdle
	})
	close(ended)
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
	exited, open := time.Time{}, 2 // zero: it has not
	exits := s.exit
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for exited.IsZero() || open > 0 {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-sent:
			if errors.Is(err, errNoStart) {
				return err
			}
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
			if exit == errNoStatus {
				return exit
			}
			exited, exits = time.Now(), nil
		case <-tick.C:
			// A command that was silent and ends may have its last output still on the way.
			if !exited.IsZero() && time.Since(exited) > drainIdle && idle() {
				return exit
			}
		}
	}
	return exit
}

// feed sends stdin and its end. Only a failure to read is an error: a command need not
// read its stdin, and a failure to write shows in its exit status.
func feed(s *session, stdin io.Reader) error {
	buf := make([]byte, 32<<10)
	for reading := stdin != nil; reading; {
		n, err := stdin.Read(buf)
		if err != nil && err != io.EOF {
			return err
		}
		_, failed := s.Write(buf[:n])
		reading = err == nil && failed == nil
	}
	_ = s.CloseWrite()
	return nil
}

// maxDrain is the most that is read of an output at once, in bytes.
const maxDrain = 128 << 10

// drain copies one output. Only a failure to write is an error. The buffer grows while more
// has come than it holds: fewer reads, and fewer packets that open the window again.
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
			return nil // the exit status says why the channel ended
		}
		if n == len(buf) && n < maxDrain {
			buf = make([]byte, 2*n)
		}
	}
}

// verdict returns the error of what ended the command: itself, its shell, the connection
// or ctx.
func (c *Client) verdict(ctx context.Context, err error, out, errs *cleanWriter) error {
	found, _, noise := out.state()
	foundErr, _, noiseErr := errs.state()
	var exit *transport.ExitError
	ran := err == nil || errors.As(err, &exit)
	switch {
	case errors.Is(err, errNoise), errors.Is(err, errNoStart):
		return c.shellError(err, noise+noiseErr)
	case !ran:
		return c.explain(ctx, c.named(err))
	case !found || !foundErr:
		return c.shellError(err, noise+noiseErr)
	}
	c.noticeNoise(out, errs)
	return err
}

// noticeNoise tells, once, that bytes were dropped of a command that has begun.
func (c *Client) noticeNoise(out, errs *cleanWriter) {
	_, dropped, _ := out.state()
	_, droppedErr, _ := errs.state()
	n := dropped + droppedErr
	if n == 0 || c.noisy.Swap(true) {
		return
	}
	if c.cfg.Noisy != nil {
		c.cfg.Noisy(n)
		return
	}
	c.cfg.Notice(fmt.Sprintf("host %s: a start-up file of the login shell (such as .bashrc) prints %d bytes at each command; they are dropped", c.cfg.Host, n))
}

func (c *Client) named(err error) error { return fmt.Errorf("host %s: %w", c.cfg.Host, err) }

// shellError says that the login shell did not start the command.
func (c *Client) shellError(cause error, noise string) error {
	if cause == nil {
		cause = errors.New("it exited with 0")
	}
	err := fmt.Errorf("host %s: the login shell did not start /bin/sh: %w", c.cfg.Host, cause)
	if noise = strings.TrimSpace(noise); noise != "" {
		const most = 100 // bytes: enough to recognise the text
		if len(noise) > most {
			noise = noise[:most] + "..."
		}
		err = fmt.Errorf("%w; it printed %q", err, noise)
	}
	hint := "check the user's shell and its start-up files on the host: ssh " + c.cfg.Host + " echo hello must print hello and nothing else"
	if errors.Is(cause, errNoStart) {
		hint = "a start-up file of the login shell (such as .bashrc) may wait for input, or execute another program; let it end where there is no terminal: [ -t 0 ] || return"
	}
	return exit.WithHint(err, hint)
}

// maxNoise is how many bytes start-up files may print on one stream.
const maxNoise = 1 << 20

var (
	errNoise   = errors.New("more than 1 MiB came before the command's own output")
	errNoStart = fmt.Errorf("it has not started it within %v", startTime)
	errStopped = errors.New("run has returned")
)

// cleanWriter writes the bytes that follow the sentinel line, and drops those before it.
// After stop it writes nothing.
type cleanWriter struct {
	to       io.Writer
	begun    chan struct{} // closed once the sentinel has arrived
	sentinel []byte        // the line to wait for, with its newline; nil once it has arrived

	lock    chan struct{} // a mutex with a bounded wait: it holds one element while unlocked
	stopped atomic.Bool

	mu      sync.Mutex // guards the fields below, which are read while a write blocks
	busy    bool       // a Write of to is under way
	noise   []byte     // the first 256 of the dropped bytes, for messages
	dropped int        // number of dropped bytes
	found   bool       // the sentinel has arrived
	pending []byte     // the last bytes, which may be the beginning of the sentinel
	last    time.Time  // when the last write to to began or ended; at first when the writer was made
}

func newCleanWriter(to io.Writer, sentinel string) *cleanWriter {
	if to == nil {
		to = io.Discard
	}
	w := &cleanWriter{to: to, begun: make(chan struct{}), sentinel: []byte(sentinel + "\n"), lock: make(chan struct{}, 1), last: time.Now()}
	w.lock <- struct{}{}
	return w
}

func (w *cleanWriter) Write(p []byte) (int, error) {
	<-w.lock
	defer func() { w.lock <- struct{}{} }()
	if w.stopped.Load() {
		return 0, errStopped
	}
	own, err := w.clean(p)
	if err != nil {
		return 0, err
	}
	w.setBusy(true)
	defer w.setBusy(false)
	if len(own) > 0 {
		if _, err := w.to.Write(own); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

func (w *cleanWriter) setBusy(busy bool) {
	w.mu.Lock()
	w.busy, w.last = busy, time.Now()
	w.mu.Unlock()
}

// clean returns the part of p that is the command's own.
func (w *cleanWriter) clean(p []byte) ([]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.found {
		return p, nil
	}
	w.pending = append(w.pending, p...)
	if at := bytes.Index(w.pending, w.sentinel); at >= 0 {
		w.drop(at)
		own := w.pending[len(w.sentinel):]
		w.found, w.pending = true, nil
		close(w.begun)
		return own, nil
	}
	w.drop(max(0, len(w.pending)-len(w.sentinel)+1))
	if w.dropped > maxNoise {
		return nil, errNoise
	}
	return nil, nil
}

// drop removes the first n pending bytes, and keeps a sample of them.
func (w *cleanWriter) drop(n int) {
	room := max(0, 256-len(w.noise))
	w.noise = append(w.noise, w.pending[:min(n, room)]...)
	w.dropped += n
	w.pending = append([]byte(nil), w.pending[n:]...)
}

// state returns whether the sentinel has arrived, and how many bytes were dropped, with a
// sample of them.
func (w *cleanWriter) state() (found bool, dropped int, noise string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.found {
		return true, w.dropped, string(w.noise)
	}
	return false, w.dropped + len(w.pending), string(w.noise) + string(w.pending)
}

// idle returns the time since the last write, 0 during a write.
func (w *cleanWriter) idle() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy {
		return 0
	}
	return time.Since(w.last)
}

// stop ends the writing. It waits for a write under way, but not longer than wait.
func (w *cleanWriter) stop(wait time.Duration) {
	w.stopped.Store(true)
	select {
	case <-w.lock:
		w.lock <- struct{}{}
	case <-time.After(wait):
	}
}

// maxCommand bounds the encoded command, in bytes. The login shell gets the command as one
// argument, and Linux allows 128 KiB for an argument.
const maxCommand = 64 << 10

// Quote returns arg as one word of a POSIX shell, in single quotes. It does not refuse
// NUL: the shell does.
func Quote(arg string) string {
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}

// newSentinel returns a random word, which no start-up file prints.
func newSentinel() string {
	return "plx-" + rand.Text()
}

// wrap returns a line for the user's login shell. It prints sentinel on both streams and
// then runs script in /bin/sh.
//
// Login shells treat single quotes alike only without a quote, a backslash pair, an
// exclamation mark or a newline between them. So wrap encodes these, and all that is not
// printable ASCII, as \0ooo for printf's %b.
func wrap(script, sentinel string) (string, error) {
	if strings.IndexByte(script, 0) >= 0 {
		return "", errors.New("the command has a NUL byte")
	}
	const start = `printf "%%s\n" %[1]s; printf "%%s\n" %[1]s >&2; eval "shift; $(printf %%b "$1")"`
	line := "exec /bin/sh -c '" + fmt.Sprintf(start, sentinel) + "' plx '" + encode(script) + "'"
	if len(line) > maxCommand {
		return "", fmt.Errorf("the command is too long: %d bytes as sent, %d at most", len(line), maxCommand)
	}
	return line, nil
}

func encode(script string) string {
	var b strings.Builder
	b.Grow(len(script) + len(script)/4)
	for i := range len(script) {
		c := script[i]
		if c < ' ' || c > '~' || c == '\'' || c == '\\' || c == '!' {
			fmt.Fprintf(&b, `\0%03o`, c)
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}
