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

// Gather reads files and folders of this machine, wherever they lie, as one folder that has
// each under its base name. Nothing in them stays behind. A path that is itself a link
// stands for what it points to; a link in a folder must stay in that folder. Of o only
// Cache and Count are used. Gather refuses two paths with one base name, and whatever
// cannot be sent, as Scan does, but for large files.
func Gather(ctx context.Context, paths []string, o Options) (*Folder, error) {
	f := &Folder{gathered: map[string]string{}, read: time.Now()}
	for _, p := range paths {
		if err := f.gather(ctx, p, Options{Cache: o.Cache, Count: o.Count, All: true, Large: true}); err != nil {
			return nil, fmt.Errorf("%s: %w", p, cause(err))
		}
	}
	return f, f.order()
}

// gather adds one file or folder.
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
			refused.root = "" // no advice to exclude files: no file of patterns counts
		}
		return err
	}
	for gone := range w.gone {
		return &ChangedError{gone}
	}
	for _, e := range w.entries {
		if prefix == "" {
			e.Path = name // the file may have another one, to which a link points
		} else {
			e.Path = path.Join(prefix, e.Path)
		}
		f.Entries = append(f.Entries, e)
	}
	return nil
}

// Gathered reports whether a path is of what Gather has read.
func (f *Folder) Gathered(p string) bool {
	first, _, _ := strings.Cut(p, "/")
	return f.gathered[first] != ""
}

// With returns the folder with what Gather has read in it. It refuses what the folder has
// already.
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
