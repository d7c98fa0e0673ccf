//go:build linux

package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/envsync/tree"
)

// Build makes the folder of a manifest at dir, whose parent must exist. Every file
// is a copy, or a clone that shares no later write, so the store is safe from
// whatever is done in the folder. finish adds to the folder before it gets its name; nil:
// nothing is added. Build leaves a folder that exists as it is. An error leaves no folder.
func (s *Store) Build(ctx context.Context, id tree.Sum, dir string, finish func(dir string) error) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	m, err := s.Manifest(id)
	if err != nil {
		return err
	}
	temporary, err := os.MkdirTemp(filepath.Dir(dir), "."+filepath.Base(dir)+"-*")
	if err != nil {
		return err
	}
	err = (&builder{store: s, dir: temporary}).fill(ctx, m.Entries)
	if err == nil && finish != nil {
		err = finish(temporary)
	}
	if err == nil {
		err = os.Rename(temporary, dir) // a folder that exists is complete
	}
	if err != nil {
		err = errors.Join(err, os.RemoveAll(temporary))
	}
	return err
}

type builder struct {
	store   *Store
	dir     string
	noClone atomic.Bool // the file system cannot clone files
}

func (b *builder) path(e tree.Entry) string { return filepath.Join(b.dir, filepath.FromSlash(e.Path)) }

// fill makes folders, then files, then links, so that no path leads through a link.
func (b *builder) fill(ctx context.Context, entries []tree.Entry) error {
	for _, e := range entries {
		if e.Kind == tree.Directory {
			// The owner can always write and remove what is in it.
			if err := os.Mkdir(b.path(e), e.Mode|0o700); err != nil {
				return fmt.Errorf("make %s: %w", e.Path, cause(err))
			}
		}
	}
	group, working := errgroup.WithContext(ctx)
	group.SetLimit(min(runtime.GOMAXPROCS(0), writers))
	for _, e := range entries {
		if e.Kind != tree.File || working.Err() != nil {
			continue
		}
		group.Go(func() error {
			if err := b.file(e); err != nil {
				return fmt.Errorf("make %s: %w", e.Path, cause(err))
			}
			return nil
		})
	}
	if err := cmp.Or(group.Wait(), context.Cause(ctx)); err != nil {
		return err
	}
	for _, e := range entries {
		if e.Kind.IsLink() {
			if err := os.Symlink(e.Target, b.path(e)); err != nil {
				return fmt.Errorf("make %s: %w", e.Path, cause(err))
			}
		}
	}
	return nil
}

func (b *builder) file(e tree.Entry) error {
	if !b.store.has(e.Sum, e.Size) {
		return fmt.Errorf("its content is not in %s any more: launch again", b.store.dir)
	}
	from, err := openFile(b.store.Path(e.Sum), unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(from) // only read
	to, err := openFile(b.path(e), unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = b.fileTo(to, from, e)
	if failed := unix.Close(to); err == nil {
		err = failed
	}
	return err
}

func (b *builder) fileTo(to, from int, e tree.Entry) error {
	cloned := false
	if e.Size > 0 && !b.noClone.Load() {
		cloned = unix.IoctlFileClone(to, from) == nil
		b.noClone.Store(!cloned)
	}
	if !cloned {
		if err := copyAll(to, from, e.Size); err != nil {
			return err
		}
	}
	return unix.Fchmod(to, uint32(e.Mode)) // not at creation, where the umask counts
}
