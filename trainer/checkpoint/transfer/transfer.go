// Package transfer lets tasks read checkpoint files from each other's folders.
// During a save, a task reads whole files, to make a second copy on another
// host. During a restore, it reads ranges of files.
//
//	files := transfer.New(transfer.Config{Peers: config, Cluster: spec, Folder: folder, Silence: silence}, life)
//	files.Serve(listener)
//
//	err := files.Fetch(ctx, id, file, task, w)   // during a save
//	err := reader.Use(ctx, func() error { ... }) // during a restore
//
// # Timeouts
//
// A connection that transfers nothing for Config.Silence is closed, even if
// the other process lives; its disk may hang. The reading task uses this
// timeout, and the serving task twice as much. So the reading task fails
// first, and its error names the cause.
//
// # What it refuses
//
// A request names a checkpoint and a file in it, never a path. A task can only
// read ranges that lie within such a file. It cannot write to another task's
// folder.
package transfer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/lifetime"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

const (
	purpose    = "checkpoint-read" // purpose of the connections: the reader sends it when it connects
	chunkSize  = 1 << 20           // maximal number of bytes of a file in one frame
	maxMessage = 64 << 10          // maximal number of bytes of a request or a response header
)

var errClosed = errors.New("the task is ending")

// Config has this task's identity, the addresses of the other tasks, and the
// folder of this task's checkpoint files.
type Config struct {
	Peers   peers.Config
	Cluster cluster.Spec
	Folder  *checkpoint.Folder
	Silence time.Duration // timeout: a connection that transfers nothing for this long is closed
	// Name returns the name of a task and its host, for messages.
	Name func(cluster.Task) string
	// Hook is called with an operation's name before it starts. If Hook
	// returns an error, the operation fails with it. Tests inject faults this
	// way.
	Hook func(place string) error
}

// Files serves this task's checkpoint files to other tasks and reads theirs.
// Any goroutine may call its methods.
type Files struct {
	config Config
	life   *lifetime.Lifetime
}

// New returns a Files that serves and reads files until life ends.
func New(c Config, life *lifetime.Lifetime) *Files { return &Files{config: c, life: life} }

// request asks for Length bytes of File, beginning at Offset. The response has
// the same type, with either Length or Err set. After a response with Length,
// that many bytes follow in chunks.
type request struct {
	ID     string `json:"id,omitempty"`
	File   string `json:"file,omitempty"`
	Offset int64  `json:"offset,omitempty"`
	Length int64  `json:"length,omitempty"` // number of bytes
	Err    string `json:"error,omitempty"`  // only in responses: why the file cannot be read; empty means success
}

// Serve registers on listener l the handler of other tasks' requests for
// files.
func (f *Files) Serve(l *peers.Listener) { l.Handle(purpose, f.serve) }

// serve answers the requests on one connection, until the connection ends.
func (f *Files) serve(from peers.Peer) {
	served := f.life.Do(func(ctx context.Context) {
		s := peers.NewSession(from, f.config.Peers.Generation, f.config.Silence)
		defer s.Close() // error ignored: the session has ended
		defer s.CloseWith(ctx)()
		for f.answer(s) == nil {
		}
	})
	if !served {
		from.Conn.Close() // this task is ending, so it serves no more files
	}
}

// answer reads one request and sends the range of the file, or an error
// message. If answer itself returns an error, the caller closes the session.
func (f *Files) answer(s *peers.Session) error {
	var q request
	if err := s.NextJSON(wire.Message, &q, maxMessage); err != nil {
		return err
	}
	w := newWatch(s, 2*f.config.Silence) // twice the reading task's timeout, so that the reading task fails first
	defer w.stop()
	file, err := f.open(q)
	if err != nil {
		text := err.Error()
		return s.SendJSON(wire.Message, request{Err: text[:min(len(text), maxMessage/16)]}, maxMessage) // truncated, because JSON may encode one byte of the text as six ("\u0000")
	}
	defer file.Close() // error ignored: the file was only read
	if err := s.SendJSON(wire.Message, request{Length: q.Length}, maxMessage); err != nil {
		return err
	}
	buffer := make([]byte, min(q.Length, chunkSize))
	for end := q.Offset + q.Length; q.Offset < end; q.Offset += int64(len(buffer)) {
		buffer = buffer[:min(end-q.Offset, chunkSize)]
		if n, err := file.ReadAt(buffer, q.Offset); n < len(buffer) {
			return fmt.Errorf("read: %w", err)
		}
		if err := s.Send(wire.Frame{Header: wire.Header{Kind: wire.Chunk, Offset: uint64(q.Offset)}, Payload: buffer}); err != nil {
			return err
		}
		w.restart()
	}
	return nil
}

// open opens the file that q requests, and checks that the range lies within
// it.
func (f *Files) open(q request) (*os.File, error) {
	if err := f.config.Hook("store.read"); err != nil {
		return nil, err
	}
	file, err := f.config.Folder.Open(q.ID, q.File)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && (q.Offset < 0 || q.Length < 0 || q.Offset > info.Size()-q.Length) {
		err = fmt.Errorf("checkpoint %s: %d bytes of %s from %d on: the file has %d bytes", q.ID, q.Length, q.File, q.Offset, info.Size())
	}
	if err != nil {
		file.Close() // error ignored: the file was only read
		return nil, err
	}
	return file, nil
}

// watch closes a session that transfers nothing for a time, even if the
// connection still works. For example, the other task's disk may hang. Only
// one goroutine may use a watch.
type watch struct {
	timer   *time.Timer
	timeout time.Duration // timeout: how long the session may transfer nothing
	expired atomic.Bool   // true once this watch has closed the session
}

func newWatch(s *peers.Session, timeout time.Duration) *watch {
	w := &watch{timeout: timeout}
	w.timer = time.AfterFunc(timeout, func() {
		w.expired.Store(true)
		s.Close() // a goroutine that is blocked in a read or write of the session then gets an error
	})
	return w
}

func (w *watch) restart() {
	if w.timer.Stop() {
		w.timer.Reset(w.timeout)
	}
}

func (w *watch) stop() { w.timer.Stop() }

// explain returns the error to report for err, an error of the session. If
// this watch has closed the session, that is the timeout instead of err.
func (w *watch) explain(err error) error {
	if err != nil && w.expired.Load() {
		return fmt.Errorf("it is connected, but nothing moved for %v", w.timeout)
	}
	return err
}
