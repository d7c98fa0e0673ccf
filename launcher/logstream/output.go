// Package logstream copies the logs of a job's tasks from the hosts to this
// machine, during the job and afterwards.
//
//	out := logstream.NewOutput(logstream.Config{Printer: p})
//	err := logstream.Print(ctx, agents, logs.Request{TailLines: -1}, out, lease, nil)
//	err = errors.Join(err, out.Close())
//
// feed.go reads the logs of one host. After a lost connection it reconnects
// and continues at the byte where the last connection stopped. Package logs
// splits the bytes into lines.
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

// Config describes where an Output writes logs. Only Printer is required.
type Config struct {
	Printer *console.Printer // its display prints the log lines
	Logs    logs.Options     // format of the lines; NewOutput sets the fields Mark, Plain and Loss
	Dir     *logs.Dir        // directory with one log file per task and stream; nil: write no files
	Line    *live.Line       // status line that shows what the tasks print; nil: no status line
	// Unread is called once if a write to the terminal fails with EPIPE,
	// because the process that read plx's output has exited. Output then still
	// writes to Dir. If Unread is nil, EPIPE is an error.
	Unread func()
}

// Output writes the logs of a job on this machine: to the terminal and, if
// configured, to files. Several goroutines may use it at once.
type Output struct {
	cfg     Config
	printer *logs.Printer
	cursor  logs.Cursor // number of log bytes received from each host
	unread  sync.Once   // makes sure that Config.Unread is called only once
	// ballast is memory that only makes the garbage collector run less often:
	// once per 32 MB of received packets instead of 4 MB. Nothing writes to
	// ballast, so it uses no physical memory.
	ballast []byte

	last atomic.Int64 // when output last arrived, in Unix nanoseconds; 0: no output yet

	mu     sync.Mutex
	failed error // first error of a write; nil if none has failed; guarded by mu
}

// NewOutput returns an Output. The caller must call Close.
func NewOutput(cfg Config) *Output {
	cfg.Logs.Mark, cfg.Logs.Plain = cluster.VerboseMark, "plx: "
	cfg.Logs.Loss = protocol.LossOfPeer
	return &Output{cfg: cfg, printer: logs.NewPrinter(cfg.Printer.Display(), cfg.Logs), ballast: make([]byte, 16<<20)}
}

// take writes the part of chunk c that was not received before. If a write
// fails, the error wraps errOutput.
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

// Last returns when a task's output last arrived, or the zero time if there
// was none yet.
func (o *Output) Last() time.Time {
	if last := o.last.Load(); last != 0 {
		return time.Unix(0, last)
	}
	return time.Time{}
}

// Shown reports whether text was just printed as the last line of a task's
// stderr.
func (o *Output) Shown(host, task, text string) bool { return o.printer.Shown(host, task, text) }

// Close prints lines that lack their newline. It returns the first error of
// any write.
func (o *Output) Close() error {
	err := o.printer.Close()
	if o.cfg.Unread != nil && errors.Is(err, syscall.EPIPE) {
		err = nil // Unread was already called for this error
	}
	var dirErr error
	if o.cfg.Dir != nil {
		dirErr = o.cfg.Dir.Close()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return cmp.Or(o.failed, err, dirErr)
}

// errOutput marks a failed write on this machine. plx then does not reconnect
// to the host, because that would not help. Output.Close returns the
// underlying error.
var errOutput = errors.New("write logs on this machine")

// fail stores err if it is the first error of a write, and returns it wrapped
// in errOutput.
func (o *Output) fail(err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed == nil {
		o.failed = err
	}
	return fmt.Errorf("%w: %w", errOutput, err)
}
