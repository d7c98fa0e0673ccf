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

// holder is a task that holds files, and the session with it.
type holder struct {
	files   *Files
	task    cluster.Task
	reading context.Context // after its end the task is asked nothing

	mu      sync.Mutex     // held for a question and its answer
	session *peers.Session // nil means that none is open
}

// read puts a question and reads the answer into b.
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
	err := ask(h.session, w, question{ID: id, File: file, Offset: offset, Length: int64(len(b))}, b)
	if err != nil {
		h.session.Close() // of no more use
		h.session = nil
	}
	return w.explain(err)
}

func ask(s *peers.Session, w *watch, q question, b []byte) error {
	if err := s.SendJSON(wire.Message, q, maxMessage); err != nil {
		return err
	}
	var answer question
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

// Fetch writes a file of a checkpoint that another task holds to w.
func (f *Files) Fetch(ctx context.Context, id string, file checkpoint.File, from cluster.Task, w io.Writer) error {
	reading, cancel := context.WithCancel(ctx)
	defer cancel() // closes the session
	source := &holder{files: f, task: from, reading: reading}
	const most = 4 << 20 // bytes of a question
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

// Reader reads the files of one checkpoint, each from where that is best, over
// one connection to each task that holds some. Files and connections stay open
// as long as somebody uses the Reader.
type Reader struct {
	files    *Files
	manifest *checkpoint.Manifest
	holders  map[string][]cluster.Task // by file: the tasks that hold it with the right checksum

	mu      sync.Mutex
	users   int             // number of calls of Use under way
	reading context.Context // ends after the last user has left; the next first user renews it
	cancel  context.CancelCauseFunc
	open    map[string]func() (*safetensors.File, error) // by file: opens it once, then returns the same file
	tasks   map[cluster.Task]*holder                     // by task: the only connection to it
}

// Reader prepares to read a checkpoint; holders says, by file, which tasks hold
// it with the right sum.
func (f *Files) Reader(m *checkpoint.Manifest, holders map[string][]cluster.Task) *Reader {
	return &Reader{files: f, manifest: m, holders: holders}
}

var errGivenUp = errors.New("reading was given up")

// Use runs f, which may open files and read them. It returns soon after ctx
// ends.
func (r *Reader) Use(ctx context.Context, f func() error) error {
	err := errClosed
	r.files.life.Do(func(living context.Context) {
		cancel := r.enter(living)
		defer r.exit()
		defer context.AfterFunc(ctx, func() { cancel(errGivenUp) })() // for all users: they belong to one training
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

// exit closes files and sessions after the last user.
func (r *Reader) exit() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.users--; r.users == 0 {
		r.cancel(nil)
	}
}

// Open returns a file of the checkpoint. It stays open until the last Use
// returns.
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

// source is the file in this task's folder, if that is a good one, or else
// those of other tasks.
func (r *Reader) source(name string) io.ReaderAt {
	self := r.files.config.Peers.Self
	if slices.Contains(r.holders[name], self) {
		if own, err := r.files.config.Folder.Open(r.manifest.ID, name); err == nil {
			context.AfterFunc(r.reading, func() { own.Close() }) // opened for reading: nothing to lose
			return own
		}
	}
	others := slices.DeleteFunc(slices.Clone(r.holders[name]), func(t cluster.Task) bool { return t == self })
	remote := &remote{reader: r, name: name, holders: others}
	remote.first.Store(uint32(self.Index)) // so that not all tasks ask the same one
	return remote
}

// holder returns the one connection to a task that there is, or is to be.
func (r *Reader) holder(t cluster.Task) *holder {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tasks[t] == nil {
		r.tasks[t] = &holder{files: r.files, task: t, reading: r.reading}
	}
	return r.tasks[t]
}

// remote is a file that other tasks hold. Every read is bounded in time.
type remote struct {
	reader  *Reader
	name    string
	holders []cluster.Task
	first   atomic.Uint32 // index of the holder to ask first, modulo their number: the last that answered well
}

// ReadAt is that of io.ReaderAt. It asks one holder after the other.
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
