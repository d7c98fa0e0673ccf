package logstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/launcher/transport"
	"github.com/plx-run/plx/logs"
)

// feed reads a host's logs, chunk by chunk, over as many connections as it takes. One
// goroutine at a time may use it.
type feed struct {
	agent    *hosts.AgentHost
	req      logs.Request
	cursor   *logs.Cursor  // how much of each host's logs the caller has received
	heard    *liveness     // when the host was last known to be there
	patience time.Duration // how long a host that was heard may then stay away

	st     *hosts.Stream // the present connection; nil: none is open
	chunks *logs.Reader  // reads st, or the early logs while st is nil; nil: neither
	unbind func() bool   // undoes that the end of ctx ends chunks; valid while chunks is not nil
	kills  int           // how often a signal ended the reader on the host since the last new byte
	vain   time.Time     // since when every connection has broken before a whole record; zero: the last one did not
	asked  atomic.Int64  // when next began to wait, in Unix nanoseconds; 0: nobody waits
}

const (
	// patience is how long a host may be silent after the verdict, before the rest of
	// its logs is given up. A host without news sends a sign of life more often.
	patience = 10 * time.Second
	// redialPause is the time between the loss of a connection and the next try.
	redialPause = 500 * time.Millisecond
	// killed is the lowest exit status of a command that a signal ended.
	killed = 128
	// maxKills is how often the reader on a host may be killed before it sends a byte:
	// what kills it will do so again.
	maxKills = 3
)

// open connects and requests the bytes that were not received yet. It does not wait.
func (f *feed) open(ctx context.Context) {
	st := f.agent.Logs(ctx)
	req := f.cursor.Request(f.agent.Label(), f.req)
	go func() {
		json.NewEncoder(st).Encode(req) // a failed write shows as a failed read
	}()
	f.st, f.chunks = st, logs.NewReader(heard{st, f.heard})
	f.unbind = context.AfterFunc(ctx, func() { st.Close() })
	if !f.req.Follow {
		go f.watch(st)
	}
}

// watch cancels a connection that is up and brings nothing for longer than the patience
// while next waits. Without Follow a host has no reason to pause. It returns with the
// end of the connection. A dial is bounded by the transport.
func (f *feed) watch(st *hosts.Stream) {
	tick := time.NewTicker(f.patience / 10)
	defer tick.Stop()
	up := time.Now()
	for {
		select {
		case <-st.Done():
			return
		case <-tick.C:
			if !f.agent.Connected() {
				up = time.Now()
				continue
			}
			asked := f.asked.Load()
			if asked != 0 && min(time.Since(up), time.Since(time.Unix(0, asked)), f.heard.silence()) > f.patience {
				st.Cancel(fmt.Errorf("it sends nothing, for %v", f.patience))
			}
		}
	}
}

func (f *feed) close() {
	if f.chunks == nil {
		return
	}
	f.unbind()
	if f.st != nil {
		f.st.Close() // its error is always nil
	}
	f.st, f.chunks = nil, nil
}

// next returns the next chunk, and io.EOF after the host's last byte. It dials a lost
// connection again until the host was away for longer than the patience, or all
// connections broke for as long before they brought a whole record. If the host was
// never heard, next dials once.
func (f *feed) next(ctx context.Context) (logs.Chunk, error) {
	if f.st != nil {
		f.heard.until(f.st.Alive()) // while nobody called next nothing could be heard
	}
	for tries := 0; ; tries++ {
		c, err := f.read(ctx)
		switch {
		case err == nil, err == io.EOF: // itself: others may wrap it
			return c, err
		case ctx.Err() != nil:
			return c, context.Cause(ctx)
		case f.hopeless(err):
			return c, err
		case f.heard.never() && (tries > 0 || !transport.IsLost(err)):
			return c, f.away(err)
		case tries > 0 && f.heard.silence() > f.patience:
			return c, f.away(fmt.Errorf("out of reach for %v: %w", f.heard.silence().Round(time.Second), err))
		case !f.vain.IsZero() && time.Since(f.vain) > f.patience:
			return c, f.away(fmt.Errorf("every connection breaks at once: %w", err))
		}
		select {
		case <-ctx.Done():
		case <-time.After(redialPause):
		}
	}
}

// read returns the next chunk of one connection, or of the early logs.
func (f *feed) read(ctx context.Context) (logs.Chunk, error) {
	if f.chunks == nil {
		f.open(ctx)
	}
	f.asked.Store(time.Now().UnixNano())
	c, err := f.chunks.Next()
	if err == nil {
		err = f.cursor.Expect(f.agent.Label(), c)
	}
	f.asked.Store(0)
	switch {
	case err == io.EOF:
		if f.st != nil {
			f.st.Finish() // all has come
		}
		f.close()
	case err != nil && f.st == nil && ctx.Err() == nil: // what has not come early, the command brings
		f.close()
		return f.read(ctx)
	case err != nil:
		f.failed(err)
		f.close()
	case len(c.Data) > 0:
		f.kills = 0
	}
	return c, err
}

// failed records how a connection ended, or that there was none.
func (f *feed) failed(err error) {
	if transport.ExitStatus(err) >= killed {
		f.kills++
	}
	switch {
	case f.chunks.Brought():
		f.vain = time.Time{}
	case f.vain.IsZero():
		f.vain = time.Now()
	}
}

// hopeless reports whether a new connection would fail in the same way.
func (f *feed) hopeless(err error) bool {
	status := transport.ExitStatus(err)
	return status >= 0 && status < killed || f.kills > maxKills || errors.Is(err, logs.ErrMalformed)
}

// away adds to the hints of a host that cannot be reached how its logs come later.
func (f *feed) away(err error) error {
	later := fmt.Sprintf("when the host can be reached again, plx logs %s --host %s prints all that it keeps", f.agent.Job, f.agent.Name())
	if hint := exit.Hint(err); hint != "" {
		later = hint + "; " + later
	}
	return exit.WithHint(err, later)
}

// write writes a chunk, for which the host is not to blame if that takes long.
func (f *feed) write(out *Output, c logs.Chunk) error {
	f.heard.deaf.Store(true)
	err := out.take(f.agent.Host, c)
	f.heard.note()
	f.heard.news.Store(time.Now().UnixNano())
	f.heard.deaf.Store(false)
	return err
}

// follow writes all of a host's chunks to out, first those of early, which may be nil.
func follow(ctx context.Context, s *hosts.AgentHost, req logs.Request, early *Early, out *Output, h *liveness, patience time.Duration) error {
	h.note()
	f := &feed{agent: s, req: req, cursor: &out.cursor, heard: h, patience: patience}
	defer f.close()
	if early != nil {
		f.chunks = logs.NewReader(heard{early, h})
		f.unbind = context.AfterFunc(ctx, func() { early.Add(protocol.Logged{Done: true}) })
	}
	for {
		c, err := f.next(ctx)
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = f.write(out, c)
		}
		if err != nil {
			return err
		}
	}
}

// liveness remembers when a host was last there. Its zero value: never.
type liveness struct {
	at   atomic.Int64 // in Unix nanoseconds; 0: never
	news atomic.Int64 // when it last sent logs, in Unix nanoseconds; 0: never
	deaf atomic.Bool  // what was heard is being written, which may wait for a slow reader of plx
}

func (h *liveness) note()       { h.at.Store(time.Now().UnixNano()) }
func (h *liveness) never() bool { return h.at.Load() == 0 }

// silence returns how long the host has sent nothing although this machine was
// reading.
func (h *liveness) silence() time.Duration {
	if h.deaf.Load() {
		return 0
	}
	return time.Since(time.Unix(0, h.at.Load()))
}

// idle returns how long the host has sent no logs although this machine was reading.
func (h *liveness) idle() time.Duration {
	if h.deaf.Load() {
		return 0
	}
	return time.Since(time.Unix(0, h.news.Load()))
}

// until notes that the host was there at t, if it was heard before.
func (h *liveness) until(t time.Time) {
	if at := h.at.Load(); at != 0 && at < t.UnixNano() {
		h.at.CompareAndSwap(at, t.UnixNano()) // else it was heard just now
	}
}

// heard is a reader that notes each byte.
type heard struct {
	io.Reader
	*liveness
}

func (r heard) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if n > 0 {
		r.note()
	}
	return n, err
}
