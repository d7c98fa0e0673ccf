//go:build linux

package supervisor

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// output carries one stream of a task from a pipe into its spool. On a full disk it
// drops bytes, so that the task does not wait.
type output struct {
	name string         // task and stream, such as "worker:3 stderr"
	pipe *os.File       // read end; the task has the other end
	to   io.WriteCloser // the spool: the stream's log file on the host
	tell func(string)   // takes a line for the user
	look func([]byte)   // looks for metrics in what has been written to the spool, and does not keep it
	done chan struct{}  // closed when the stream has ended, or close was called
	read atomic.Int64   // bytes that the task has written

	// Until done is closed, only run uses these.
	dropped int64 // bytes that the spool did not take, in all
	gap     int64 // bytes dropped since the last one that the spool took; 0: the spool has no gap at its end

	mu   sync.Mutex
	tail []byte // the last bytes of the stream, at most twice tailKept
	seen crash  // what the stream tells of a crash
}

// newOutput returns an output and the end of its pipe that the task inherits, which
// the caller closes. A goroutine of the output calls tell and look.
func newOutput(name string, to io.WriteCloser, tell func(string), look func([]byte)) (*output, *os.File, error) {
	pipe, end, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("pipe for %s: %w", name, err)
	}
	return &output{name: name, to: to, pipe: pipe, tell: tell, look: look, done: make(chan struct{})}, end, nil
}

// run reads until every writer has closed its end, or close is called.
func (o *output) run() {
	defer close(o.done)
	buf := make([]byte, 64<<10)
	for {
		n, err := o.pipe.Read(buf)
		o.read.Add(int64(n))
		o.keep(buf[:n])
		o.look(buf[:n])
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
	o.seen.read(p)
	o.tail = append(o.tail, p[max(0, len(p)-tailKept):]...)
	if len(o.tail) > 2*tailKept { // not before, so that each byte is moved once at most
		o.tail = append(o.tail[:0], o.tail[len(o.tail)-tailKept:]...)
	}
}

// tailKept is how many of the last bytes of a stream are kept, at least. A sign that a program
// has survived for longer says nothing about its end.
const tailKept = 32 << 10

// crashed returns why the Go runtime has ended the program, in one line; "": it has not.
func (o *output) crashed() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.seen.found
}

// says reports whether the last bytes of the stream have one of some texts.
func (o *output) says(texts [][]byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	end := o.tail[max(0, len(o.tail)-tailKept):]
	return slices.ContainsFunc(texts, func(text []byte) bool { return bytes.Contains(end, text) })
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
	tail := o.tail[max(0, len(o.tail)-tailSize):]
	if len(tail) == tailSize {
		if i := bytes.IndexByte(tail[:len(tail)-1], '\n'); i >= 0 {
			tail = tail[i+1:]
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
