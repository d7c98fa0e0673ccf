package logs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
)

// File reads on a host what a [Dir] keeps of a source: the bytes of its spool, with a line in
// place of those that were dropped. It ends where the spool ended when it was opened.
type File struct {
	sp   *spool
	rest []byte // read, and not yet returned
}

// Files returns the names of the files, such as worker-3.stdout, of the spools in dir. If there
// is no such folder there are none.
func Files(dir string) (names []string, err error) {
	found, err := segmentsIn(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("log folder: %w", err)
	}
	for src := range found {
		names = append(names, src.file())
	}
	slices.Sort(names)
	return names, nil
}

// IsFile reports whether a source has a file of that name.
func IsFile(name string) bool {
	src, ok := sourceOf(name)
	return ok && src.file() == name
}

// OpenFile opens one of [Files]. Close must be called.
func OpenFile(dir, name string) (*File, error) {
	src, ok := sourceOf(name)
	if !ok || !IsFile(name) {
		return nil, fmt.Errorf("%q is no file of a log", name)
	}
	sp, err := openSpool(dir, src, nil, Request{TailLines: -1})
	if err != nil {
		return nil, fmt.Errorf("spool of %s: %w", src, err)
	}
	return &File{sp: sp}, nil
}

func (f *File) Read(p []byte) (int, error) {
	for len(f.rest) == 0 {
		more, err := f.load()
		if err != nil {
			return 0, fmt.Errorf("spool of %s: %w", f.sp.src, err)
		}
		if !more {
			return 0, io.EOF
		}
		f.rest = f.sp.take().kept()
	}
	n := copy(p, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

// load reports whether there is another chunk. If the task has dropped the segments that were
// known to come, it looks for those that there are now.
func (f *File) load() (bool, error) {
	f.sp.beginPass()
	more, err := f.sp.load()
	if more || err != nil || f.sp.offset >= f.sp.limit {
		return more, err
	}
	found, err := segmentsIn(f.sp.dir)
	if err != nil {
		return false, err
	}
	f.sp.found(found[f.sp.src])
	f.sp.beginPass()
	return f.sp.load()
}

// Close closes the spool.
func (f *File) Close() error { return f.sp.close() }
