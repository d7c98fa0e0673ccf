package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/safetensors"
)

// Reader reads the files of one checkpoint, each from where that is best, over
// one connection to each task that holds some. Files and connections stay open
// as long as somebody uses the Reader.
type Reader struct {
	files    *Files
	manifest *checkpoint.Manifest
	holders  map[string][]cluster.Task // by file: who holds it, with the right sum

	mu      sync.Mutex
	users   int
	reading context.Context // until all users have left; nothing is read from other tasks after its end
	cancel  context.CancelCauseFunc
	open    map[string]*openFile
	tasks   map[cluster.Task]*holder
}

// Reader prepares to read a checkpoint; holders says, by file, which tasks hold
// it with the right sum.
func (f *Files) Reader(m *checkpoint.Manifest, holders map[string][]cluster.Task) *Reader {
	return &Reader{files: f, manifest: m, holders: holders}
}

// openFile is a file of the checkpoint.
type openFile struct {
	mu   sync.Mutex
	file *safetensors.File // nil: not opened yet
	own  *os.File          // nil: it is read from other tasks
}

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
		r.open, r.tasks = map[string]*openFile{}, map[cluster.Task]*holder{}
		r.reading, r.cancel = context.WithCancelCause(ctx)
	}
	r.users++
	return r.cancel
}

// exit closes everything after the last user.
func (r *Reader) exit() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.users--; r.users > 0 {
		return
	}
	for _, o := range r.open {
		if o.own != nil {
			o.own.Close() // opened for reading: nothing to lose
		}
	}
	r.cancel(nil) // closes the sessions
}

// Open returns a file of the checkpoint. It stays open until the last Use
// returns.
func (r *Reader) Open(name string) (*safetensors.File, error) {
	r.mu.Lock()
	o := r.open[name]
	if o == nil {
		o = &openFile{}
		r.open[name] = o
	}
	r.mu.Unlock()
	i := slices.IndexFunc(r.manifest.Files, func(f checkpoint.File) bool { return f.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("%s is not among its files", name)
	}
	return o.open(r, r.manifest.Files[i])
}

func (o *openFile) open(r *Reader, f checkpoint.File) (*safetensors.File, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.file != nil {
		return o.file, nil
	}
	file, err := safetensors.Open(o.source(r, f.Name), f.Size)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name, err)
	}
	o.file = file
	return file, nil
}

// source is the file in this task's folder, if that is a good one, or else
// those of other tasks.
func (o *openFile) source(r *Reader, name string) io.ReaderAt {
	self := r.files.config.Peers.Self
	if slices.Contains(r.holders[name], self) {
		if own, err := r.files.config.Folder.Open(r.manifest.ID, name); err == nil {
			o.own = own
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

const maxRead = 16 << 20 // bytes that a task asks for at a time

// serveReads gives another task the ranges of files that it asks for.
func (f *Files) serveReads(from peers.Peer) {
	served := f.life.Do(func(ctx context.Context) {
		s := f.session(from)
		defer s.Close() // of no more use
		defer s.CloseWith(ctx)()
		r := reading{files: f, session: s}
		defer r.close()
		for r.answer() == nil {
		}
	})
	if !served {
		from.Conn.Close() // this task is ending
	}
}

// reading is a session on which another task asks for ranges of files, usually
// of one file after the other.
type reading struct {
	files    *Files
	session  *peers.Session
	file     *os.File // that was asked for last; nil: none
	id, name string   // of file
}

func (r *reading) close() {
	if r.file != nil {
		r.file.Close() // opened for reading: nothing to lose
	}
}

// answer takes one question. An error ends the session.
func (r *reading) answer() error {
	m, err := receive(r.session)
	if err != nil {
		return err
	}
	if m.Kind != read || m.File == nil {
		return fmt.Errorf("unexpected %q message", m.Kind)
	}
	w := newWatch(r.session, 2*r.files.config.Silence) // the other task loses patience first
	defer w.stop()
	if err := r.open(m); err != nil {
		return send(r.session, message{Kind: bytesOf, Err: failure(err)})
	}
	if err := send(r.session, message{Kind: bytesOf, Length: m.Length}); err != nil {
		return err
	}
	return sendChunks(r.session, w, r.file, m.Offset, m.Length)
}

// open makes r.file the file that a question is about and checks the range.
func (r *reading) open(m message) error {
	if err := r.files.config.Hook("store.read"); err != nil {
		return err
	}
	if r.file == nil || r.id != m.ID || r.name != m.File.Name {
		r.close()
		r.file = nil
		file, err := r.files.config.Folder.Open(m.ID, m.File.Name)
		if err != nil {
			return err
		}
		r.file, r.id, r.name = file, m.ID, m.File.Name
	}
	info, err := r.file.Stat()
	switch {
	case err != nil:
		return err
	case m.Offset < 0 || m.Length < 0 || m.Length > maxRead || m.Offset > info.Size()-m.Length:
		return fmt.Errorf("checkpoint %s: %d bytes of %s from %d on, it has %d: want at most %d, inside of it",
			m.ID, m.Length, m.File.Name, m.Offset, info.Size(), maxRead)
	}
	return nil
}
