package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/plx-run/plx/launcher/ssh"
	"github.com/plx-run/plx/logs"
)

// feed is a host's logs, chunk by chunk, over as many connections as that
// takes. One goroutine may use it at a time.
type feed struct {
	station  *station
	req      logs.Request
	cursor   *logs.Cursor // has counted what next returned before
	heard    *hearing
	patience time.Duration // with a host that was there once and is no more

	st     *stream // nil: to be opened
	chunks *logs.Reader
	unbind func() bool  // of the stream from ctx
	kills  int          // of readers on the host, since one sent anything new
	vain   time.Time    // since when no connection has brought anything whole; zero: the last did
	asked  atomic.Int64 // when next began to wait; 0: it does not
}

const (
	// logPatience is how long, after the verdict, a host may be silent before the
	// rest of its logs is given up. A host that has nothing to send says so more
	// often.
	logPatience = 10 * time.Second
	// redialPause is the time between the loss of a connection and the next try.
	redialPause = 500 * time.Millisecond
	// killed is the least exit status of a command that a signal ended.
	killed = 128
	// maxKills is how often what reads the logs on a host may be killed before
	// it could send anything: what ends it will do so again.
	maxKills = 3
)

// open asks for what was not received yet, and waits for nothing.
func (f *feed) open(ctx context.Context) {
	st := openStream(ctx, f.station.remote, f.station.command("logs "+f.station.where()))
	req := f.cursor.Request(f.station.label(), f.req)
	go func() {
		json.NewEncoder(st).Encode(req) // a failed write shows as a failed read
	}()
	f.st, f.chunks = st, logs.NewReader(heard{st, f.heard})
	f.unbind = context.AfterFunc(ctx, func() { st.Close() })
	if !f.req.Follow {
		go f.watch(st)
	}
}

// watch ends a connection that is up but brings nothing while it is waited
// for: without Follow a host has no reason to pause. Dialling has an end of its
// own. It returns with the connection.
func (f *feed) watch(st *stream) {
	tick := time.NewTicker(f.patience / 10)
	defer tick.Stop()
	up := time.Now()
	for {
		select {
		case <-st.done:
			return
		case <-tick.C:
			if conn, _ := f.station.present(); conn == nil { // a closed one is none
				up = time.Now()
				continue
			}
			asked := f.asked.Load()
			if asked != 0 && min(time.Since(up), time.Since(time.Unix(0, asked)), f.heard.silence()) > f.patience {
				st.cancel(fmt.Errorf("it sends nothing, for %v", f.patience))
			}
		}
	}
}

func (f *feed) close() {
	if f.st != nil {
		f.unbind()
		f.st.Close() // its error is always nil
		f.st = nil
	}
}

// next returns the next chunk, of a new connection where one was lost, and
// io.EOF when the host has sent its last byte. A host that was never reached is
// not waited for, unless the hearing says that it was; one that stays away, or
// whose connections all break before they bring anything whole, is for the
// patience, and is dialled once at least.
func (f *feed) next(ctx context.Context) (logs.Chunk, error) {
	if f.st != nil {
		f.heard.until(f.st.alive()) // what was not read could not be heard
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
		case f.heard.never() && (tries > 0 || !lost(err)):
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

// read is next on one connection.
func (f *feed) read(ctx context.Context) (logs.Chunk, error) {
	if f.st == nil {
		f.open(ctx)
	}
	f.asked.Store(time.Now().UnixNano())
	c, err := f.chunks.Next()
	f.asked.Store(0)
	switch {
	case err == io.EOF:
		f.st.finish() // all has come
		f.close()
	case err != nil:
		f.failed(err)
		f.close()
	case len(c.Data) > 0:
		f.kills = 0
	}
	return c, err
}

// failed notes how a connection has ended, or that there was none.
func (f *feed) failed(err error) {
	if exitStatus(err) >= killed {
		f.kills++
	}
	switch {
	case f.chunks.Brought():
		f.vain = time.Time{}
	case f.vain.IsZero():
		f.vain = time.Now()
	}
}

// hopeless reports whether the next connection would fare no better.
func (f *feed) hopeless(err error) bool {
	status := exitStatus(err)
	return status >= 0 && status < killed || f.kills > maxKills || errors.Is(err, logs.ErrMalformed)
}

// away is the error of a host that cannot be reached, with what to do.
func (f *feed) away(err error) error {
	if Hint(err) != "" {
		return err
	}
	return &hinted{err, fmt.Sprintf("once it can be reached again, plx logs %s --host %s prints all that it keeps", f.station.job, f.station.host.Name)}
}

// lost reports whether err says that there was a connection, which is gone.
func lost(err error) bool {
	var lost *ssh.LostError
	return errors.As(err, &lost)
}

// follow takes a host's log chunks to their end.
func (s *station) follow(ctx context.Context, req logs.Request, out *output, h *hearing, patience time.Duration) error {
	h.note()
	f := &feed{station: s, req: req, cursor: &out.cursor, heard: h, patience: patience}
	defer f.close()
	for {
		c, err := f.next(ctx)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := out.take(s.remote, c); err != nil {
			return err
		}
	}
}

// hearing remembers when a host was last there. Its zero value never heard it.
type hearing struct{ at atomic.Int64 }

func (h *hearing) note()                  { h.at.Store(time.Now().UnixNano()) }
func (h *hearing) never() bool            { return h.at.Load() == 0 }
func (h *hearing) silence() time.Duration { return time.Since(time.Unix(0, h.at.Load())) }

// until notes that a host that was heard before was there until t.
func (h *hearing) until(t time.Time) {
	if at := h.at.Load(); at != 0 && at < t.UnixNano() {
		h.at.CompareAndSwap(at, t.UnixNano()) // else it was heard just now
	}
}

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
