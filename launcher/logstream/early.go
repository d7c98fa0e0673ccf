package logstream

import (
	"io"
	"sync"

	"github.com/plx-run/plx/launcher/protocol"
)

// EarlyLogs holds the first log bytes of a host, which are a beginning of what
// "plx agent logs" prints. The host's agent sends them together with its other
// messages. For the short output of most jobs, this saves a separate SSH
// session. Several goroutines may use an EarlyLogs at once.
type EarlyLogs struct {
	mu      sync.Mutex
	changed sync.Cond
	unread  []byte
	left    int  // number of bytes that Add still accepts; limited because the host is not trusted
	done    bool // true once no further bytes will arrive
}

// NewEarly returns an empty EarlyLogs.
func NewEarly() *EarlyLogs {
	e := &EarlyLogs{left: protocol.EarlyLogs}
	e.changed.L = &e.mu
	return e
}

// Add appends log bytes that have arrived from the host. It never blocks.
func (e *EarlyLogs) Add(part protocol.Logged) {
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

// Read blocks until bytes arrive. After the last byte it returns
// [io.ErrUnexpectedEOF], because the rest of the logs comes over another
// connection.
func (e *EarlyLogs) Read(p []byte) (int, error) {
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
