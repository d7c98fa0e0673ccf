package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/plx-run/plx/launcher/coordinator"
	"github.com/plx-run/plx/logs"
)

// output is where a job's logs go on this machine.
type output struct {
	printer *logs.Printer
	dir     *logs.Dir // nil without --log-dir
	cursor  logs.Cursor
	unread  func() // called when nobody reads plx's output any more; may be nil

	mu     sync.Mutex
	failed error // the first write that failed here
}

// openOutput makes the printer, through which plx speaks too from then on.
func (l *launch) openOutput() (*output, error) {
	opts := printing(l.cfg.Terminal)
	opts.Grep = l.cfg.Grep
	for i, h := range l.place.hosts {
		opts.Hosts = append(opts.Hosts, l.stations[i].host.Name)
		for _, t := range h.tasks {
			opts.Tasks = append(opts.Tasks, t.task.String())
		}
	}
	out := &output{printer: logs.NewPrinter(l.cfg.Terminal.Stdout, l.cfg.Terminal.Stderr, opts)}
	out.unread = sync.OnceFunc(func() { l.signals.noReader(l.cfg.Grace) })
	out.dir = l.dir
	l.voice.through(out.printer.Notice)
	return out, nil
}

func printing(t Terminal) logs.Options {
	return logs.Options{
		Stdout: logs.Screen{Terminal: t.StdoutTTY, Colour: t.StdoutColour},
		Stderr: logs.Screen{Terminal: t.StderrTTY, Colour: t.StderrColour},
	}
}

// take prints a chunk, once, whatever was sent twice after a reconnection.
func (o *output) take(host string, c logs.Chunk) error {
	c, err := o.cursor.Take(host, c)
	if err != nil {
		return err
	}
	if o.dir != nil {
		if err := o.dir.Chunk(host, c); err != nil {
			return err
		}
	}
	err = o.printer.Chunk(host, c)
	if o.unread != nil && errors.Is(err, syscall.EPIPE) {
		o.unread()
		return nil // --log-dir goes on
	}
	return err
}

// Close prints what has no newline at its end. Its error is the first one of
// any write here, which every stream of logs met.
func (o *output) Close() error {
	err := o.printer.Close()
	if o.unread != nil && errors.Is(err, syscall.EPIPE) {
		err = nil // told before
	}
	if o.dir != nil {
		if failed := o.dir.Close(); err == nil {
			err = failed
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed != nil {
		return o.failed
	}
	return err
}

// fail keeps the first error and marks it for the stream that met it.
func (o *output) fail(err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed == nil {
		o.failed = err
	}
	return fmt.Errorf("%w: %w", errOutput, err)
}

// logStreams are the readers of a job's logs, one per host.
type logStreams struct {
	mu  sync.Mutex
	all []*logStream
}

// logStream reads the logs of one host.
type logStream struct {
	station *station
	before  *logStream // of an agent before; nil for the first
	heard   hearing
	cancel  context.CancelCauseFunc
	done    chan struct{}
	err     error // once done is closed
}

// logPatience is how long, after the verdict, a host may be silent before the
// rest of its logs is given up. A host that has nothing to send says so more
// often.
const logPatience = 10 * time.Second

// follow streams a host's logs until it has sent all of them, or was out of
// reach for longer than its lease.
//
// Called again, for the agent that has taken another's place, it goes on where
// the reader before has ended.
func (g *logStreams) follow(ctx context.Context, s *station, out *output, lease time.Duration) {
	ctx, cancel := context.WithCancelCause(ctx)
	st := &logStream{station: s, cancel: cancel, done: make(chan struct{})}
	st.heard.note()
	before := g.add(st)
	go func() {
		defer close(st.done)
		defer cancel(nil)
		if before != nil {
			<-before.done // it ends by itself, or is cancelled like this one
		}
		st.err = s.follow(ctx, logs.Request{TailLines: -1, Follow: true}, out, &st.heard, lease+logPatience)
	}()
}

// add puts st in the place of the host's stream before, which it returns.
func (g *logStreams) add(st *logStream) (before *logStream) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, old := range g.all {
		if old.station == st.station {
			g.all[i] = st
			st.before = old
			return old
		}
	}
	g.all = append(g.all, st)
	return nil
}

// stop gives the stream up, and that which it would go on from.
func (st *logStream) stop(why error) {
	for ; st != nil; st = st.before {
		st.cancel(why)
	}
}

// wait waits, after the verdict, until every host has sent all of its logs. It
// gives up those that are silent, those that are lost at once, and all when
// the user has no more patience. An error of a host that forgive takes is none.
func (g *logStreams) wait(lost map[*station]bool, stops <-chan coordinator.StopAsked, forgive func(*station, error) bool) error {
	verdict := time.Now()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var errs []error
	for _, st := range g.all {
		for waiting := true; waiting; {
			select {
			case <-st.done:
				waiting = false
			case <-stops:
				g.leave(errors.New("the rest was not waited for"))
			case <-tick.C:
				if st.heard.silence() > logPatience && (lost[st.station] || time.Since(verdict) > logPatience) {
					st.stop(errors.New("the last lines may be missing"))
				}
			}
		}
		if st.err != nil && !errors.Is(st.err, errOutput) && !forgive(st.station, st.err) { // Close tells of the former, once for all
			errs = append(errs, fmt.Errorf("host %s: logs: %w", st.station.host.Name, st.err))
		}
	}
	return errors.Join(errs...)
}

func (g *logStreams) leave(why error) {
	for _, st := range g.all {
		st.stop(why)
	}
}

// hearing remembers when a host last sent a byte.
type hearing struct{ at atomic.Int64 }

func (h *hearing) note()                  { h.at.Store(time.Now().UnixNano()) }
func (h *hearing) silence() time.Duration { return time.Since(time.Unix(0, h.at.Load())) }

// heard notes what passes through it.
type heard struct {
	io.Reader
	*hearing
}

func (r heard) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if n > 0 {
		r.note()
	}
	return n, err
}

// killed is the least exit status of a command that a signal ended.
const killed = 128

// follow takes a host's log chunks to their end, over as many connections as
// it needs. It gives up when nothing came for its patience.
func (s *station) follow(ctx context.Context, req logs.Request, out *output, h *hearing, patience time.Duration) error {
	h.note()
	for {
		err := s.read(ctx, out.cursor.Request(s.host.Name, req), out, h)
		if err == nil || errors.Is(err, errOutput) {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if status := exitStatus(err); status >= 0 && status < killed || h.silence() > patience {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// errOutput marks an error of this machine's side, which no reconnection
// mends.
var errOutput = errors.New("write logs here")

// read is one connection: nil means that the host sent its last byte.
func (s *station) read(ctx context.Context, req logs.Request, out *output, h *hearing) error {
	line, err := json.Marshal(req)
	if err != nil {
		return err
	}
	st := openStream(ctx, s.remote, s.command("logs "+s.where()))
	defer st.Close()
	stop := context.AfterFunc(ctx, func() { st.Close() })
	defer stop()
	go func() {
		st.Write(append(line, '\n')) // a failed write shows as a failed read
	}()
	r := logs.NewReader(heard{st, h})
	for {
		c, err := r.Next()
		if errors.Is(err, io.EOF) {
			return st.finish()
		}
		if err != nil {
			return err
		}
		if err := out.take(s.host.Name, c); err != nil {
			return out.fail(err)
		}
	}
}
