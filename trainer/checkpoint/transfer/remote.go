package transfer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/peers"
)

// remote is a file that other tasks hold. Every read is bounded in time.
type remote struct {
	reader  *Reader
	name    string
	holders []cluster.Task
	first   atomic.Uint32 // index of the holder that is asked first: the last that answered well
}

// ReadAt is that of io.ReaderAt.
func (r *remote) ReadAt(b []byte, off int64) (n int, err error) {
	for n < len(b) {
		part := b[n:min(len(b), n+maxRead)]
		if err := r.read(part, off+int64(n)); err != nil {
			return n, err
		}
		n += len(part)
	}
	return n, nil
}

// read asks one holder after the other.
func (r *remote) read(b []byte, off int64) error {
	failures := []error{fmt.Errorf("%s is on no host that can be asked", r.name)}
	first := r.first.Load()
	for i := range r.holders {
		at := first + uint32(i)
		task := r.holders[at%uint32(len(r.holders))]
		q := message{Kind: read, ID: r.reader.manifest.ID, File: &checkpoint.File{Name: r.name}, Offset: off, Length: int64(len(b))}
		err := r.reader.holder(task).read(q, b)
		if err == nil {
			r.first.Store(at)
			return nil
		}
		failures = append(failures, fmt.Errorf("%s: %w", r.reader.files.config.Name(task), peers.Lost(err)))
	}
	return errors.Join(failures...)
}

var errGivenUp = errors.New("reading was given up")

// holder is a task that holds files, and the session with it.
type holder struct {
	files   *Files
	task    cluster.Task
	reading context.Context // the task is asked nothing after its end

	mu      sync.Mutex     // held for a question and its answer
	session *peers.Session // nil: none is open
}

// read puts a question and reads the answer into b.
func (h *holder) read(q message, b []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.session == nil {
		s, err := h.files.dial(h.reading, h.task, readPurpose)
		if err != nil {
			return err
		}
		s.CloseWith(h.reading)
		h.session = s
	}
	w := newWatch(h.session, h.files.config.Silence)
	defer w.stop()
	err := ask(h.session, w, q, b)
	if err != nil {
		h.session.Close() // of no more use
		h.session = nil
	}
	return w.explain(err)
}

func ask(s *peers.Session, w *watch, q message, b []byte) error {
	if err := send(s, q); err != nil {
		return err
	}
	m, err := receive(s)
	switch {
	case err != nil:
		return err
	case m.Kind != bytesOf || m.Err == "" && m.Length != int64(len(b)):
		return fmt.Errorf("unexpected %q message of %d bytes, want %d", m.Kind, m.Length, len(b))
	case m.Err != "":
		return errors.New(m.Err)
	}
	for at := 0; at < len(b); {
		n, err := receiveChunk(s, q.Offset+int64(at), b[at:])
		if err != nil {
			return err
		}
		w.extend(0)
		at += n
	}
	return nil
}
