package tree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"time"
)

// Rescan returns a copy of f with the present content of its files. It reads
// again only files that have changed since Scan, and does not look for new
// files. It omits the file at the path without ("" omits none).
//
// Rescan also omits files that no longer exist, or that change while Rescan
// reads them. If f came from Gather instead of Scan, such a file is an error.
func (f *Folder) Rescan(ctx context.Context, without string) (*Folder, error) {
	again := *f
	again.Entries, again.read, again.excluded = nil, time.Now(), maps.Clone(f.excluded)
	for _, e := range f.Entries {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if e.Kind == File {
			var err error
			if e, err = f.now(e); errors.Is(err, fs.ErrNotExist) && !f.Gathered(e.Path) {
				continue
			} else if errors.As(err, new(*ChangedError)) && !f.Gathered(e.Path) || e.Path == without {
				again.notes = append(again.notes, leftOut(e.Path))
				continue
			} else if errors.As(err, new(*ChangedError)) {
				return nil, err
			} else if err != nil {
				return nil, fmt.Errorf("%s: %w", shown(e.Path), cause(err))
			}
		}
		again.Entries = append(again.Entries, e)
	}
	return &again, nil
}

// now returns the entry e with the file's present size and hash. It reads the
// file only if the file may have changed since it was last read.
func (f *Folder) now(e Entry) (Entry, error) {
	info, err := os.Lstat(f.file(e))
	if err != nil {
		return e, err
	}
	if i, ok := identity(info); ok && i.Size == e.Size && time.Unix(0, max(i.ModTime, i.Change)).Before(f.read.Add(-minCacheAge)) {
		return e, nil
	}
	return readFile(e, f.file(e), io.Discard, func(fs.FileInfo, content) {})
}
