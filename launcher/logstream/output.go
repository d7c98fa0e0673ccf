// Package logstream brings the logs of a job from its hosts to this machine, while the
// job runs and after.
//
//	out := logstream.NewOutput(logstream.Config{Printer: p})
//	err := logstream.Print(ctx, agents, logs.Request{TailLines: -1}, out, lease, nil)
//	err = errors.Join(err, out.Close())
//
// feed.go reads one host over as many connections as it takes: a new one continues at
// the byte where the last one stopped. Package logs makes lines of the bytes.
package logstream

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/live"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/logs"
	"github.com/plx-run/plx/trainer/cluster"
)

// Config tells where logs are written. Printer is required.
type Config struct {
	Printer *console.Printer // its display shows the lines
	Logs    logs.Options     // NewOutput sets the mark of verbose lines
	Dir     *logs.Dir        // takes the bytes of each stream in a file of its own; nil: no files
	Line    *live.Line       // learns what the tasks report; nil: nobody asks
	// Unread is called once if the reader of the terminal's outputs is gone. Dir goes
	// on to be written. Nil: that is an error.
	Unread func()
}

// Output is where the logs of a job are written on this machine. Any goroutine may use
// it.
type Output struct {
	cfg     Config
	printer *logs.Printer
	cursor  logs.Cursor // how much was received of each host's logs
	unread  sync.Once   // calls Config.Unread once
	// ballast is never touched, so it takes no memory. The garbage collector counts it, and
	// runs once in 32 MB of received packets, not in 4 MB.
	ballast []byte

	last atomic.Int64 // when output came last, in nanoseconds since 1970; 0: none has

	mu     sync.Mutex
	failed error // error of the first write that failed; nil: none has
}

// NewOutput returns an Output. Close must be called.
func NewOutput(cfg Config) *Output {
	cfg.Logs.Mark, cfg.Logs.Plain = cluster.VerboseMark, "plx: "
	cfg.Logs.Loss = protocol.LossOfPeer
	return &Output{cfg: cfg, printer: logs.NewPrinter(cfg.Printer.Display(), cfg.Logs), ballast: make([]byte, 16<<20)}
}

// take writes the part of a chunk that was not received before. Its error is an
// errOutput.
func (o *Output) take(from *hosts.Host, c logs.Chunk) error {
	c, err := o.cursor.Take(from.Label(), c)
	if err == nil {
		err = o.write(from.Name(), c)
	}
	if err != nil {
		return o.fail(err)
	}
	return nil
}

func (o *Output) write(host string, c logs.Chunk) error {
	if len(c.Data) > 0 {
		o.last.Store(time.Now().UnixNano())
		if o.cfg.Line != nil {
			o.cfg.Line.Chunk(host, c)
		}
	}
	if o.cfg.Dir != nil {
		if err := o.cfg.Dir.Chunk(host, c); err != nil {
			return err
		}
	}
	err := o.printer.Chunk(host, c)
	if o.cfg.Unread != nil && errors.Is(err, syscall.EPIPE) {
		o.unread.Do(o.cfg.Unread)
		return nil
	}
	return err
}

// Last returns when output of a task came last; zero: none has.
func (o *Output) Last() time.Time {
	if last := o.last.Load(); last != 0 {
		return time.Unix(0, last)
	}
	return time.Time{}
}

// Shown reports whether the last line of a task's stderr is text, and was printed just
// now.
func (o *Output) Shown(host, task, text string) bool { return o.printer.Shown(host, task, text) }

// Close prints unfinished lines. It returns the first error of any write.
func (o *Output) Close() error {
	err := o.printer.Close()
	if o.cfg.Unread != nil && errors.Is(err, syscall.EPIPE) {
		err = nil // Unread was called
	}
	var dirErr error
	if o.cfg.Dir != nil {
		dirErr = o.cfg.Dir.Close()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return cmp.Or(o.failed, err, dirErr)
}

// errOutput marks an error of a write on this machine. A new connection does not help,
// and Close returns the error.
var errOutput = errors.New("write logs here")

// fail keeps the first error, and marks it.
func (o *Output) fail(err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed == nil {
		o.failed = err
	}
	return fmt.Errorf("%w: %w", errOutput, err)
}
