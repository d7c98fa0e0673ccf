package logstream

import (
	"io"
	"sync"

	"github.com/plx-run/plx/launcher/protocol"
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
