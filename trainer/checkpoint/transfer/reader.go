package transfer

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/cluster"
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
