package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/safetensors"
	"github.com/plx-run/plx/trainer/wire"
)

// holder is another task that has checkpoint files. It has the only connection
// to that task.
type holder struct {
	files   *Files
	task    cluster.Task
	reading context.Context // context of reads; when it ends, the session is closed and read fails

	mu      sync.Mutex     // mutex held during a request and its response; guards session
	session *peers.Session // open session with the task; nil if no session is open
}

// read requests len(b) bytes of a file, beginning at offset, and stores them
// in b. It opens a session if none is open, and closes the session after an
// error.
func (h *holder) read(id, file string, offset int64, b []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.files.config
	if h.session == nil {
		ctx, cancel := context.WithTimeoutCause(h.reading, c.Silence, fmt.Errorf("not reached within %v", c.Silence))
		defer cancel()
		s, err := peers.Open(ctx, c.Peers, h.task, c.Cluster.Addr(h.task), purpose, c.Silence)
		if err != nil {
			return err
		}
		s.CloseWith(h.reading)
		h.session = s
	}
	w := newWatch(h.session, c.Silence)
	defer w.stop()
	err := ask(h.session, w, request{ID: id, File: file, Offset: offset, Length: int64(len(b))}, b)
	if err != nil {
		h.session.Close() // error ignored: the next read opens a new session
		h.session = nil
	}
	return w.explain(err)
}

func ask(s *peers.Session, w *watch, q request, b []byte) error {
	if err := s.SendJSON(wire.Message, q, maxMessage); err != nil {
		return err
	}
	var answer request
	if err := s.NextJSON(wire.Message, &answer, maxMessage); err != nil {
		return err
	}
	switch {
	case answer.Err != "":
		return errors.New(answer.Err)
	case answer.Length != q.Length:
		return fmt.Errorf("an answer of %d bytes, want %d", answer.Length, q.Length)
	}
	for at := uint64(q.Offset); len(b) > 0; {
		h, err := s.Next()
		if err != nil {
			return err
		}
		if h.Kind != wire.Chunk || h.Offset != at || h.Length == 0 || h.Length > uint64(min(len(b), chunkSize)) {
			return fmt.Errorf("unexpected %s frame of %d bytes from %d on, want a chunk from %d on", h.Kind, h.Length, h.Offset, at)
		}
		if err := s.Payload(b[:h.Length]); err != nil {
			return err
		}
		w.restart()
		at, b = at+h.Length, b[h.Length:]
	}
	return nil
}

// Fetch reads a checkpoint file from the folder of the task in the parameter
// from, and writes the content to w.
func (f *Files) Fetch(ctx context.Context, id string, file checkpoint.File, from cluster.Task, w io.Writer) error {
	reading, cancel := context.WithCancel(ctx)
	defer cancel() // cancel ends the reading, which closes the session
	source := &holder{files: f, task: from, reading: reading}
	const most = 4 << 20 // largest number of bytes to request at a time
	b := make([]byte, min(file.Size, most))
	for at := int64(0); at < file.Size; at += int64(len(b)) {
		b = b[:min(file.Size-at, most)]
		err := source.read(id, file.Name, at, b)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return peers.Lost(err)
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// Reader reads the files of one checkpoint. It reads a file from this task's
// folder if the folder has it, and otherwise from other tasks, with one
// connection to each. Files and connections stay open until the last running
// call of Use returns.
type Reader struct {
	files    *Files
	manifest *checkpoint.Manifest
	holders  map[string][]cluster.Task // by file name: the tasks whose folders have the file with the right checksum

	mu      sync.Mutex
	users   int             // number of running calls of Use
	reading context.Context // context of all reads; it ends after the last running Use, and the next Use makes a new one
	cancel  context.CancelCauseFunc
	open    map[string]func() (*safetensors.File, error) // by file name: opens the file at the first call, and later returns the same file
	tasks   map[cluster.Task]*holder                     // by task: the type that reads files of the task; all files of a task are read over one connection
}

// Reader returns a Reader of the checkpoint with manifest m. holders has, by
// file name, the tasks whose folders have the file with the right checksum.
func (f *Files) Reader(m *checkpoint.Manifest, holders map[string][]cluster.Task) *Reader {
	return &Reader{files: f, manifest: m, holders: holders}
}

var errGivenUp = errors.New("reading was given up")

// Use calls f, which may call [Reader.Open] and read the files. When ctx ends,
// all reads fail, so that f and Use soon return.
func (r *Reader) Use(ctx context.Context, f func() error) error {
	err := errClosed
	r.files.life.Do(func(living context.Context) {
		cancel := r.enter(living)
		defer r.exit()
		defer context.AfterFunc(ctx, func() { cancel(errGivenUp) })() // When the ctx of one call of Use ends, cancel the reads of all running calls, because they all serve the same training.
		if err = f(); err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
	})
	return err
}

func (r *Reader) enter(ctx context.Context) context.CancelCauseFunc {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.users == 0 {
		r.open, r.tasks = map[string]func() (*safetensors.File, error){}, map[cluster.Task]*holder{}
		r.reading, r.cancel = context.WithCancelCause(ctx)
	}
	r.users++
	return r.cancel
}

// exit ends one call of Use. After the last one it closes all files and
// sessions.
func (r *Reader) exit() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.users--; r.users == 0 {
		r.cancel(nil)
	}
}

// Open returns a file of the checkpoint, which stays open until the last
// running Use returns. Only the function passed to Use may call Open.
func (r *Reader) Open(name string) (*safetensors.File, error) {
	i := slices.IndexFunc(r.manifest.Files, func(f checkpoint.File) bool { return f.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("%s is not among its files", name)
	}
	r.mu.Lock()
	if r.open[name] == nil {
		r.open[name] = sync.OnceValues(func() (*safetensors.File, error) {
			file, err := safetensors.Open(r.source(name), r.manifest.Files[i].Size)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			return file, nil
		})
	}
	open := r.open[name]
	r.mu.Unlock()
	return open()
}

// source returns the file in this task's own folder, if that file has the
// right checksum. Otherwise it returns a remote file, which reads from the
// other tasks that have the file.
func (r *Reader) source(name string) io.ReaderAt {
	self := r.files.config.Peers.Self
	if slices.Contains(r.holders[name], self) {
		if own, err := r.files.config.Folder.Open(r.manifest.ID, name); err == nil {
			context.AfterFunc(r.reading, func() { own.Close() }) // error ignored: the file was only read
			return own
		}
	}
	others := slices.DeleteFunc(slices.Clone(r.holders[name]), func(t cluster.Task) bool { return t == self })
	remote := &remote{reader: r, name: name, holders: others}
	remote.first.Store(uint32(self.Index)) // Each task begins with another holder, to spread the load.
	return remote
}

// holder returns the holder for task t. The first call creates it and later
// calls return the same one, so that there is only one connection to t.
func (r *Reader) holder(t cluster.Task) *holder {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tasks[t] == nil {
		r.tasks[t] = &holder{files: r.files, task: t, reading: r.reading}
	}
	return r.tasks[t]
}

// remote is a file in the folders of other tasks. Each read has a timeout.
type remote struct {
	reader  *Reader
	name    string
	holders []cluster.Task
	first   atomic.Uint32 // index of the holder to try first (modulo the number of holders): the holder from which the last successful read came
}

// ReadAt implements io.ReaderAt. It tries one holder (task that has the file)
// after the other until a read succeeds.
func (r *remote) ReadAt(b []byte, off int64) (int, error) {
	failures := []error{fmt.Errorf("%s is on no host that can be asked", r.name)}
	first := r.first.Load()
	for i := range r.holders {
		at := first + uint32(i)
		task := r.holders[at%uint32(len(r.holders))]
		err := r.reader.holder(task).read(r.reader.manifest.ID, r.name, off, b)
		if err == nil {
			r.first.Store(at)
			return len(b), nil
		}
		failures = append(failures, fmt.Errorf("%s: %w", r.reader.files.config.Name(task), peers.Lost(err)))
	}
	return 0, errors.Join(failures...)
}
