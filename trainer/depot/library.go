package depot

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

// library is the files of the chosen checkpoint, each opened where it is best
// read, and the connections to those that hold them. Both stay open as long as
// somebody reads.
type library struct {
	depot *Depot

	mu      sync.Mutex
	readers int
	quit    chan struct{} // closed: nothing is read from others any more, until all readers have left
	books   map[string]*book
	holders map[cluster.Task]*holder
}

// book is a file of the chosen checkpoint.
type book struct {
	mu   sync.Mutex
	file *safetensors.File // nil: not opened yet
	own  *os.File          // nil: it is read from others
}

// visit runs f, which may open files and read them, as long as the depot is
// open. It returns soon after ctx ends.
func (l *library) visit(ctx context.Context, f func() error) error {
	err := errClosed
	l.depot.during(func(context.Context) {
		l.enter()
		defer l.exit()
		stop := context.AfterFunc(ctx, l.hangUp)
		defer stop()
		if err = f(); err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
	})
	return err
}

func (l *library) enter() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.readers == 0 {
		l.books, l.holders = map[string]*book{}, map[cluster.Task]*holder{}
		l.quit = make(chan struct{})
	}
	l.readers++
}

// exit closes everything behind the last reader.
func (l *library) exit() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.readers--; l.readers > 0 {
		return
	}
	for _, b := range l.books {
		if b.own != nil {
			b.own.Close() // opened for reading: nothing to lose
		}
	}
	for _, h := range l.holders {
		h.hangUp()
	}
}

// hangUp ends what is being read from others, by all readers: they belong to
// one training.
func (l *library) hangUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.quit:
	default:
		close(l.quit)
	}
	for _, h := range l.holders {
		h.hangUp()
	}
}

// open returns a file of the chosen checkpoint.
func (l *library) open(c choice, name string) (*safetensors.File, error) {
	l.mu.Lock()
	b := l.books[name]
	if b == nil {
		b = &book{}
		l.books[name] = b
	}
	l.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.file != nil {
		return b.file, nil
	}
	i := slices.IndexFunc(c.manifest.Files, func(f checkpoint.File) bool { return f.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("%s is not among its files", name)
	}
	var err error
	if b.file, err = safetensors.Open(l.source(b, c, name), c.manifest.Files[i].Size); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return b.file, nil
}

// source is the own folder's file where that is a good one.
func (l *library) source(b *book, c choice, name string) io.ReaderAt {
	self := l.depot.config.Peers.Self
	if slices.Contains(c.holders[name], self) {
		if own, err := l.depot.folder.Open(c.manifest.ID, name); err == nil {
			b.own = own
			return own
		}
	}
	others := slices.DeleteFunc(slices.Clone(c.holders[name]), func(t cluster.Task) bool { return t == self })
	r := &remote{library: l, id: c.manifest.ID, name: name, holders: others}
	r.at.Store(uint32(self.Index)) // so that not all ask the same one
	return r
}

// holder returns the one connection to a task that there is, or is to be, for
// a reader.
func (l *library) holder(t cluster.Task) *holder {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holders[t] == nil {
		l.holders[t] = &holder{depot: l.depot, task: t, quit: l.quit}
	}
	return l.holders[t]
}
