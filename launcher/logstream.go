package launcher

import (
	"context"
	"errors"
	"fmt"
	"sync"
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

// take prints a chunk, once, whatever was sent twice after a reconnection. Its
// error is an errOutput.
func (o *output) take(from *remote, c logs.Chunk) error {
	c, err := o.cursor.Take(from.label(), c)
	if err == nil {
		err = o.write(from.host.Name, c)
	}
	if err != nil {
		return o.fail(err)
	}
	return nil
}

func (o *output) write(host string, c logs.Chunk) error {
	if o.dir != nil {
		if err := o.dir.Chunk(host, c); err != nil {
			return err
		}
	}
	err := o.printer.Chunk(host, c)
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

// errOutput marks an error of this machine's side, which no reconnection
// mends, and of which Close tells.
var errOutput = errors.New("write logs here")

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
