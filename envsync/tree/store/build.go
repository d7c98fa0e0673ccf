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

// Build creates the folder that the manifest id describes, at the path dir.
// The parent of dir must exist. Every file is a copy or a copy-on-write clone,
// so writes in the folder never reach the store. Before Build renames the
// folder to dir, it calls finish with the folder's temporary path; finish may
// be nil. If dir exists already, Build leaves it unchanged. After an error
// there is no folder at dir.
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
		err = os.Rename(temporary, dir) // Rename last, so that a folder at the path dir is always complete.
	}
	if err != nil {
		err = errors.Join(err, os.RemoveAll(temporary))
	}
	return err
}

type builder struct {
	store   *Store
	dir     string
	noClone atomic.Bool // true once the file system has refused to clone a file
	mu      sync.Mutex
	wrong   []string // paths of files whose content in the store is corrupt
	gone    string   // path of a file whose content is missing in the store; "" if none is missing
}

func (b *builder) path(e tree.Entry) string { return filepath.Join(b.dir, filepath.FromSlash(e.Path)) }

// fill creates folders first, then files, then symbolic links. Links come
// last, so that fill never writes through a link.
func (b *builder) fill(ctx context.Context, entries []tree.Entry) error {
	for _, e := range entries {
		if e.Kind == tree.Directory {
			// The owner's permissions are always set, so that the job can
			// write to the folder and plx can remove it.
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

// file creates the file e from its content in the store. It records a corrupt
// or missing content in b.wrong or b.gone.
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
	defer unix.Close(from) // opened for reading: an error of Close does not matter
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
	trusted, inUse := checkTimes(info)
	day, _ := verifiedDay(time.Unix(info.Mtim.Unix()))
	if !cloned || !trusted || day != dayOf(time.Now()) {
		sum, err := copyAll(to, from, e.Size, cloned)
		if errors.As(err, new(*readError)) || err == nil && sum != e.Sum {
			return b.damaged(e, info)
		}
		if err != nil {
			return err
		}
		if cloned || !trusted || !inUse {
			found := verifiedTime(time.Now())
			_ = os.Chtimes(b.store.Path(e.Sum), found, found) // if the file system cannot set times, the content is hashed again next time
		}
	} else if !inUse {
		_ = b.store.has(e.Sum, e.Size) // as a side effect, sets the content's change time to now, so that Prune keeps the content
	}
	return unix.Fchmod(to, uint32(e.Mode)) // Fchmod sets the mode, because the umask would restrict a mode passed to open
}

// clone makes a copy-on-write clone of a file (ioctl FICLONE). Tests replace
// this variable, because few file systems support cloning.
var clone = unix.IoctlFileClone

// unreadable reports whether err means that only this content is corrupt.
// Other errors, such as too many open files, are not about the content.
func unreadable(err error) bool {
	return slices.ContainsFunc([]error{
		unix.EIO, unix.EBADMSG, unix.EUCLEAN, // the disk or the file system is corrupt
		unix.EACCES, unix.EPERM, unix.ELOOP, // the path is not a file that the store has written
	}, func(one error) bool { return errors.Is(err, one) })
}

// damaged removes the corrupt content of the file e from the store, so that it
// is sent again, and adds e to b.wrong. info describes the stored file that
// was read. It is nil if the file could not be opened.
func (b *builder) damaged(e tree.Entry, info *unix.Stat_t) error {
	if err := b.store.discard(e.Sum, info); err != nil {
		return fmt.Errorf("its content in %s is damaged, and cannot be removed: %w", b.store.dir, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wrong = append(b.wrong, e.Path)
	return nil
}

// discard removes a corrupt content, unless another process has replaced the
// file since info was read. If info is nil, discard removes the content in any
// case.
func (s *Store) discard(sum tree.Sum, info *unix.Stat_t) error {
	var now unix.Stat_t
	err := again(func() error { return unix.Lstat(s.Path(sum), &now) })
	if errors.Is(err, fs.ErrNotExist) || err == nil && info != nil && now.Ino != info.Ino {
		return nil
	}
	return cause(os.RemoveAll(s.Path(sum)))
}
