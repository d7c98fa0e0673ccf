package logs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
)

// File reads the spool (the stored output) of one source, which is the stdout
// or stderr of a task. It runs on the task's host. It returns the same bytes
// that a [Dir] would write to a file. Where bytes were dropped, it returns one
// line with their number instead. A File ends at the size that the spool had
// when OpenFile opened it.
type File struct {
	sp   *spool
	rest []byte // bytes that were read from the spool and that Read has not returned yet
}

// Files returns the names of the spools in dir, such as worker-3.stdout. It
// returns no names if the folder does not exist.
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

// IsFile reports whether name is a valid name of a spool, such as
// worker-3.stdout.
func IsFile(name string) bool {
	src, ok := sourceOf(name)
	return ok && src.file() == name
}

// OpenFile opens the spool in dir with a name that [Files] returned. The
// caller must call Close.
func OpenFile(dir, name string) (*File, error) {
	src, ok := sourceOf(name)
	if !ok || !IsFile(name) {
		return nil, fmt.Errorf("%q is not the name of a log file", name)
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
		f.rest = f.sp.take().fileBytes()
	}
	n := copy(p, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

// load reports whether the spool has another chunk. If the task has dropped
// the segment that should come next, load lists the folder again and continues
// with the oldest segment that is left.
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

// Close closes the spool's files.
func (f *File) Close() error { return f.sp.close() }
