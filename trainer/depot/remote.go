package depot

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

// remote is a file that others hold. Every read is bounded in time.
type remote struct {
	library *library
	id      string
	name    string
	holders []cluster.Task
	at      atomic.Uint32 // which of them is asked first: the last that was good
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
	first := r.at.Load()
	for i := range r.holders {
		at := first + uint32(i)
		task := r.holders[at%uint32(len(r.holders))]
		q := message{Kind: read, ID: r.id, File: &checkpoint.File{Name: r.name}, Offset: off, Length: int64(len(b))}
		err := r.library.holder(task).read(q, b)
		if err == nil {
			r.at.Store(at)
			return nil
		}
		failures = append(failures, fmt.Errorf("%s: %w", r.library.depot.config.name(task), peers.Lost(err)))
	}
	return errors.Join(failures...)
}

// holder is a task that holds files, and the connection to it.
type holder struct {
	depot *Depot
	task  cluster.Task
	quit  <-chan struct{} // closed: it is asked no more
	mu    sync.Mutex      // for a question and its answer
	line  atomic.Pointer[line]
}

// line is a connection that ends with the depot.
type line struct {
	*wire.Conn
	stop func() bool
}

func (h *holder) hangUp() {
	if l := h.line.Swap(nil); l != nil {
		l.stop()
		l.Close() // nothing is wanted of it any more
	}
}

// read puts a question and reads the answer into b.
func (h *holder) read(q message, b []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.line.Load()
	if l == nil {
		var err error
		if l, err = h.dial(); err != nil {
			return err
		}
	}
	w := newWatch(l.Conn, h.depot.config.Silence)
	defer w.stop()
	err := errGivenUp
	select {
	case <-h.quit:
	default:
		err = ask(l.Conn, w, q, b)
	}
	if err != nil {
		h.hangUp()
	}
	return w.explain(err)
}

var errGivenUp = errors.New("reading was given up")

// dial may see a quit too late, but not the read behind it.
func (h *holder) dial() (l *line, err error) {
	err = errClosed
	h.depot.during(func(ctx context.Context) {
		dialling, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		go func() {
			select {
			case <-h.quit:
				cancel(errGivenUp)
			case <-dialling.Done():
			}
		}()
		var conn *wire.Conn
		if conn, err = h.depot.reach(dialling, h.task, readPurpose); err == nil {
			l = &line{conn, context.AfterFunc(ctx, func() { conn.Close() })}
			h.line.Store(l)
		}
	})
	return l, err
}

func ask(conn *wire.Conn, w *watch, q message, b []byte) error {
	if err := sendMessage(conn, q); err != nil {
		return err
	}
	m, err := receiveMessage(conn, maxSmall)
	switch {
	case err != nil:
		return err
	case m.Kind != bytesOf || m.Err == "" && m.Length != int64(len(b)):
		return fmt.Errorf("unexpected %q message of %d bytes, want %d", m.Kind, m.Length, len(b))
	case m.Err != "":
		return errors.New(m.Err)
	}
	for at := 0; at < len(b); {
		n, err := receiveChunk(conn, q.Offset+int64(at), b[at:])
		if err != nil {
			return err
		}
		w.extend(0)
		at += n
	}
	return nil
}
