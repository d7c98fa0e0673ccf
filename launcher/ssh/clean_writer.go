package ssh

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// maxNoise is how many bytes start-up files may print on one stream.
const maxNoise = 1 << 20

var (
	errNoise   = errors.New("more than 1 MiB came before the command's own output")
	errStopped = errors.New("run has returned")
)

// cleanWriter writes the bytes that follow the sentinel line, and drops those before it.
// After stop it writes nothing.
type cleanWriter struct {
	to       io.Writer
	sentinel []byte // with its newline; nil once seen

	lock    chan struct{} // a mutex with a bounded wait: it holds one element while unlocked
	stopped atomic.Bool

	mu      sync.Mutex // guards the fields below, which are read while a write blocks
	busy    bool       // in a write of to
	noise   []byte     // the first dropped bytes, for messages
	dropped int        // bytes
	found   bool       // the sentinel has arrived
	pending []byte     // the last bytes, which may be the beginning of the sentinel
	last    time.Time  // of the last write
}

func newCleanWriter(to io.Writer, sentinel string) *cleanWriter {
	if to == nil {
		to = io.Discard
	}
	w := &cleanWriter{to: to, sentinel: []byte(sentinel + "\n"), lock: make(chan struct{}, 1), last: time.Now()}
	w.lock <- struct{}{}
	return w
}

func (w *cleanWriter) Write(p []byte) (int, error) {
	<-w.lock
	defer func() { w.lock <- struct{}{} }()
	if w.stopped.Load() {
		return 0, errStopped
	}
	own, err := w.clean(p)
	if err != nil {
		return 0, err
	}
	w.setBusy(true)
	defer w.setBusy(false)
	if len(own) > 0 {
		if _, err := w.to.Write(own); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

func (w *cleanWriter) setBusy(busy bool) {
	w.mu.Lock()
	w.busy, w.last = busy, time.Now()
	w.mu.Unlock()
}

// clean returns the part of p that is the command's own.
func (w *cleanWriter) clean(p []byte) ([]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.found {
		return p, nil
	}
	w.pending = append(w.pending, p...)
	if at := bytes.Index(w.pending, w.sentinel); at >= 0 {
		w.drop(at)
		own := w.pending[len(w.sentinel):]
		w.found, w.pending = true, nil
		return own, nil
	}
	w.drop(max(0, len(w.pending)-len(w.sentinel)+1))
	if w.dropped > maxNoise {
		return nil, errNoise
	}
	return nil, nil
}

// drop removes the first n pending bytes, and keeps a sample of them.
func (w *cleanWriter) drop(n int) {
	room := max(0, 256-len(w.noise))
	w.noise = append(w.noise, w.pending[:min(n, room)]...)
	w.dropped += n
	w.pending = append([]byte(nil), w.pending[n:]...)
}

// state returns whether the sentinel has arrived, and how many bytes were dropped, with a
// sample of them.
func (w *cleanWriter) state() (found bool, dropped int, noise string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.found {
		return true, w.dropped, string(w.noise)
	}
	return false, w.dropped + len(w.pending), string(w.noise) + string(w.pending)
}

// idle returns the time since the last write, 0 during a write.
func (w *cleanWriter) idle() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy {
		return 0
	}
	return time.Since(w.last)
}

// stop ends the writing. It waits for a write under way, but not longer than wait.
func (w *cleanWriter) stop(wait time.Duration) {
	w.stopped.Store(true)
	select {
	case <-w.lock:
		w.lock <- struct{}{}
	case <-time.After(wait):
	}
}
