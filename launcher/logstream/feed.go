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

// feed reads the logs of one host in chunks. It reconnects when a connection
// is lost. Only one goroutine at a time may use it.
type feed struct {
	agent    *hosts.AgentHost
	req      logs.Request
	cursor   *logs.Cursor  // number of log bytes of each host that the caller has received
	liveness *liveness     // when the host last sent a byte
	patience time.Duration // how long the host may be unreachable, once it has been reached

	st           *hosts.Stream // current connection; nil if none is open
	chunks       *logs.Reader  // reads from st while st is open, else from the early logs (first log bytes, which the agent sends by itself); nil if neither exists
	unbind       func() bool   // cancels the hook that closes st or the early logs when ctx ends; valid while chunks is not nil
	killCount    int           // how often a signal has killed the log reader on the host since the last new byte
	brokenSince  time.Time     // time since which no connection has delivered a complete record; zero if the last connection delivered one
	waitingSince atomic.Int64  // when next began to wait for a chunk, in Unix nanoseconds; 0: next is not waiting
}

const (
	// patience limits how long a host may send nothing after the end of the
	// job. After that, plx gives up the rest of the host's logs. A working
	// host without new output sends keepalives more often.
	patience = 10 * time.Second
	// redialPause is the pause between the loss of a connection and the next
	// attempt to connect.
	redialPause = 500 * time.Millisecond
	// killed is the lowest exit status with which a shell reports that a
	// signal killed a command.
	killed = 128
	// maxKills limits how often the log reader on a host may be killed without
	// having sent a byte. Further attempts would probably fail in the same
	// way.
	maxKills = 3
)

// open starts to connect to the host and requests the log bytes that have not
// arrived yet. It does not wait for the connection.
func (f *feed) open(ctx context.Context) {
	st := f.agent.Logs(ctx)
	req := f.cursor.Request(f.agent.Label(), f.req)
	go func() {
		json.NewEncoder(st).Encode(req) // an error is ignored: the following read returns it too
	}()
	f.st, f.chunks = st, logs.NewReader(livenessReader{st, f.liveness})
	f.unbind = context.AfterFunc(ctx, func() { st.Close() })
	if !f.req.Follow {
		go f.watch(st)
	}
}

// watch cancels an established connection if the method next waits and no byte
// arrives for the duration patience. It is used only if the logs are not
// followed, because a host then sends without pauses. The time to connect does
// not count: the transport limits it. watch returns when the connection ends.
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
			waitingSince := f.waitingSince.Load()
			if waitingSince != 0 && min(time.Since(up), time.Since(time.Unix(0, waitingSince)), f.liveness.silence()) > f.patience {
				st.Cancel(fmt.Errorf("no byte arrived from it for %v", f.patience))
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
		f.st.Close() // the error is ignored: it is always nil
	}
	f.st, f.chunks = nil, nil
}

// next returns the next chunk of the host's logs, or io.EOF after the last
// one. It reconnects after a lost connection. It gives up if the host is
// unreachable for longer than patience. It also gives up if, for that time,
// each connection breaks before a whole record arrives. If the host was never
// reached, next tries only once.
func (f *feed) next(ctx context.Context) (logs.Chunk, error) {
	if f.st != nil {
		f.liveness.until(f.st.Alive()) // plx has read no bytes since the last call of next. st.Alive says when the connection last worked; count the host as reachable until then.
	}
	for tries := 0; ; tries++ {
		c, err := f.read(ctx)
		switch {
		case err == nil, err == io.EOF: // compare with ==, because other errors may wrap io.EOF
			return c, err
		case ctx.Err() != nil:
			return c, context.Cause(ctx)
		case f.permanent(err):
			return c, err
		case f.liveness.never() && (tries > 0 || !transport.IsLost(err)):
			return c, f.withLogsHint(err)
		case tries > 0 && f.liveness.silence() > f.patience:
			return c, f.withLogsHint(fmt.Errorf("out of reach for %v: %w", f.liveness.silence().Round(time.Second), err))
		case !f.brokenSince.IsZero() && time.Since(f.brokenSince) > f.patience:
			return c, f.withLogsHint(fmt.Errorf("each connection breaks immediately: %w", err))
		}
		select {
		case <-ctx.Done():
		case <-time.After(redialPause):
		}
	}
}

// read returns the next chunk from the current connection or from the early
// logs (first log bytes, which the agent sends by itself). It connects first
// if neither is available.
func (f *feed) read(ctx context.Context) (logs.Chunk, error) {
	if f.chunks == nil {
		f.open(ctx)
	}
	f.waitingSince.Store(time.Now().UnixNano())
	c, err := f.chunks.Next()
	if err == nil {
		err = f.cursor.Expect(f.agent.Label(), c)
	}
	f.waitingSince.Store(0)
	switch {
	case err == io.EOF:
		if f.st != nil {
			f.st.Finish() // all logs have arrived
		}
		f.close()
	// The early logs (first log bytes, which the agent sends by itself) have
	// ended. Read the rest over a connection.
	case err != nil && f.st == nil && ctx.Err() == nil:
		f.close()
		return f.read(ctx)
	case err != nil:
		f.failed(err)
		f.close()
	case len(c.Data) > 0:
		f.killCount = 0
	}
	return c, err
}

// failed updates killCount and brokenSince after a connection has ended with
// err, or could not be established.
func (f *feed) failed(err error) {
	if transport.ExitStatus(err) >= killed {
		f.killCount++
	}
	switch {
	case f.chunks.Received():
		f.brokenSince = time.Time{}
	case f.brokenSince.IsZero():
		f.brokenSince = time.Now()
	}
}

// permanent reports whether a new connection would fail with the same error.
func (f *feed) permanent(err error) bool {
	status := transport.ExitStatus(err)
	return status >= 0 && status < killed || f.killCount > maxKills || errors.Is(err, logs.ErrMalformed)
}

// withLogsHint adds a hint to the error for an unreachable host. The hint is
// the plx logs command that prints the missing logs later.
func (f *feed) withLogsHint(err error) error {
	later := fmt.Sprintf("when the host can be reached again, plx logs %s --host %s prints all that it keeps", f.agent.Job, f.agent.Name())
	if hint := exit.Hint(err); hint != "" {
		later = hint + "; " + later
	}
	return exit.WithHint(err, later)
}

// write writes a chunk to out. The host does not count as silent during this
// write, because plx then reads nothing from it.
func (f *feed) write(out *Output, c logs.Chunk) error {
	f.liveness.writing.Store(true)
	err := out.take(f.agent.Host, c)
	f.liveness.note()
	f.liveness.lastLogs.Store(time.Now().UnixNano())
	f.liveness.writing.Store(false)
	return err
}

// follow writes the logs of a host to out until the logs end. early holds the
// first log bytes, which the agent sends by itself; it may be nil. follow
// begins with these bytes.
func follow(ctx context.Context, s *hosts.AgentHost, req logs.Request, early *EarlyLogs, out *Output, h *liveness, patience time.Duration) error {
	h.note()
	f := &feed{agent: s, req: req, cursor: &out.cursor, liveness: h, patience: patience}
	defer f.close()
	if early != nil {
		f.chunks = logs.NewReader(livenessReader{early, h})
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

// liveness records when a host last sent a byte. Its zero value means that the
// host was never reached.
type liveness struct {
	at       atomic.Int64 // when the host last sent a byte, in Unix nanoseconds; 0: never
	lastLogs atomic.Int64 // when the host last sent logs, in Unix nanoseconds; 0: never
	writing  atomic.Bool  // true while plx writes a chunk to its output; the write may block, and plx then reads no bytes
}

func (h *liveness) note()       { h.at.Store(time.Now().UnixNano()) }
func (h *liveness) never() bool { return h.at.Load() == 0 }

// silence returns how long the host has sent no byte. It is 0 while plx is
// busy writing and does not read.
func (h *liveness) silence() time.Duration {
	if h.writing.Load() {
		return 0
	}
	return time.Since(time.Unix(0, h.at.Load()))
}

// idle returns for how long the host has sent no logs; keepalives do not
// count. It is 0 while plx is busy writing and does not read.
func (h *liveness) idle() time.Duration {
	if h.writing.Load() {
		return 0
	}
	return time.Since(time.Unix(0, h.lastLogs.Load()))
}

// until records that the host was reachable at time t. It does nothing if the
// host was never reached.
func (h *liveness) until(t time.Time) {
	if at := h.at.Load(); at != 0 && at < t.UnixNano() {
		h.at.CompareAndSwap(at, t.UnixNano()) // if the swap fails, another goroutine has just recorded a later time
	}
}

// livenessReader is a reader that records in liveness when bytes arrive.
type livenessReader struct {
	io.Reader
	*liveness
}

func (r livenessReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if n > 0 {
		r.note()
	}
	return n, err
}
