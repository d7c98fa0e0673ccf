//go:build linux

package supervisor

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

// output carries one stream of a task from a pipe into its spool. On a full disk it
// drops bytes, so that the task does not wait.
type output struct {
	name string // "worker:3 stderr"
	pipe *os.File
	to   io.WriteCloser // the spool
	tell func(string)   // takes a line for the user
	done chan struct{}  // closed when all was read, or close was called

	// Until done is closed, only run uses these.
	dropped int64 // bytes dropped in all
	gap     int64 // bytes dropped since the last one that was written

	mu   sync.Mutex
	tail []byte // the last bytes of the stream, at most tailSize
}

// newOutput returns an output and the end of its pipe that the task inherits, which
// the caller closes. A goroutine of the output calls tell.
func newOutput(name string, to io.WriteCloser, tell func(string)) (*output, int, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, 0, fmt.Errorf("pipe for %s: %w", name, err)
	}
	// Only this end: the task's writes must block, not fail.
	if err := unix.SetNonblock(fds[0], true); err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return nil, 0, fmt.Errorf("pipe for %s: %w", name, err)
	}
	o := &output{name: name, to: to, pipe: os.NewFile(uintptr(fds[0]), name), tell: tell, done: make(chan struct{})}
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

// keep writes p to the spool and remembers the last bytes. Only run calls it.
func (o *output) keep(p []byte) {
	o.remember(p)
	if o.gap > 0 && len(p) > 0 {
		mark := fmt.Sprintf("\nplx: %d bytes are missing here: the disk was full\n", o.gap)
		if _, err := io.WriteString(o.to, mark); err != nil {
			o.drop(len(p), err)
			return
		}
		o.gap = 0
	}
	if n, err := o.to.Write(p); err != nil {
		o.drop(len(p)-n, err)
	}
}

func (o *output) remember(p []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tail = append(o.tail, p...)
	if extra := len(o.tail) - tailSize; extra > 0 {
		o.tail = append(o.tail[:0], o.tail[extra:]...)
	}
}

// drop counts bytes that the spool did not take. It tells the user once.
func (o *output) drop(n int, err error) {
	if o.dropped == 0 {
		o.tell(fmt.Sprintf("output is being lost: %v", err))
	}
	o.dropped += int64(n)
	o.gap += int64(n)
}

// lastLines returns the last bytes of the stream. They begin at the start of a line,
// unless one line is longer than tailSize.
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

// close ends the reading, after all was read or at the deadline, and closes the
// spool. It tells the user how much was lost.
func (o *output) close(deadline time.Time) error {
	within(time.Until(deadline), o.done)
	// A read that is going on returns: the pipe is in the poller.
	err := o.pipe.Close()
	if !within(closing, o.done) {
		return errors.Join(err, errors.New("the disk took no more output in time"))
	}
	if o.dropped > 0 {
		o.tell(fmt.Sprintf("%s: %d bytes of output were lost", o.name, o.dropped))
	}
	return errors.Join(err, o.to.Close())
}

// closing bounds the wait for a spool's last write.
const closing = 3 * time.Second
