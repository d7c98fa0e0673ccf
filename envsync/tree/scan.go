package tree

import (
	"cmp"
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
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// Options control how Scan reads a folder.
type Options struct {
	// Cache is a local folder that stores file hashes between calls of Scan.
	// "" means that hashes are not stored.
	Cache string
	// Count receives the progress of the scan. nil means that the progress is
	// not counted.
	Count *Count
	// All includes every file: Scan ignores .gitignore and .plxignore.
	All bool
	// Follow replaces a symbolic link that points to a file outside the folder
	// by that file.
	Follow bool
	// Large permits files of more than 2 GiB.
	Large bool
	// KeepLinks copies symbolic links that point out of the folder unchanged,
	// instead of rejecting them.
	KeepLinks bool
	// Leave returns why Scan must exclude the entry p, or "" to send the
	// entry. A nil Leave excludes no entry.
	Leave func(p string, entry fs.DirEntry) (why string)
}

// Folder is a local folder that Scan, Gather or Download has read. It contains
// the manifest and the places of the files' contents.
type Folder struct {
	Manifest
	root     string            // absolute path of the folder, with symbolic links resolved
	contents string            // folder that contains each file under its SHA-256, for a Folder returned by Download; "" for other Folders
	excluded map[string]string // maps the path of each entry that is not sent to the reason
	followed followed
	gathered map[string]string // maps base names to the absolute local paths that Gather has read under these names
	read     time.Time         // when Scan or Gather began
	notes    []string
}

// followed maps the path of a symbolic link to the absolute path of the file
// that is sent instead of the link because Options.Follow is set.
type followed map[string]string

// file returns the absolute path of the file whose content is sent for the
// path p in the folder root.
func (f followed) file(root, p string) string {
	if file, ok := f[p]; ok {
		return file
	}
	return filepath.Join(root, filepath.FromSlash(p))
}

// Scan reads the folder dir and hashes its files. It excludes files that
// .gitignore or .plxignore match, .git, __pycache__ and virtual environments.
// In a git repository Scan asks git, so files that git tracks are included and
// all of git's exclude files apply. Scan returns a RefusedError that lists
// everything that cannot be sent: sockets and devices, files of more than 2
// GiB, links that point out of the folder, names with a line feed, and
// unreadable files.
//
// Other processes may write to the folder during the scan. Scan omits files
// that are deleted during the scan. If a file grows, Scan uses the length that
// it found first. Scan omits a file that changes during every attempt to read
// it, and adds a note.
func Scan(ctx context.Context, dir string, o Options) (*Folder, error) {
	root, err := filepath.Abs(dir)
	if err == nil {
		root, err = filepath.EvalSymlinks(root)
	}
	if err != nil {
		return nil, cause(err)
	}
	w := newWalk(ctx, root, root, o)
	if !o.All {
		if w.ignore, err = newIgnore(ctx, root); err != nil {
			return nil, err
		}
		defer w.ignore.close()
	}
	if err := w.enter(""); err != nil {
		return nil, err
	}
	if err := w.hash(); err != nil {
		return nil, err
	}
	f := &Folder{Manifest: Manifest{w.entries}, root: root, excluded: w.excluded, followed: w.followed, read: w.begun, notes: w.notes}
	if w.ignore != nil {
		f.notes = append(w.ignore.notes, f.notes...)
	}
	return f, f.order()
}

// order sorts the entries by path, then checks the limits that apply to the
// whole manifest.
func (f *Folder) order() error {
	slices.SortFunc(f.Entries, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
	_, err := Decode(f.Encode())
	return err
}

// Find returns the entry for the path p, which is relative to the folder, and
// whether there is one.
func (f *Folder) Find(p string) (Entry, bool) {
	i, ok := slices.BinarySearchFunc(f.Entries, path.Clean(p), func(e Entry, p string) int { return strings.Compare(e.Path, p) })
	if !ok {
		return Entry{}, false
	}
	return f.Entries[i], true
}

// file returns the local path of the content of the file e.
func (f *Folder) file(e Entry) string {
	if f.contents != "" {
		return filepath.Join(f.contents, e.Sum.String())
	}
	first, rest, _ := strings.Cut(e.Path, "/")
	if start, ok := f.gathered[first]; ok {
		return filepath.Join(start, filepath.FromSlash(rest))
	}
	return f.followed.file(f.root, e.Path)
}

// Notes returns lines to print for the user, such as that a file was omitted
// because it changed all the time.
func (f *Folder) Notes() []string { return f.notes }

// Excluding returns the most frequent reason for which files and folders are
// excluded, such as ".gitignore:3". It does not count empty folders, .git,
// .gitignore and .plxignore. It returns "" if nothing is excluded.
func (f *Folder) Excluding() string {
	count := map[string]int{}
	most := ""
	for p, why := range f.excluded {
		in, err := os.ReadDir(filepath.Join(f.root, filepath.FromSlash(p)))
		if err == nil && len(in) == 0 || slices.Contains([]string{".git", gitFile, plxFile}, path.Base(p)) {
			continue
		}
		count[why]++
		if most == "" || count[why] > count[most] || count[why] == count[most] && why < most {
			most = why
		}
	}
	return most
}

// Root returns the absolute path of the folder on the local machine.
func (f *Folder) Root() string { return f.root }

// Excluded returns why the path p is not sent because p or one of its parent
// folders is excluded: a string such as ".gitignore:3". It returns "" if p is
// sent or does not exist.
func (f *Folder) Excluded(p string) string {
	for at := path.Clean(p); at != "." && at != "/"; at = path.Dir(at) {
		if why := f.excluded[at]; why != "" {
			return why
		}
	}
	return ""
}

// walk is the state of one call of Scan.
type walk struct {
	ctx      context.Context
	root     string
	options  Options
	entries  []Entry           // entries found so far, in the order in which Scan found them
	infos    []fs.FileInfo     // information about each file, with the same indices as entries
	excluded map[string]string // maps the path of each entry that is not sent to the reason
	followed followed          // files that replace symbolic links
	ignore   *ignore           // exclude rules; nil: .gitignore and .plxignore do not apply
	cache    *cache
	begun    time.Time
	refused  []refused // entries that cannot be sent; guarded by mu while hash runs

	mu    sync.Mutex      // guards refused, notes and gone while the goroutines of hash run
	notes []string        // notes for the user, which Folder.Notes returns
	gone  map[string]bool // paths of files that are omitted because they were deleted or kept changing
}

// newWalk returns a walk of the folder root. The parameter cached is the path
// that identifies the folder in the hash cache of o.Cache.
func newWalk(ctx context.Context, root, cached string, o Options) *walk {
	o.Count = cmp.Or(o.Count, new(Count))
	return &walk{ctx: ctx, root: root, options: o, excluded: map[string]string{}, followed: followed{}, gone: map[string]bool{},
		cache: openCache(o.Cache, cached), begun: time.Now()}
}

func (w *walk) abs(p string) string { return filepath.Join(w.root, filepath.FromSlash(p)) }

// enter reads the folder p and, recursively, its subfolders, and appends their
// entries to w.entries.
func (w *walk) enter(p string) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	entries, err := os.ReadDir(w.abs(p))
	switch {
	case err == nil:
	case p == "":
		return fmt.Errorf("%s: %w", shown(p), cause(err))
	case !errors.Is(err, fs.ErrNotExist):
		return w.refuse(p, cause(err))
	}
	if w.ignore != nil {
		if err := w.ignore.enter(w.ctx, w.abs(p), p); err != nil {
			return err
		}
	}
	for _, e := range entries {
		at := path.Join(p, e.Name())
		why, err := w.leaves(at, e)
		if err != nil {
			return err
		}
		if why != "" {
			w.excluded[at] = why
			continue
		}
		if err := w.add(at, e); errors.Is(err, fs.ErrNotExist) {
			continue // another process deleted the entry after ReadDir had listed it
		} else if err != nil {
			if err := w.refuse(at, err); err != nil {
				return err
			}
			continue
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

// refuse records that the entry p cannot be sent, and why. It returns an error
// if too many entries were refused.
func (w *walk) refuse(p string, why error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused = append(w.refused, refused{p, why})
	if len(w.refused) > maxEntries {
		return fmt.Errorf("it has more than %d files that cannot be sent", maxEntries)
	}
	return nil
}

// leaves returns why the entry p is excluded, or "" if it is sent.
func (w *walk) leaves(p string, found fs.DirEntry) (why string, err error) {
	if w.ignore != nil {
		why, err = w.ignore.excluded(w.abs(p), p, found.IsDir())
	}
	if why == "" && w.options.Leave != nil {
		why = w.options.Leave(p, found)
	}
	return why, err
}

// maxScanned is the maximum size in bytes of a file unless Options.Large is
// set. Larger files belong on a file system that the hosts share.
const maxScanned = 2 << 30

// add appends the entry p to w.entries. The entry of a file has no hash yet;
// the method hash computes it later.
func (w *walk) add(p string, found fs.DirEntry) error {
	info, err := w.info(p, found)
	if err != nil {
		return cause(err)
	}
	if err := checkPath(p); err != nil {
		return err
	}
	e := Entry{Path: p, Mode: info.Mode().Perm()}
	switch mode := info.Mode(); {
	case mode.IsDir():
		e.Kind = Directory
	case mode.IsRegular():
		e.Kind, e.Size = File, info.Size()
		w.options.Count.found.Add(1)
		if e.Size > maxScanned && !w.options.Large {
			return fmt.Errorf("it has %.1f GiB, and a file may have %d GiB: put it where the hosts can read it", float64(e.Size)/(1<<30), maxScanned>>30)
		}
	case mode&fs.ModeSymlink != 0:
		if e, err = w.link(p); err != nil {
			return err
		}
	default:
		return fmt.Errorf("it is a %s, which cannot be sent", special(mode))
	}
	w.entries, w.infos = append(w.entries, e), append(w.infos, info)
	return nil
}

// special returns a word for the type of a file that is not a regular file,
// folder or symbolic link.
func special(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeSocket != 0:
		return "socket"
	case mode&fs.ModeNamedPipe != 0:
		return "named pipe"
	case mode&fs.ModeDevice != 0:
		return "device"
	}
	return "special file"
}

// link returns the entry for the symbolic link p. It returns an error if the
// link points out of the folder and KeepLinks is not set.
func (w *walk) link(p string) (e Entry, err error) {
	e = Entry{Path: p, Kind: Link}
	if e.Target, err = os.Readlink(w.abs(p)); err != nil {
		return e, cause(err)
	}
	if err = checkTarget(p, e.Target); err != nil && w.options.KeepLinks {
		e.Kind, err = Outside, checkName(e.Target)
	}
	return e, err
}

// info returns the file information of an entry. If Options.Follow replaces a
// symbolic link by a file, info returns the information of that file and
// records the file in w.followed.
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

// hash computes the hashes of all files in parallel. It returns a RefusedError
// if any entry cannot be sent.
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
			read, err := w.hashFile(e, w.infos[i])
			if err != nil {
				return w.dropFile(e.Path, err)
			}
			w.entries[i] = read
			w.options.Count.read.Add(1)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	w.entries = slices.DeleteFunc(w.entries, func(e Entry) bool { return w.gone[e.Path] })
	if len(w.refused) > 0 {
		slices.SortFunc(w.refused, func(a, b refused) int { return strings.Compare(a.path, b.path) })
		return &RefusedError{root: w.root, all: w.refused}
	}
	_ = w.cache.save() // an error only means that the next Scan hashes the files again
	return nil
}

// dropFile handles a file that could not be hashed. It omits a file that was
// deleted or kept changing. It records any other file as one that cannot be
// sent.
func (w *walk) dropFile(p string, err error) error {
	always := errors.As(err, new(*ChangedError))
	if !always && !errors.Is(err, fs.ErrNotExist) {
		return w.refuse(p, cause(err))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone[p] = true
	if always {
		w.notes = append(w.notes, leftOut(p))
	}
	return nil
}

// leftOut returns the note for a file that was omitted because it changed on
// every attempt to read it.
func leftOut(p string) string {
	return shown(p) + " stays here: it changes all the time"
}

// hashFile returns the entry e with its content hash, which it takes from the
// cache if possible. The parameter found is the information that the walk of
// the folder has read about the file.
func (w *walk) hashFile(e Entry, found fs.FileInfo) (Entry, error) {
	if known, ok := w.cache.find(e.Path, found); ok {
		w.options.Count.bytes.Add(e.Size)
		return e.with(known), nil
	}
	return readFile(e, w.followed.file(w.root, e.Path), w.options.Count, func(info fs.FileInfo, of content) {
		w.cache.keep(e.Path, info, w.begun, of)
	})
}

// attempts is the maximum number of times that readFile reads a file that
// other processes keep changing.
const attempts = 3

// readFile hashes a file and returns its entry with the present length and
// hash. If the file did not change during the read, readFile calls keep, which
// may cache the hash. If the file grows, the entry describes the length that
// readFile saw first.
func readFile(e Entry, file string, count io.Writer, keep func(fs.FileInfo, content)) (Entry, error) {
	for range attempts {
		f, info, err := openFile(file)
		if err != nil {
			return e, err
		}
		sum, changed, err := hashOpen(f, info, count)
		f.Close() // opened for reading: an error of Close does not matter
		if err != nil {
			return e, err
		}
		if !changed {
			keep(info, sum.content)
		}
		if sum.whole {
			e.Size = info.Size()
			return e.with(sum.content), nil
		}
	}
	return e, &ChangedError{e.Path}
}

// content is a file's SHA-256 and, for a large file, its chunks.
type content struct {
	sum    Sum
	chunks Chunks // chunks of the file if it has at least leastChunked bytes; empty for a smaller file
}

func (e Entry) with(c content) Entry {
	e.Sum, e.Chunks = c.sum, c.chunks
	return e
}

// hashed contains the hashes of the first bytes of a file. whole is true if
// these bytes are the whole file as it was when opened, and did not change
// during the read.
type hashed struct {
	content
	whole bool
}

// hashOpen hashes the first info.Size() bytes of an open file. If the file has
// changed since it was opened, hashOpen hashes the same bytes again: equal
// hashes mean that the file only grew.
func hashOpen(f *os.File, info fs.FileInfo, count io.Writer) (h hashed, changed bool, err error) {
	for {
		hash := sha256.New()
		chunks, n, err := read(io.NewSectionReader(f, 0, info.Size()), io.MultiWriter(hash, count))
		if err != nil {
			return h, changed, err
		}
		after, err := f.Stat()
		if err != nil {
			return h, changed, err
		}
		sum := Sum(hash.Sum(nil))
		before, _ := identity(info)
		now, _ := identity(after)
		h.whole = n == info.Size() && (now == before || changed && sum == h.sum)
		if h.content = (content{sum, chunks}); h.whole || changed || n != info.Size() {
			return h, now != before, nil
		}
		changed, count = true, io.Discard
	}
}

// read copies a file to w. It returns the number of bytes and, for a large
// file, the file's chunks.
func read(file *io.SectionReader, w io.Writer) (chunks Chunks, n int64, err error) {
	if file.Size() >= leastChunked {
		return splitChunks(file, w)
	}
	n, err = io.Copy(w, file)
	return "", n, err
}

// ChangedError is the error for a file whose content has changed since Scan
// read it.
type ChangedError struct{ Path string }

func (e *ChangedError) Error() string {
	return shown(e.Path) + ": it changed while it was read: wait until nothing writes it, or exclude it in " + plxFile
}

// openFlags let an open fail on a symbolic link, and keep it from blocking on
// a named pipe that has no writer.
const openFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// openFile opens a regular file. If a named pipe has replaced the file,
// openFile returns an error instead of blocking.
func openFile(file string) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|openFlags, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is no regular file any more")
	}
	if err != nil {
		f.Close() // opened for reading: an error of Close does not matter
		return nil, nil, err
	}
	return f, info, nil
}

// shown returns a path for messages, in quotes if it contains spaces, colons
// or unprintable characters. The path "" is shown as ".".
func shown(p string) string {
	if p == "" {
		return "."
	}
	if quoted := fmt.Sprintf("%q", p); strings.ContainsAny(p, " :") || quoted != `"`+p+`"` {
		return quoted
	}
	return p
}

// cause removes "open PATH:" from a file error, because the messages already
// name the path.
func cause(err error) error {
	if e := (*fs.PathError)(nil); errors.As(err, &e) {
		return e.Err
	}
	return err
}
