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

// Again returns the folder as it is now, without what has come since Scan: files that have
// vanished are left out, unless Gather was told of them, and those that have changed are
// read again. The file without is left out in any case; "": there is none.
func (f *Folder) Again(ctx context.Context, without string) (*Folder, error) {
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

// now returns a file's entry as the file is now.
func (f *Folder) now(e Entry) (Entry, error) {
	info, err := os.Lstat(f.file(e))
	if err != nil {
		return e, err
	}
	if i, ok := identity(info); ok && i.Size == e.Size && time.Unix(0, max(i.ModTime, i.Change)).Before(f.read.Add(-settled)) {
		return e, nil
	}
	return readFile(e, f.file(e), io.Discard, func(fs.FileInfo, content) {})
}
