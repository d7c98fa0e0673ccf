package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"

	"github.com/plx-run/plx/logs"
)

// output is where a job's logs go on this machine.
type output struct {
	printer *logs.Printer
	dir     *logs.Dir // nil without --log-dir
	cursor  logs.Cursor
	unread  func() // called when nobody reads plx's output any more; may be nil
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
	if l.cfg.LogDir != "" {
		dir, err := logs.NewDir(l.cfg.LogDir)
		if err != nil {
			return nil, fmt.Errorf("--log-dir: %w", err)
		}
		out.dir = dir
	}
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

// Close prints what has no newline at its end.
func (o *output) Close() error {
	err := o.printer.Close()
	if o.unread != nil && errors.Is(err, syscall.EPIPE) {
		err = nil // told before
	}
	if o.dir != nil {
		err = errors.Join(err, o.dir.Close())
	}
	return err
}

// logStreams are the readers of a job's logs, one per host.
type logStreams struct {
	wg   sync.WaitGroup
	over context.CancelFunc
	mu   sync.Mutex
	errs []error
}

// logPatience is how long, after the verdict, a host may take to be reached
// again for the rest of its logs.
const logPatience = 10 * time.Second

// follow streams a host's logs until it has sent all of them.
func (g *logStreams) follow(ctx context.Context, s *station, out *output) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wg.Go(func() {
		if err := s.follow(ctx, logs.Request{TailLines: -1, Follow: true}, out); err != nil {
			g.mu.Lock()
			g.errs = append(g.errs, fmt.Errorf("host %s: logs: %w", s.host.Name, err))
			g.mu.Unlock()
		}
	})
}

// wait waits for all of them and returns what went wrong.
func (g *logStreams) wait() error {
	g.wg.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	return errors.Join(g.errs...)
}

// follow takes a host's log chunks to their end, over as many connections as
// it needs. It gives up when the host was out of reach for its patience.
func (s *station) follow(ctx context.Context, req logs.Request, out *output) error {
	last := time.Now() // when the host was last known to be in reach
	for {
		begun := time.Now()
		moved, err := s.read(ctx, out.cursor.Request(s.host.Name, req), out)
		if err == nil || errors.Is(err, errOutput) {
			return err
		}
		if moved || time.Since(begun) > logPatience {
			last = time.Now()
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if exitStatus(err) >= 0 || time.Since(last) > defaultLease+logPatience {
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
func (s *station) read(ctx context.Context, req logs.Request, out *output) (moved bool, err error) {
	line, err := json.Marshal(req)
	if err != nil {
		return false, err
	}
	st := openStream(ctx, s.remote, s.command("logs "+s.where()))
	defer st.Close()
	stop := context.AfterFunc(ctx, func() { st.Close() })
	defer stop()
	go func() {
		st.Write(append(line, '\n')) // a failed write shows as a failed read
	}()
	r := logs.NewReader(st)
	for {
		c, err := r.Next()
		if errors.Is(err, io.EOF) {
			return moved, st.finish()
		}
		if err != nil {
			return moved, err
		}
		moved = true
		if err := out.take(s.host.Name, c); err != nil {
			return moved, fmt.Errorf("%w: %w", errOutput, err)
		}
	}
}
