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
	// settleTime limits how long Run waits for its own goroutines after the
	// command has ended.
	settleTime = 200 * time.Millisecond
	// drainIdle is the time without output after which Run returns although a
	// process that the exited command left behind still holds its output open.
	drainIdle = 5 * time.Second
	// startTime limits the wait for the start of a command that reads stdin.
	// Without a limit, a shell start-up file that reads from stdin would block
	// forever.
	startTime = 65 * time.Second
)

// Run runs command, a /bin/sh script of at most about 64 KiB, on the host. It
// returns after the command has exited and its output was written.
//
// The error is nil for exit status 0, a [transport.ExitError] for another
// status, and a [transport.LostError] if the connection is lost. If ctx ends
// first, Run returns the cause of ctx at once. A nil stdin is empty, and a nil
// writer drops the output. Only the output of the command itself reaches
// stdout and stderr.
//
// The command starts in the user's home directory with the environment that
// the server sets. If Run returns early it does not kill the command, but
// closes the command's stdin and output. If a background process still holds
// the output of an exited command open, Run waits until nothing was written
// for 5 s.
//
// Run writes nothing after it has returned. If stdin is an [io.PipeReader] and
// the command was started, Run closes it, so that writers to the pipe get an
// error. Run cannot interrupt a blocked Read of any other stdin; the bytes of
// that Read are lost.
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
	err = c.copyStreams(ctx, s, stdin, out, errs)
	return c.verdict(ctx, err, out, errs)
}

// copyStreams copies stdin and both outputs until the command has ended, and
// returns the command's exit error.
func (c *Client) copyStreams(ctx context.Context, s *session, stdin io.Reader, out, errs *cleanWriter) error {
	sent, drained := make(chan error, 1), make(chan error, 2)
	// Client.Close does not wait for this goroutine, because it may block in a
	// Read that only the caller of Run can end.
	fed, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(fed)
		if stdin != nil {
			// Send stdin only after the command has started: a shell start-up
			// file could otherwise read the command's stdin.
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
	c.workers.start(func() { // warn about the output of shell start-up files before the command ends, since it may run for a long time
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
	out.stop(settleTime)
	errs.stop(settleTime)
	if pipe, ok := stdin.(*io.PipeReader); ok {
		_ = pipe.Close() // Close of a PipeReader never fails.
	}
	select { // If a Read of stdin returns soon, let the goroutine end before Run returns.
	case <-fed:
	case <-time.After(settleTime):
	}
	return err
}

// await waits until both outputs have ended and the exit status has arrived.
// It also returns if the command has exited and the function idle reports that
// nothing was written for a while.
func (c *Client) await(ctx context.Context, s *session, sent, drained <-chan error, idle func() bool) error {
	var exit error
	// exited is the time of the command's exit, or zero while the command
	// runs. open is the number of outputs (stdout, stderr) that have not
	// ended.
	exited, open := time.Time{}, 2
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
			// Wait drainIdle after the exit as well: a command that printed
			// nothing for long may print its last output just before it exits.
			if !exited.IsZero() && time.Since(exited) > drainIdle && idle() {
				return exit
			}
		}
	}
	return exit
}

// feed copies stdin to the command and then closes the command's stdin. It
// returns only errors of reading stdin. A failed write is no error, since a
// command need not read its whole stdin.
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

// maxDrain is the largest size of the buffer for reading a command's output,
// in bytes.
const maxDrain = 128 << 10

// drain copies one output of the command to its writer. It returns only errors
// of writing. The buffer doubles whenever a read fills it: large reads need
// fewer calls and fewer SSH window-adjust packets.
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
			return nil // Ignore the error: the exit status says why the channel ended.
		}
		if n == len(buf) && n < maxDrain {
			buf = make([]byte, 2*n)
		}
	}
}

// verdict turns the result of copyStreams into the error of Run. It distinguishes
// a failed command, a login shell that never started the command, a lost
// connection, and the end of ctx.
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

// noticeNoise warns the user that a shell start-up file prints text. It does
// so at most once per connection.
func (c *Client) noticeNoise(out, errs *cleanWriter) {
	_, dropped, _ := out.state()
	_, droppedErr, _ := errs.state()
	n := dropped + droppedErr
	if n == 0 || c.warnedOfNoise.Swap(true) {
		return
	}
	if c.cfg.OnStartUpOutput != nil {
		c.cfg.OnStartUpOutput(n)
		return
	}
	c.cfg.Notice(fmt.Sprintf("host %s: a start-up file of the login shell (such as .bashrc) prints %d bytes at each command; they are dropped", c.cfg.Host, n))
}

func (c *Client) named(err error) error { return fmt.Errorf("host %s: %w", c.cfg.Host, err) }

// shellError returns the error for a login shell that did not start /bin/sh.
// noise is what the shell's start-up files printed.
func (c *Client) shellError(cause error, noise string) error {
	if cause == nil {
		cause = errors.New("it exited with 0")
	}
	err := fmt.Errorf("host %s: the login shell did not start /bin/sh: %w", c.cfg.Host, cause)
	if noise = strings.TrimSpace(noise); noise != "" {
		const most = 100 // bytes of the printed text that the message quotes
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

// maxNoise limits what shell start-up files may print on one stream before the
// command starts, in bytes.
const maxNoise = 1 << 20

var (
	errNoise   = errors.New("more than 1 MiB came before the command's own output")
	errNoStart = fmt.Errorf("no sign of it within %v", startTime)
	errStopped = errors.New("run has returned")
)

// cleanWriter drops all bytes before the sentinel: a line that Run makes the
// remote shell print just before the command starts. It writes the bytes after
// the sentinel to the underlying writer. After stop was called, it writes
// nothing.
type cleanWriter struct {
	to       io.Writer
	begun    chan struct{} // closed once the sentinel has arrived
	sentinel []byte        // the sentinel and its newline, which precede the command's output

	lock    chan struct{} // a mutex whose wait can have a time limit: the channel holds one element while unlocked
	stopped atomic.Bool

	mu      sync.Mutex // guards the fields below; never held during a write to the underlying writer
	busy    bool       // true during a Write to the underlying writer
	noise   []byte     // first 256 dropped bytes, for error messages
	dropped int        // number of bytes dropped so far
	found   bool       // true once the sentinel has arrived
	pending []byte     // last bytes received, which may be the start of the sentinel
	last    time.Time  // start or end time of the last Write; before the first Write, the creation time of the cleanWriter
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

// clean returns the part of p that follows the sentinel, which is the output
// of the command itself. It returns nothing while the sentinel has not
// arrived.
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

// drop discards the first n bytes of pending. It keeps the first 256 discarded
// bytes in noise.
func (w *cleanWriter) drop(n int) {
	room := max(0, 256-len(w.noise))
	w.noise = append(w.noise, w.pending[:min(n, room)]...)
	w.dropped += n
	w.pending = append([]byte(nil), w.pending[n:]...)
}

// state returns whether the sentinel has arrived, the number of bytes before
// the sentinel, and the first of these bytes.
func (w *cleanWriter) state() (found bool, dropped int, noise string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.found {
		return true, w.dropped, string(w.noise)
	}
	return false, w.dropped + len(w.pending), string(w.noise) + string(w.pending)
}

// idle returns the time since the last Write, or 0 while a Write is running.
func (w *cleanWriter) idle() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy {
		return 0
	}
	return time.Since(w.last)
}

// stop makes all later writes fail. If a Write is running, stop waits for it,
// but at most for the duration wait.
func (w *cleanWriter) stop(wait time.Duration) {
	w.stopped.Store(true)
	select {
	case <-w.lock:
		w.lock <- struct{}{}
	case <-time.After(wait):
	}
}

// maxCommand limits the size of the encoded command, in bytes. The login shell
// receives the command as a single argument, which Linux limits to 128 KiB.
const maxCommand = 64 << 10

// Quote returns arg as a single-quoted word for a POSIX shell. It does not
// check for NUL bytes, which a shell rejects.
func Quote(arg string) string {
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}

// newSentinel returns a random word, so that no shell start-up file can print
// the same one by accident.
func newSentinel() string {
	return "plx-" + rand.Text()
}

// wrap returns a command line for the user's login shell. The line prints
// sentinel on stdout and stderr and then runs script in /bin/sh.
//
// The line must work in every login shell. All shells treat single-quoted text
// alike if it contains no quote, backslash, exclamation mark or newline. So
// wrap encodes these characters, and all that are not printable ASCII, as
// \0ooo, which printf %b decodes.
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
