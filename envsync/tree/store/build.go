//go:build linux

package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

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
	mu      sync.Mutex
	wrong   []string // files whose contents are wrong; needs mu
	gone    string   // a file whose content is not there, perhaps as it was wrong; needs mu
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
	if len(b.wrong) > 0 {
		slices.Sort(b.wrong)
		return &tree.DamagedError{Dir: b.store.dir, Files: b.wrong}
	}
	if b.gone != "" {
		return fmt.Errorf("make %s: its content is not in %s any more: launch again", b.gone, b.store.dir)
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

// file makes a file of its content, which must be right.
func (b *builder) file(e tree.Entry) error {
	from, err := openFile(b.store.Path(e.Sum), unix.O_RDONLY, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		b.mu.Lock()
		defer b.mu.Unlock()
		b.gone = e.Path
		return nil
	case unreadable(err):
		return b.damaged(e, nil)
	case err != nil:
		return err
	}
	defer unix.Close(from) // only read
	var info unix.Stat_t
	if err := again(func() error { return unix.Fstat(from, &info) }); err != nil {
		return err
	}
	if info.Mode&unix.S_IFMT != unix.S_IFREG || info.Size != e.Size {
		return b.damaged(e, &info)
	}
	to, err := openFile(b.path(e), unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = b.fileTo(to, from, e, &info)
	if failed := unix.Close(to); err == nil {
		err = failed
	}
	return err
}

func (b *builder) fileTo(to, from int, e tree.Entry, info *unix.Stat_t) error {
	cloned := false
	if e.Size > 0 && !b.noClone.Load() {
		cloned = clone(to, from) == nil
		b.noClone.Store(!cloned)
	}
	trusted, inUse := look(info)
	day, _ := foundRight(time.Unix(info.Mtim.Unix()))
	if !cloned || !trusted || day != dayOf(time.Now()) {
		sum, err := copyAll(to, from, e.Size, cloned)
		if errors.As(err, new(*readError)) || err == nil && sum != e.Sum {
			return b.damaged(e, info)
		}
		if err != nil {
			return err
		}
		if cloned || !trusted || !inUse {
			found := stampOf(time.Now())
			_ = os.Chtimes(b.store.Path(e.Sum), found, found) // if the file system cannot, it is hashed again
		}
	} else if !inUse {
		_ = b.store.has(e.Sum, e.Size) // notes the use
	}
	return unix.Fchmod(to, uint32(e.Mode)) // not at creation, where the umask counts
}

// clone makes a file that shares its bytes with another one, until one of them is written to. Tests
// replace it: few file systems can do it.
var clone = unix.IoctlFileClone

// unreadable reports whether a content cannot be opened for a reason of its own.
func unreadable(err error) bool {
	return slices.ContainsFunc([]error{
		unix.EIO, unix.EBADMSG, unix.EUCLEAN, // of the disk, or of the file system on it
		unix.EACCES, unix.EPERM, unix.ELOOP, // of what is no content of the store
	}, func(one error) bool { return errors.Is(err, one) })
}

// damaged removes a content that is wrong, so that it is sent again, and notes it. info is that of the
// file which was read, nil: none could be: another launch may have stored the right one meanwhile.
func (b *builder) damaged(e tree.Entry, info *unix.Stat_t) error {
	if err := b.store.discard(e.Sum, info); err != nil {
		return fmt.Errorf("its content in %s is damaged, and cannot be removed: %w", b.store.dir, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wrong = append(b.wrong, e.Path)
	return nil
}

// discard removes a content that is wrong, as it was when info was read; nil: it could not be.
func (s *Store) discard(sum tree.Sum, info *unix.Stat_t) error {
	var now unix.Stat_t
	err := again(func() error { return unix.Lstat(s.Path(sum), &now) })
	if errors.Is(err, fs.ErrNotExist) || err == nil && info != nil && now.Ino != info.Ino {
		return nil
	}
	return cause(os.RemoveAll(s.Path(sum)))
}
