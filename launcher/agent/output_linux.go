package agent

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// tailSize is how many of the last bytes of stderr an Exit carries.
const tailSize = 4 << 10

// output carries one stream of a task from a pipe into its spool. A spool
// that takes no bytes, for want of disk, costs bytes but never the task.
type output struct {
	pipe *os.File
	tell func(string)  // a line for the user
	done chan struct{} // closed when all was read, or close was called

	writing sync.Mutex
	spool

	mu   sync.Mutex
	tail []byte
}

// spool is where a stream is kept.
type spool struct {
	name string // "worker:3 stderr"
	io.WriteCloser
	dropped, gap int64 // bytes in all, and since the last one that was written
}

// newOutput returns an output and the end of its pipe that the task inherits,
// which the caller closes. tell may be called from another goroutine.
func newOutput(name string, to io.WriteCloser, tell func(string)) (*output, int, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, 0, fmt.Errorf("pipe for %s: %w", name, err)
	}
	// Only this end: the task is not to meet an output that would block.
	if err := unix.SetNonblock(fds[0], true); err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return nil, 0, fmt.Errorf("pipe for %s: %w", name, err)
	}
	o := &output{spool: spool{name: name, WriteCloser: to}, pipe: os.NewFile(uintptr(fds[0]), name), tell: tell, done: make(chan struct{})}
	return o, fds[1], nil
}

// run reads until every writer has closed its end, or close is called.
func (o *output) run() {
	defer close(o.done)
	buf := make([]byte, 64<<10)
	for {
		n, err := o.pipe.Read(buf)
		o.keep(buf[:n])
		if err != nil {
			return // the end, or closed
		}
	}
}

// turn has what comes from now on written to another spool, which is opened once
// the one before is closed, or could not be: the stream is another task's. The
// last bytes are forgotten with it. What is wrong with the one before is
// returned and not told: whoever is told may be who calls it.
func (o *output) turn(name string, open func() (io.WriteCloser, error)) (before, opening error) {
	o.mu.Lock()
	o.tail = nil
	o.mu.Unlock()
	o.writing.Lock()
	defer o.writing.Unlock()
	err := o.Close()
	if err == nil && o.dropped > 0 {
		err = o.lost()
	}
	if err != nil {
		before = fmt.Errorf("%s: %w", o.name, err)
	}
	to, opening := open()
	if opening != nil {
		to = lostSpool{opening}
	}
	o.spool = spool{name: name, WriteCloser: to}
	return before, opening
}

// lostSpool is one that could not be opened.
type lostSpool struct{ error }

func (l lostSpool) Write([]byte) (int, error) { return 0, l.error }
func (lostSpool) Close() error                { return nil }

// keep writes p to the spool and remembers the last bytes. Only run calls it.
func (o *output) keep(p []byte) {
	o.remember(p)
	if err := o.put(p); err != nil { // not before turn may go on
		o.tell(fmt.Sprintf("output is being lost: %v", err))
	}
}

// put writes p. Its error is why the first bytes of a spool were lost.
func (o *output) put(p []byte) error {
	o.writing.Lock()
	defer o.writing.Unlock()
	if o.gap > 0 && len(p) > 0 {
		mark := fmt.Sprintf("\nplx: %d bytes are missing here: the disk was full\n", o.gap)
		if _, err := io.WriteString(o.WriteCloser, mark); err != nil {
			return o.drop(len(p), err)
		}
		o.gap = 0
	}
	if n, err := o.Write(p); err != nil {
		return o.drop(len(p)-n, err)
	}
	return nil
}

func (o *output) remember(p []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tail = append(o.tail, p...)
	if extra := len(o.tail) - tailSize; extra > 0 {
		o.tail = append(o.tail[:0], o.tail[extra:]...)
	}
}

// drop counts bytes that the spool did not take. Its error is that of the first.
func (o *output) drop(n int, err error) error {
	if o.dropped > 0 {
		err = nil // it was told
	}
	o.dropped += int64(n)
	o.gap += int64(n)
	return err
}

// lost says how much was.
func (s *spool) lost() error { return fmt.Errorf("%d bytes of output were lost", s.dropped) }

// lastLines returns the last bytes of the stream, from the start of a line
// where one is in them.
func (o *output) lastLines() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	tail := o.tail
	if len(tail) == tailSize {
		for i, b := range tail[:len(tail)-1] {
			if b == '\n' {
				tail = tail[i+1:]
				break
			}
		}
	}
	return string(tail)
}

// close ends the reading, once all is read or at the deadline, and closes the
// spool. It tells how much was lost.
func (o *output) close(deadline time.Time) error {
	within(time.Until(deadline), o.done)
	// A read that is going on returns: the pipe is in the poller.
	err := o.pipe.Close()
	if !within(closing, o.done) {
		return errors.Join(err, errors.New("a spool takes no bytes"))
	}
	o.writing.Lock()
	defer o.writing.Unlock()
	if o.dropped > 0 {
		o.tell(fmt.Sprintf("%s: %v", o.name, o.lost()))
	}
	return errors.Join(err, o.Close())
}

// closing bounds the wait for a spool's last write.
const closing = 3 * time.Second
