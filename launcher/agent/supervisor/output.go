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

// output copies one output stream of a task from a pipe into a log file, the
// spool. If the disk is full, it drops bytes instead of blocking the task.
type output struct {
	name   string         // task and stream, such as "worker:3 stderr"
	pipe   *os.File       // read end of the pipe; the task has the write end
	to     io.WriteCloser // log file of this stream, called the spool
	notify func(string)   // shows a message to the user
	scan   func([]byte)   // searches new output for metrics; must not keep the slice that it gets
	done   chan struct{}  // closed when run has returned: the stream has ended, or close was called
	read   atomic.Int64   // number of bytes read from the task so far

	// Only the method run accesses dropped and gap until done is closed.
	dropped int64 // total number of bytes not written to the spool
	gap     int64 // number of bytes dropped since the last successful write to the spool

	mu   sync.Mutex
	tail []byte // last bytes of the stream: all bytes at first, later between tailKept and 2*tailKept bytes
	seen crash  // parser for a crash report of the Go runtime in the stream
}

// newOutput returns an output, and the write end of its pipe for the task,
// which the caller must close. The goroutine of run calls notify and scan.
func newOutput(name string, to io.WriteCloser, notify func(string), scan func([]byte)) (*output, *os.File, error) {
	pipe, end, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("pipe for %s: %w", name, err)
	}
	return &output{name: name, to: to, pipe: pipe, notify: notify, scan: scan, done: make(chan struct{})}, end, nil
}

// run copies the stream until all writers have closed the pipe, or close is
// called.
func (o *output) run() {
	defer close(o.done)
	buf := make([]byte, 64<<10)
	for {
		n, err := o.pipe.Read(buf)
		o.read.Add(int64(n))
		o.keep(buf[:n])
		o.scan(buf[:n])
		if err != nil {
			return // the pipe has reached end of file, or the method close has closed it
		}
	}
}

// keep writes p to the log file and to the tail that stays in memory. Only the
// goroutine of run calls it.
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
	if len(o.tail) > 2*tailKept { // trim only when the tail has reached twice the size, so that each byte is moved at most once
		o.tail = append(o.tail[:0], o.tail[len(o.tail)-tailKept:]...)
	}
}

// tailKept is the number of bytes at the end of a stream in which plx searches
// for the cause of a failure. Earlier output says nothing about the end of the
// program.
const tailKept = 32 << 10

// crashed returns a one-line summary of the Go runtime's crash report in the
// stream, or "" if there is none.
func (o *output) crashed() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.seen.found
}

// endContains reports whether the end of the stream contains one of the texts.
func (o *output) endContains(texts [][]byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	end := o.tail[max(0, len(o.tail)-tailKept):]
	return slices.ContainsFunc(texts, func(text []byte) bool { return bytes.Contains(end, text) })
}

// drop counts n bytes that could not be written to the spool. The first time,
// it also informs the user.
func (o *output) drop(n int, err error) {
	if o.dropped == 0 {
		o.notify(fmt.Sprintf("output is being lost: %v", err))
	}
	o.dropped += int64(n)
	o.gap += int64(n)
}

// lastLines returns up to tailSize bytes from the end of the stream. The
// result begins at the start of a line, unless a single line is longer.
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

// close waits until the whole stream was read, or until the deadline, and
// closes the pipe and the spool. If output was lost, close shows the user the
// number of lost bytes.
func (o *output) close(deadline time.Time) error {
	within(time.Until(deadline), o.done)
	// Closing the pipe interrupts a pending Read. This works because os.File
	// waits for pipes with Go's network poller.
	err := o.pipe.Close()
	if !within(spoolTimeout, o.done) {
		return errors.Join(err, errors.New("timed out writing the last output to the log (file system hung?)"))
	}
	if o.dropped > 0 {
		o.notify(fmt.Sprintf("%s: %d bytes of output were lost", o.name, o.dropped))
	}
	return errors.Join(err, o.to.Close())
}

// spoolTimeout is how long close waits for the last write to the spool.
const spoolTimeout = 3 * time.Second
