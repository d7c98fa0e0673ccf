// Package transfer reads files of checkpoints that other tasks hold: whole ones,
// for second copies on other hosts, and ranges that a restore needs.
//
//	files := transfer.New(transfer.Config{Peers: config, Cluster: spec, Folder: folder, Silence: silence}, life)
//	files.Serve(listener)
//
//	err := files.Fetch(ctx, id, file, task, w)   // during a save
//	err := reader.Use(ctx, func() error { ... }) // during a restore
//
// # Who waits for whom
//
// Every read and write is bounded in time. A connection on which nothing moves
// for Silence is closed although the other task lives: its disk hangs. The side
// that asks loses patience first, so that it names the cause.
//
// # What it refuses
//
// Paths of any kind: names are those of checkpoints and of files in them. A
// task can write nothing, and ask only for ranges inside a file.
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
	purpose    = "checkpoint-read" // of the connections
	chunkSize  = 1 << 20           // bytes of a file in one frame, at most
	maxMessage = 64 << 10          // bytes of a message between two tasks
)

var errClosed = errors.New("the task is ending")

// Config says who a task is, where the others are and where its files lie.
type Config struct {
	Peers   peers.Config
	Cluster cluster.Spec
	Folder  *checkpoint.Folder
	Silence time.Duration // a connection on which nothing moves for this long is closed
	// Name names a task and its host in messages.
	Name func(cluster.Task) string
	// Hook is called at named places. An error that it returns counts as a
	// failure at that place: tests inject faults with it.
	Hook func(place string) error
}

// Files gives and takes files. Any goroutine may call its methods.
type Files struct {
	config Config
	life   *lifetime.Lifetime
}

// New prepares to give and take files until life ends.
func New(c Config, life *lifetime.Lifetime) *Files { return &Files{config: c, life: life} }

// question asks for Length bytes of File of a checkpoint, from Offset on. The
// answer has Length or Err; Length bytes follow it as chunks.
type question struct {
	ID     string `json:"id,omitempty"`
	File   string `json:"file,omitempty"`
	Offset int64  `json:"offset,omitempty"`
	Length int64  `json:"length,omitempty"` // bytes
	Err    string `json:"error,omitempty"`  // why the file cannot be read; empty in a question and in a good answer
}

// Serve answers the other tasks that come to the listener for files.
func (f *Files) Serve(l *peers.Listener) { l.Handle(purpose, f.serve) }

// serve gives another task the ranges of files that it asks for.
func (f *Files) serve(from peers.Peer) {
	served := f.life.Do(func(ctx context.Context) {
		s := peers.NewSession(from, f.config.Peers.Generation, f.config.Silence)
		defer s.Close() // of no more use
		defer s.CloseWith(ctx)()
		for f.answer(s) == nil {
		}
	})
	if !served {
		from.Conn.Close() // this task is ending
	}
}

// answer takes one question. An error ends the session.
func (f *Files) answer(s *peers.Session) error {
	var q question
	if err := s.NextJSON(wire.Message, &q, maxMessage); err != nil {
		return err
	}
	w := newWatch(s, 2*f.config.Silence) // the other task loses patience first
	defer w.stop()
	file, err := f.open(q)
	if err != nil {
		text := err.Error()
		return s.SendJSON(wire.Message, question{Err: text[:min(len(text), maxMessage/16)]}, maxMessage) // JSON writes a byte as six at most
	}
	defer file.Close() // opened for reading: nothing to lose
	if err := s.SendJSON(wire.Message, question{Length: q.Length}, maxMessage); err != nil {
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

// open opens the file that a question is about and checks the range.
func (f *Files) open(q question) (*os.File, error) {
	if err := f.config.Hook("store.read"); err != nil {
		return nil, err
	}
	file, err := f.config.Folder.Open(q.ID, q.File)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && (q.Offset < 0 || q.Length < 0 || q.Offset > info.Size()-q.Length) {
		err = fmt.Errorf("checkpoint %s: %d bytes of %s from %d on are not in it, it has %d", q.ID, q.Length, q.File, q.Offset, info.Size())
	}
	if err != nil {
		file.Close() // opened for reading: nothing to lose
		return nil, err
	}
	return file, nil
}

// watch closes a session on which nothing moves although the other task lives:
// its disk hangs, or it has forgotten. One goroutine uses it.
type watch struct {
	timer *time.Timer
	most  time.Duration // how long nothing may move before the session is closed
	cut   atomic.Bool   // the watch has closed the session
}

func newWatch(s *peers.Session, most time.Duration) *watch {
	w := &watch{most: most}
	w.timer = time.AfterFunc(most, func() {
		w.cut.Store(true)
		s.Close() // its end is what is announced
	})
	return w
}

func (w *watch) restart() {
	if w.timer.Stop() {
		w.timer.Reset(w.most)
	}
}

func (w *watch) stop() { w.timer.Stop() }

// explain replaces an error whose cause is the watch.
func (w *watch) explain(err error) error {
	if err != nil && w.cut.Load() {
		return fmt.Errorf("it is there, but nothing moved for %v", w.most)
	}
	return err
}
