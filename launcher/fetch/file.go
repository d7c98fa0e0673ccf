package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/plx-run/plx/internal/plural"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/protocol"
)

// file is a file to fetch. It is transferred once, even if several hosts have
// it and it is written to several paths.
type file struct {
	size int64
	sum  string   // SHA-256, hexadecimal
	from []origin // hosts that have the file, in the order in which they are tried
	to   []string // paths below Request.Dir to write the file to, separated by slashes
	log  bool     // true for a log; a shorter local copy from an earlier fetch is then completed
}

// origin is the location of a file on one host.
type origin struct {
	host        int    // index in Request.Hosts
	place, name string // folder and name by which the host finds the file, as in protocol.FetchRequest
}

// tally counts the files of one kind, such as outputs, that are complete in
// Request.Dir.
type tally struct {
	kind string // word before the file's path in an error, such as "log"; "" for files of a checkpoint

	mu    sync.Mutex
	done  map[string]bool // complete files, by path below Request.Dir
	there int             // number of files in done that an earlier plx fetch has written
	bytes int64           // number of bytes that this fetch has transferred
}

func newTally(kind string) *tally { return &tally{kind: kind, done: map[string]bool{}} }

func (t *tally) took(name string, there bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if there && !t.done[name] { // a file that is already in done was written by an earlier round of this fetch
		t.there++
	}
	t.done[name] = true
}

// summarise prints a line with the number of fetched files and their size.
func (f *fetcher) summarise(t *tally, what, of, dir string) {
	already := ""
	if t.there > 0 {
		already = fmt.Sprintf(", %d of them there already", t.there)
	}
	f.from.Printer.Printf("fetched %s of %s into %s: %s, %s%s", what, of, dir, plural.Count(len(t.done), "file"), console.Size(t.bytes), already)
}

// expect adds the sizes of all files that will be fetched to the progress bar.
func (f *fetcher) expect(all []file) {
	f.left = map[string]int64{}
	for _, w := range all {
		f.left[w.to[0]] = w.size
		f.bar.Moved("", w.to[0], 0, w.size)
	}
}

// atOnce is the maximum number of files that are fetched at the same time.
//
// TODO: measure other values on networks of several kinds.
const atOnce = 8

// all fetches files, at most atOnce at the same time. It returns the error of
// each file, nil for a file that was fetched, with the same indexes as files.
func (f *fetcher) all(ctx context.Context, files []file, t *tally) []error {
	errs := make([]error, len(files))
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i, w := range files {
		g.Go(func() error {
			if errs[i] = f.get(ctx, w, t); errs[i] != nil && t.kind != "" {
				errs[i] = fmt.Errorf("%s %s: %w", t.kind, w.to[0], errs[i])
			}
			return nil
		})
	}
	g.Wait() // Wait returns nil, because no function returns an error
	return errs
}

// get fetches a file to its first path and copies it to its other paths.
func (f *fetcher) get(ctx context.Context, w file, t *tally) error {
	if err := f.fetch(ctx, w, t); err != nil {
		return err
	}
	for _, to := range w.to[1:] {
		err := f.keep(ctx, w, to, t, func(_ context.Context, out io.Writer, offset int64) error {
			first, err := os.Open(filepath.Join(f.from.Dir, filepath.FromSlash(w.to[0])))
			if err != nil {
				return localError{err}
			}
			defer first.Close() // the file was only read
			_, err = io.Copy(out, io.NewSectionReader(first, offset, w.size-offset))
			return err
		})
		if err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.left, w.to[0])
	return nil
}

// fetch fetches a file from the first of its hosts. If that fails, it tries
// the next host.
func (f *fetcher) fetch(ctx context.Context, w file, t *tally) error {
	var errs []error
	for _, o := range w.from {
		a := f.from.Hosts[o.host]
		err := f.keep(ctx, w, w.to[0], t, func(ctx context.Context, out io.Writer, offset int64) error {
			want := protocol.FetchRequest{Wanted: f.from.Wanted, Place: o.place, Name: o.name, Offset: offset, Size: w.size}
			if o.place == "" {
				want.Checkpoints = f.from.Name
			}
			return ask(ctx, a, want, &progressWriter{to: out, bar: f.bar, tally: t, file: w, sent: offset})
		})
		if err == nil || ctx.Err() != nil || errors.As(err, new(localError)) {
			return err
		}
		errs = append(errs, a.Named(err))
	}
	return errors.Join(errs...)
}

// keep writes a file to a path below Request.Dir. If that succeeds, it records
// in t that the file is complete.
func (f *fetcher) keep(ctx context.Context, w file, to string, t *tally, from source) error {
	path := filepath.Join(f.from.Dir, filepath.FromSlash(to))
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return localError{err}
	}
	there, err := store(ctx, path, w, from)
	if err == nil {
		t.took(to, there)
	}
	return err
}

// progressWriter is a writer that shows the progress of a file on the progress bar.
type progressWriter struct {
	to    io.Writer
	bar   *console.Transfer
	tally *tally
	file  file
	sent  int64 // number of bytes of the file written so far, including those of earlier fetches
}

func (p *progressWriter) Write(b []byte) (int, error) {
	n, err := p.to.Write(b)
	p.sent += int64(n)
	p.bar.Moved("", p.file.to[0], p.sent, p.file.size)
	p.tally.mu.Lock()
	defer p.tally.mu.Unlock()
	p.tally.bytes += int64(n)
	return n, err
}

// errFull is the error if the disk of this machine is full.
type errFull struct{ error }

func (e errFull) Unwrap() error { return e.error }

// isFull reports whether err means that the disk of this machine is full, or
// that the user's disk quota is used up.
func isFull(err error) bool {
	return errors.As(err, new(localError)) && (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT))
}

// full returns one error for all files that did not fit on the disk.
func (f *fetcher) full() error {
	missing := int64(0)
	for _, size := range f.left {
		missing += size
	}
	err := fmt.Errorf("%s: the disk of this machine is full: %s more to fetch", f.from.Dir, console.Size(missing))
	return errFull{exit.WithHint(err, fmt.Sprintf("make room; then plx fetch %s %s fetches the rest", f.from.Hosts[0].Job, f.from.Dir))}
}

// joined joins the errors of several files. All errors about a full disk
// become one error.
func (f *fetcher) joined(errs []error) error {
	others := slices.DeleteFunc(slices.Clone(errs), isFull)
	if len(others) < len(errs) {
		others = append(others, f.full())
	}
	return errors.Join(others...)
}
