package tree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Gather reads files and folders of the local machine, wherever they are, and
// returns one Folder that has each under its base name. It ignores .gitignore
// and .plxignore files. If one of paths is a symbolic link, Gather reads the
// link's target; a link inside a folder must stay in that folder. Gather uses
// only the fields Cache and Count of o. It rejects two paths with the same
// base name. It also rejects what Scan rejects, but accepts large files.
func Gather(ctx context.Context, paths []string, o Options) (*Folder, error) {
	f := &Folder{gathered: map[string]string{}, read: time.Now()}
	for _, p := range paths {
		if err := f.gather(ctx, p, Options{Cache: o.Cache, Count: o.Count, All: true, Large: true}); err != nil {
			return nil, fmt.Errorf("%s: %w", p, cause(err))
		}
	}
	return f, f.order()
}

// gather reads the file or folder at the local path p and adds its entries to
// f.
func (f *Folder) gather(ctx context.Context, p string, o Options) error {
	absolute, err := filepath.Abs(p)
	if err != nil {
		return err
	}
	name := filepath.Base(absolute)
	if name == string(filepath.Separator) {
		return errors.New("the root folder has no name under which it could be sent")
	}
	if other, twice := f.gathered[name]; twice {
		return fmt.Errorf("%s has the same base name", other)
	}
	start, err := filepath.EvalSymlinks(absolute)
	if err != nil {
		return err
	}
	info, err := os.Stat(start)
	if err != nil {
		return err
	}
	f.gathered[name] = start
	w := newWalk(ctx, start, start, o)
	prefix := name
	if info.IsDir() {
		f.Entries = append(f.Entries, Entry{Path: name, Kind: Directory, Mode: info.Mode().Perm()})
		err = w.enter("")
	} else {
		w.root, prefix = filepath.Dir(start), ""
		err = w.add(filepath.Base(start), fs.FileInfoToDirEntry(info))
	}
	if err == nil {
		err = w.hash()
	}
	if err != nil {
		if refused := (*RefusedError)(nil); errors.As(err, &refused) {
			refused.root = "" // suppresses the hint to exclude files in .plxignore, which Gather does not read
		}
		return err
	}
	for gone := range w.gone {
		return &ChangedError{gone}
	}
	for _, e := range w.entries {
		if prefix == "" {
			e.Path = name // if p is a symbolic link, its target may have another base name than p
		} else {
			e.Path = path.Join(prefix, e.Path)
		}
		f.Entries = append(f.Entries, e)
	}
	return nil
}

// Gathered reports whether the path p in the folder belongs to a file or
// folder that Gather has read.
func (f *Folder) Gathered(p string) bool {
	first, _, _ := strings.Cut(p, "/")
	return f.gathered[first] != ""
}

// With returns a Folder with the entries of f and those of gathered, a result
// of Gather. It returns an error if f already has an entry with the base name
// of a gathered path.
func (f *Folder) With(gathered *Folder) (*Folder, error) {
	for name := range gathered.gathered {
		if _, found := f.Find(name); found {
			return nil, fmt.Errorf("%s is in the folder already", shown(name))
		}
	}
	both := *f
	both.Entries, both.gathered = slices.Concat(f.Entries, gathered.Entries), gathered.gathered
	return &both, both.order()
}
