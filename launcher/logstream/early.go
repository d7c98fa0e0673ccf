package logstream

import (
	"context"
	"io"
	"sync"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/logs"
)

// Early are the first logs of a host, which come with the messages of its agent: another
// session and another process on the host cost more than the output of most jobs. They are the
// beginning of what "plx agent logs" prints, or all of it. Any goroutine may use it.
type Early struct {
	mu      sync.Mutex
	changed sync.Cond
	unread  []byte
	left    int  // how many bytes may still come: the host is not believed
	done    bool // no more come
}

// NewEarly returns an Early to which nothing has come yet.
func NewEarly() *Early {
	e := &Early{left: protocol.EarlyLogs}
	e.changed.L = &e.mu
	return e
}

// Add takes what has come. It never waits.
func (e *Early) Add(part protocol.Logged) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.left -= len(part.Data); e.left < 0 || part.Done {
		e.done = true
	}
	if e.left >= 0 {
		e.unread = append(e.unread, part.Data...)
	}
	e.changed.Broadcast()
}

// Read returns [io.ErrUnexpectedEOF] after the last byte that came.
func (e *Early) Read(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.unread) == 0 && !e.done {
		e.changed.Wait()
	}
	if len(e.unread) == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n := copy(p, e.unread)
	e.unread = e.unread[n:]
	return n, nil
}

// begin writes the early logs to out. It reports whether they are all of the host's.
func (f *feed) begin(ctx context.Context, early *Early, out *Output) (whole bool, err error) {
	stop := context.AfterFunc(ctx, func() { early.Add(protocol.Logged{Done: true}) })
	defer stop()
	chunks := logs.NewReader(heard{early, f.heard})
	for {
		c, err := chunks.Next()
		if err == nil {
			err = f.cursor.Expect(f.agent.Label(), c)
		}
		if err != nil && err != io.EOF && ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		if err != nil { // what has not come, the command brings
			return err == io.EOF, nil
		}
		if err := f.write(out, c); err != nil {
			return false, err
		}
	}
}

// write writes a chunk, for which the host is not to blame if that takes long.
func (f *feed) write(out *Output, c logs.Chunk) error {
	f.heard.deaf.Store(true)
	err := out.take(f.agent.Host, c)
	f.heard.note()
	f.heard.deaf.Store(false)
	return err
}
