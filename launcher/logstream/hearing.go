package logstream

import (
	"io"
	"sync/atomic"
	"time"
)

// hearing remembers when a host was last there. Its zero value: never.
type hearing struct{ at atomic.Int64 }

func (h *hearing) note()                  { h.at.Store(time.Now().UnixNano()) }
func (h *hearing) never() bool            { return h.at.Load() == 0 }
func (h *hearing) silence() time.Duration { return time.Since(time.Unix(0, h.at.Load())) }

// until notes that the host was there at t, if it was heard before.
func (h *hearing) until(t time.Time) {
	if at := h.at.Load(); at != 0 && at < t.UnixNano() {
		h.at.CompareAndSwap(at, t.UnixNano()) // else it was heard just now
	}
}

// heard is a reader that notes each byte.
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
