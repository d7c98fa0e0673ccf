package tree

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/plx-run/plx/envsync"
	"golang.org/x/sync/errgroup"
)

// Options are how a folder is read.
type Options struct {
	// Cache is a folder of this machine that keeps hashes from one Scan to the
	// next; "": none are kept.
	Cache string
	// Count is told how far the Scan is. Nil: nobody wants to know.
	Count *Count
	// All sends everything: .gitignore and .plxignore do not count.
	All bool
	// Follow sends a file in the place of a link that leads out of the folder.
	Follow bool
	// Leave returns why an entry stays behind, or "". Nil: none does.
	Leave func(p string, entry fs.DirEntry) (why string)
}

// Folder is a folder of this machine that was read.
type Folder struct {
	Manifest
	root     string            // its absolute path, without links
	contents string            // folder that has the files under their hashes, of a Folder that Take made; else ""
	excluded map[string]string // why what stays behind does, by path
	followed followed
}

// followed are the absolute paths of files that are sent in the place of links, by path.
type followed map[string]string

// file returns the absolute path of a file of the folder root.
func (f followed) file(root, p string) string {
	if file, ok := f[p]; ok {
		return file
	}
	return filepath.Join(root, filepath.FromSlash(p))
}

// Scan reads the folder dir. Files that .gitignore or .plxignore exclude stay
// behind, and so do .git, __pycache__ and virtual environments. Scan refuses a
// folder with anything that cannot be sent: a socket or device, a file of more than
// 2 GiB, a link that leads out, a name with a line feed, and what it cannot read.
func Scan(ctx context.Context, dir string, o Options) (*Folder, error) {
	root, err := filepath.Abs(dir)
	if err == nil {
		root, err = filepath.EvalSymlinks(root)
	}
	if err != nil {
		return nil, cause(err)
	}
	w := &walk{ctx: ctx, root: root, options: o, excluded: map[string]string{}, followed: followed{}, cache: openCache(o.Cache, root), begun: time.Now()}
	if !o.All {
		if w.ignore, err = newIgnore(root); err != nil {
			return nil, err
		}
	}
	if err := w.enter(""); err != nil {
		return nil, err
	}
	if err := w.hash(); err != nil {
		return nil, err
	}
	f := &Folder{Manifest: Manifest{w.entries}, root: root, excluded: w.excluded, followed: w.followed}
	slices.SortFunc(f.Entries, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
	if _, err := Decode(f.Encode()); err != nil {
		return nil, err // a bound that only the whole exceeds
	}
	_ = w.cache.save() // the next Scan hashes again
	return f, nil
}

// Find returns the entry of a path that is relative to the folder.
func (f *Folder) Find(p string) (Entry, bool) {
	i, ok := slices.BinarySearchFunc(f.Entries, path.Clean(p), func(e Entry, p string) int { return strings.Compare(e.Path, p) })
	if !ok {
		return Entry{}, false
	}
	return f.Entries[i], true
}

// file returns the path of a file of the folder on this machine.
func (f *Folder) file(e Entry) string {
	if f.contents != "" {
		return filepath.Join(f.contents, e.Sum.String())
	}
	return f.followed.file(f.root, e.Path)
}

// Root returns the absolute path of the folder on this machine.
func (f *Folder) Root() string { return f.root }

// Excluded returns why a path of the folder, or a folder that it is in, stays
// behind: a line such as ".gitignore:3". It is "" if the path is sent, or is not
// there.
func (f *Folder) Excluded(p string) string {
	for at := path.Clean(p); at != "." && at != "/"; at = path.Dir(at) {
		if why := f.excluded[at]; why != "" {
			return why
		}
	}
	return ""
}

// walk is one run of Scan.
type walk struct {
	ctx      context.Context
	root     string
	options  Options
	entries  []Entry           // as they were found
	infos    []fs.FileInfo     // of entries
	excluded map[string]string // as in Folder
	followed followed          // as in Folder
	ignore   *ignore           // nil: no file of patterns counts
	cache    *cache
	begun    time.Time
}

func (w *walk) abs(p string) string { return filepath.Join(w.root, filepath.FromSlash(p)) }

// enter reads a folder and all that is below it.
func (w *walk) enter(p string) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	entries, err := os.ReadDir(w.abs(p))
	if err != nil {
		return fmt.Errorf("%s: %w", shown(p), cause(err))
	}
	if w.ignore != nil {
		if err := w.ignore.enter(w.abs(p), p); err != nil {
			return err
		}
	}
	for _, e := range entries {
		at := path.Join(p, e.Name())
		if why := w.leaves(at, e); why != "" {
			w.excluded[at] = why
			continue
		}
		if err := w.add(at, e); err != nil {
			return err
		}
		if len(w.entries) > maxEntries {
			return fmt.Errorf("it has more than %d files", maxEntries)
		}
		if e.IsDir() {
			if err := w.enter(at); err != nil {
				return err
			}
		}
	}
	return nil
}

// leaves returns why an entry stays behind, or "".
func (w *walk) leaves(p string, found fs.DirEntry) (why string) {
	if w.ignore != nil {
		why = w.ignore.excluded(w.abs(p), p, found.IsDir())
	}
	if why == "" && w.options.Leave != nil {
		why = w.options.Leave(p, found)
	}
	return why
}

// add adds one entry; hash computes its sum.
func (w *walk) add(p string, found fs.DirEntry) error {
	info, err := w.info(p, found)
	if err != nil {
		return fmt.Errorf("%s: %w", shown(p), cause(err))
	}
	if err := checkPath(p); err != nil {
		return fmt.Errorf("%s: %w", shown(p), err)
	}
	e := Entry{Path: p, Mode: info.Mode().Perm()}
	switch mode := info.Mode(); {
	case mode.IsDir():
		e.Kind = Directory
	case mode.IsRegular():
		e.Kind, e.Size = File, info.Size()
		w.options.Count.addFound()
		if e.Size > maxFile {
			return &LargeError{Path: p, Size: e.Size}
		}
	case mode&fs.ModeSymlink != 0:
		e.Kind, e.Mode = Link, 0
		if e.Target, err = os.Readlink(w.abs(p)); err != nil {
			return fmt.Errorf("%s: %w", shown(p), cause(err))
		}
		if err := checkTarget(p, e.Target); err != nil {
			return fmt.Errorf("%s: %w", shown(p), err)
		}
	default:
		return fmt.Errorf("%s: it is a %s, which cannot be sent", shown(p), envsync.Special(mode))
	}
	w.entries, w.infos = append(w.entries, e), append(w.infos, info)
	return nil
}

// info returns what an entry is. For a link that is followed that is the file.
func (w *walk) info(p string, found fs.DirEntry) (fs.FileInfo, error) {
	if !w.options.Follow || found.Type()&fs.ModeSymlink == 0 {
		return found.Info()
	}
	target, err := os.Readlink(w.abs(p))
	if err != nil || checkTarget(p, target) == nil {
		return found.Info()
	}
	file, err := filepath.EvalSymlinks(w.abs(p))
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(file)
	if err != nil || !info.Mode().IsRegular() {
		return found.Info()
	}
	w.followed[p] = file
	return info, nil
}

// LargeError is the error of a file that is too large for a working directory.
type LargeError struct {
	Path string
	Size int64 // bytes
}

func (e *LargeError) Error() string {
	return fmt.Sprintf("%s: it has %.1f GiB, and a file may have %d GiB", shown(e.Path), float64(e.Size)/(1<<30), maxFile>>30)
}

// Hint says what to do instead.
func (e *LargeError) Hint() string {
	return fmt.Sprintf("add a line /%s to %s, and put the file where the hosts can read it", e.Path, plxFile)
}

// hash computes the sums of all files.
func (w *walk) hash() error {
	group, ctx := errgroup.WithContext(w.ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, e := range w.entries {
		if e.Kind != File {
			continue
		}
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			sum, err := w.hashFile(e, w.infos[i])
			if err != nil {
				return fmt.Errorf("%s: %w", shown(e.Path), cause(err))
			}
			w.entries[i] = e.withSum(sum)
			w.options.Count.addRead()
			return nil
		})
	}
	return group.Wait()
}

// hashFile returns the hash of a file. found is what enter has found.
func (w *walk) hashFile(e Entry, found fs.FileInfo) (sum Sum, err error) {
	if sum, ok := w.cache.sum(e.Path, found); ok {
		w.options.Count.addBytes(e.Size)
		return sum, nil
	}
	f, info, err := openFile(w.followed.file(w.root, e.Path))
	if err != nil {
		return sum, err
	}
	defer f.Close() // only read
	hash := sha256.New()
	n, err := io.Copy(io.MultiWriter(hash, byteCount{w.options.Count}), io.LimitReader(f, e.Size+1))
	if err != nil {
		return sum, err
	}
	after, err := f.Stat()
	if err != nil {
		return sum, err
	}
	before, _ := identity(info)
	if now, _ := identity(after); n != e.Size || now != before {
		return sum, errChanged
	}
	sum = Sum(hash.Sum(nil))
	w.cache.keep(e.Path, info, w.begun, sum)
	return sum, nil
}

var errChanged = errors.New("it changed while it was read: wait until nothing writes it, or exclude it in " + plxFile)

// openFlags keep an open from following a link and from waiting for a writer.
const openFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// openFile opens a regular file, and does not wait for a pipe that has taken its
// place.
func openFile(file string) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|openFlags, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errChanged
	}
	if err != nil {
		f.Close() // only read
		return nil, nil, err
	}
	return f, info, nil
}

// shown is a path as messages show it: in quotes if it is not plain.
func shown(p string) string {
	if p == "" {
		return "."
	}
	if quoted := fmt.Sprintf("%q", p); strings.ContainsAny(p, " :") || quoted != `"`+p+`"` {
		return quoted
	}
	return p
}

// cause drops the "open PATH:" that messages have already.
func cause(err error) error {
	if e := (*fs.PathError)(nil); errors.As(err, &e) {
		return e.Err
	}
	return err
}
