// Package transfer moves files of checkpoints between tasks: second copies of
// what a task has written, to a task on another host, and ranges of files that
// a restore needs, from a task that holds them.
//
//	files := transfer.New(transfer.Config{Peers: config, Cluster: spec, Folder: folder, Silence: silence, Saves: saves}, life)
//	files.Serve(listener)
//
//	err := files.Copy(ctx, id, file, task)       // during a save
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
// task can bring only a file that [Saves] accepts, and ask for at most 16 MiB
// at a time.
package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/lifetime"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

// The purposes of connections.
const (
	readPurpose = "checkpoint-read"
	copyPurpose = "checkpoint-copy"
)

// farewell is how long an answer may take to arrive when all is done.
const farewell = 2 * time.Second

var errClosed = errors.New("the task is ending")

// Saves knows the saves that are under way.
type Saves interface {
	// Join waits until the save of a checkpoint has begun here and returns
	// leave, which the caller calls when it has written. It refuses a file that
	// from may not bring.
	Join(ctx context.Context, from cluster.Task, id, file string) (leave func(), err error)
}

// Config says who a task is, where the others are and where its files lie.
type Config struct {
	Peers   peers.Config
	Cluster cluster.Spec
	Folder  *checkpoint.Folder
	Silence time.Duration // after which a connection on which nothing moves is given up
	Saves   Saves
	// Name names a task and its host in messages.
	Name func(cluster.Task) string
	// Hook is called at named places; an error it returns counts as the
	// place's. Tests use it for faults.
	Hook func(place string) error
}

// Files gives and takes files. Any goroutine may call its methods.
type Files struct {
	config Config
	life   *lifetime.Lifetime
}

// New prepares to give and take files until life ends.
func New(c Config, life *lifetime.Lifetime) *Files { return &Files{config: c, life: life} }

// Serve answers the other tasks that come to the listener for files.
func (f *Files) Serve(l *peers.Listener) {
	l.Handle(readPurpose, f.serveReads)
	l.Handle(copyPurpose, f.receiveCopy)
}

// Patience is how long a disk or a network may take for some bytes. One that is
// slower is stuck.
func Patience(silence time.Duration, bytes int64) time.Duration {
	const slowest = 8 << 20 // bytes in a second
	return silence + time.Duration(bytes/slowest)*time.Second
}

// session makes a session of a connection that another task has opened.
func (f *Files) session(from peers.Peer) *peers.Session {
	return peers.NewSession(from, f.config.Peers.Generation, f.config.Silence)
}

// dial opens a session with another task.
func (f *Files) dial(ctx context.Context, to cluster.Task, purpose string) (*peers.Session, error) {
	c := f.config
	ctx, cancel := context.WithTimeoutCause(ctx, c.Silence, fmt.Errorf("not reached within %v", c.Silence))
	defer cancel()
	return peers.Open(ctx, c.Peers, to, c.Cluster.Addr(to), purpose, c.Silence)
}

// maxMessage bounds a message between two tasks, in bytes.
const maxMessage = 64 << 10

// kind says what a message is for.
type kind string

const (
	read    kind = "read"   // asks for Length bytes of File.Name of ID, from Offset on
	bytesOf kind = "bytes"  // the answer: Length bytes follow as chunks, or Err
	copied  kind = "copy"   // File of ID follows as chunks
	stored  kind = "stored" // the answer: the copy is File now, or Err
)

// message is what two tasks say about a file.
type message struct {
	Kind   kind             `json:"kind"`
	ID     string           `json:"id,omitempty"` // of the checkpoint
	File   *checkpoint.File `json:"file,omitempty"`
	Offset int64            `json:"offset,omitempty"` // in bytes
	Length int64            `json:"length,omitempty"` // bytes that read asks for, or that follow bytesOf; 0 in other messages
	Err    string           `json:"error,omitempty"`  // empty: none
}

func send(s *peers.Session, m message) error {
	m.Err = m.Err[:min(len(m.Err), maxMessage/16)] // JSON writes a byte as six at most
	return s.SendJSON(wire.Message, m, maxMessage)
}

func receive(s *peers.Session) (m message, err error) {
	err = s.NextJSON(wire.Message, &m, maxMessage)
	return m, err
}

// failure is err as it travels: empty for none.
func failure(err error) string {
	switch {
	case err == nil:
		return ""
	case err.Error() == "":
		return "unknown"
	}
	return err.Error()
}

const (
	chunkSize = 1 << 20 // bytes of a file in one frame, at most
	maxFile   = 1 << 50 // bytes
)

// sendChunks sends length bytes of a file from offset on.
func sendChunks(s *peers.Session, w *watch, from io.ReaderAt, offset, length int64) error {
	buffer := make([]byte, min(length, chunkSize))
	for length > 0 {
		b := buffer[:min(length, chunkSize)]
		if n, err := from.ReadAt(b, offset); n < len(b) {
			return fmt.Errorf("read: %w", err)
		}
		if err := s.Send(wire.Frame{Header: wire.Header{Kind: wire.Chunk, Offset: uint64(offset)}, Payload: b}); err != nil {
			return err
		}
		w.extend(0)
		offset, length = offset+int64(len(b)), length-int64(len(b))
	}
	return nil
}

// receiveChunk reads the next chunk, which must begin at an offset of the file,
// into b and returns its length.
func receiveChunk(s *peers.Session, offset int64, b []byte) (int, error) {
	h, err := s.Next()
	if err != nil {
		return 0, err
	}
	if h.Kind != wire.Chunk || h.Offset != uint64(offset) || h.Length == 0 || h.Length > uint64(min(len(b), chunkSize)) {
		return 0, fmt.Errorf("unexpected %s frame of %d bytes from %d on, want a chunk from %d on", h.Kind, h.Length, h.Offset, offset)
	}
	return int(h.Length), s.Payload(b[:h.Length])
}

// receiveFile writes size bytes that come as chunks.
func receiveFile(s *peers.Session, w *watch, to io.Writer, size int64) error {
	buffer := make([]byte, min(size, chunkSize))
	for at := int64(0); at < size; {
		n, err := receiveChunk(s, at, buffer[:min(size-at, chunkSize)])
		if err != nil {
			return err
		}
		w.extend(0)
		if _, err := to.Write(buffer[:n]); err != nil {
			return err
		}
		at += int64(n)
	}
	return nil
}

// watch closes a session on which nothing moves although the other task lives:
// its disk hangs, or it has forgotten. One goroutine uses it.
type watch struct {
	timer *time.Timer
	most  time.Duration // without an extension
	last  time.Duration // of the current count
	cut   atomic.Bool   // it has closed the session
}

func newWatch(s *peers.Session, most time.Duration) *watch {
	w := &watch{most: most, last: most}
	w.timer = time.AfterFunc(most, func() {
		w.cut.Store(true)
		s.Close() // its end is what is announced
	})
	return w
}

// extend counts anew: most from now on, or with zero what the watch was made
// with.
func (w *watch) extend(most time.Duration) {
	if most == 0 {
		most = w.most
	}
	if w.timer.Stop() {
		w.last = most
		w.timer.Reset(most)
	}
}

func (w *watch) stop() { w.timer.Stop() }

// explain replaces an error whose cause is the watch.
func (w *watch) explain(err error) error {
	if err != nil && w.cut.Load() {
		return fmt.Errorf("it is there, but nothing moved for %v", w.last)
	}
	return err
}
