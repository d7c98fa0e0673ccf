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
	// Large sends files of more than 2 GiB too.
	Large bool
	// KeepLinks sends links that lead out of the folder as they are.
	KeepLinks bool
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
	gathered map[string]string // absolute paths of what Gather has read, by names in the folder
	read     time.Time         // when Scan began
	notes    []string
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

// Scan reads the folder dir. What git or .plxignore exclude stays behind, and so do
// .git, __pycache__ and virtual environments. In a git repository git itself is asked,
// so that its tracked files and all its exclude files count. Scan refuses a folder with
// anything that cannot be sent, and names all of it: sockets and devices, files of more
// than 2 GiB, links that lead out, names with a line feed, and what it cannot read.
//
// Others may write the folder meanwhile. What vanishes is left out. Of a file that grows
// Scan takes what it found first. A file that always changes is left out, with a note.
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

// order puts the entries in their order, and refuses what only the whole exceeds: a bound.
func (f *Folder) order() error {
	slices.SortFunc(f.Entries, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
	_, err := Decode(f.Encode())
	return err
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
	first, rest, _ := strings.Cut(e.Path, "/")
	if start, ok := f.gathered[first]; ok {
		return filepath.Join(start, filepath.FromSlash(rest))
	}
	return f.followed.file(f.root, e.Path)
}

// Notes returns what the user may not expect of the folder, as lines.
func (f *Folder) Notes() []string { return f.notes }

// Excluding returns the reason, as Excluded gives it, for which most files and folders
// stay behind, apart from empty folders, git's own, and files of patterns. It is "" if none
// does.
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
	refused  []refused // what cannot be sent

	mu    sync.Mutex      // guards what hash writes of notes and gone
	notes []string        // as in Folder
	gone  map[string]bool // paths of files that are left out after all
}

// newWalk returns a walk of the folder root. cached names the cache of its hashes.
func newWalk(ctx context.Context, root, cached string, o Options) *walk {
	o.Count = cmp.Or(o.Count, new(Count))
	return &walk{ctx: ctx, root: root, options: o, excluded: map[string]string{}, followed: followed{}, gone: map[string]bool{},
		cache: openCache(o.Cache, cached), begun: time.Now()}
}

func (w *walk) abs(p string) string { return filepath.Join(w.root, filepath.FromSlash(p)) }

// enter reads a folder and all that is below it.
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
			continue // it has vanished
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

// refuse notes that something cannot be sent.
func (w *walk) refuse(p string, why error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused = append(w.refused, refused{p, why})
	if len(w.refused) > maxEntries {
		return fmt.Errorf("it has more than %d files that cannot be sent", maxEntries)
	}
	return nil
}

// leaves returns why an entry stays behind, or "".
func (w *walk) leaves(p string, found fs.DirEntry) (why string, err error) {
	if w.ignore != nil {
		why, err = w.ignore.excluded(w.abs(p), p, found.IsDir())
	}
	if why == "" && w.options.Leave != nil {
		why = w.options.Leave(p, found)
	}
	return why, err
}

// maxScanned is how many bytes a file may have, unless Options.Large is set: larger ones
// belong on a file system that the hosts share.
const maxScanned = 2 << 30

// add adds one entry; hash computes its sum.
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

// special names the kind of a file that is neither a plain file, a folder nor a link.
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

// link returns the entry of a link.
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

// hash computes the sums of all files, and refuses what cannot be sent.
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
				return w.lose(e.Path, err)
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
	_ = w.cache.save() // the next Scan hashes again
	return nil
}

// lose leaves a file out that has vanished or always changes, or refuses it.
func (w *walk) lose(p string, err error) error {
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

// leftOut is the note on a file that always changes.
func leftOut(p string) string {
	return shown(p) + " stays here: it changes all the time"
}

// hashFile returns the entry of a file with its hash. found is what enter has found.
func (w *walk) hashFile(e Entry, found fs.FileInfo) (Entry, error) {
	if known, ok := w.cache.find(e.Path, found); ok {
		w.options.Count.bytes.Add(e.Size)
		return e.with(known), nil
	}
	return readFile(e, w.followed.file(w.root, e.Path), w.options.Count, func(info fs.FileInfo, of content) {
		w.cache.keep(e.Path, info, w.begun, of)
	})
}

// attempts is how often a file is read that others write meanwhile.
const attempts = 3

// readFile returns the entry of a file with its present length and hash. keep is told the
// hash of a file that nobody writes. Of one that grows the entry has what was there first.
func readFile(e Entry, file string, count io.Writer, keep func(fs.FileInfo, content)) (Entry, error) {
	for range attempts {
		f, info, err := openFile(file)
		if err != nil {
			return e, err
		}
		sum, changed, err := hashOpen(f, info, count)
		f.Close() // only read
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

// content is what the hashes of a file are.
type content struct {
	sum    Sum
	chunks Chunks // of a large file; else empty
}

func (e Entry) with(c content) Entry {
	e.Sum, e.Chunks = c.sum, c.chunks
	return e
}

// hashed are the hashes of a file's first bytes. whole: they are those of info.Size.
type hashed struct {
	content
	whole bool
}

// hashOpen hashes the bytes that an open file had. If the file has changed, it hashes them
// again: those of a file that only grows are the same.
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

// read passes a file to w, and returns its chunks if it is large.
func read(file *io.SectionReader, w io.Writer) (chunks Chunks, n int64, err error) {
	if file.Size() >= leastChunked {
		return cut(file, w)
	}
	n, err = io.Copy(w, file)
	return "", n, err
}

// ChangedError is the error of a file that is not any more what Scan has found.
type ChangedError struct{ Path string }

func (e *ChangedError) Error() string {
	return shown(e.Path) + ": it changed while it was read: wait until nothing writes it, or exclude it in " + plxFile
}

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
		err = errors.New("it is no regular file any more")
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
