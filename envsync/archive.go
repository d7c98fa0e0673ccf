package envsync

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
)

// archiveTime is every entry's time, so that equal files give equal archives
// whenever they were made. It is the earliest that zip files can hold, which
// Python's tools insist on.
var archiveTime = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// ArchiveBlob packs files and folders, each under its base name, into a blob
// that Unpack unpacks. Equal names, contents and permission bits give the same
// blob. A path that is itself a symbolic link stands for what it points to;
// inside a folder a link is kept, and refused if it may lead out of the folder.
// Sockets, devices and pipes are refused, and so are two paths with one base
// name. The archive lies in a temporary file until Close.
func ArchiveBlob(paths []string) (Blob, error) {
	f, err := os.CreateTemp("", "plx-archive-*")
	if err != nil {
		return Blob{}, fmt.Errorf("pack files: %w", err)
	}
	name := f.Name()
	remove := sync.OnceValue(func() error { return os.Remove(name) })
	hash := sha256.New()
	err = pack(io.MultiWriter(f, hash), paths)
	size, failed := f.Seek(0, io.SeekCurrent)
	if err = errors.Join(err, failed, f.Close()); err != nil {
		return Blob{}, errors.Join(err, remove())
	}
	label := fmt.Sprintf("%d files and folders", len(paths))
	if len(paths) == 1 {
		label = filepath.Base(filepath.Clean(paths[0]))
	}
	return Blob{
		Name: label, Sum: hex.EncodeToString(hash.Sum(nil)), Size: size, Mode: 0o600,
		open: func() (io.ReadCloser, error) { return os.Open(name) }, remove: remove,
	}, nil
}

func pack(w io.Writer, paths []string) error {
	// One goroutine: more of them cut the stream at other places.
	z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		return fmt.Errorf("pack files: %w", err)
	}
	t := tar.NewWriter(z)
	seen := map[string]string{}
	for _, p := range paths {
		if err = packPath(t, p, seen); err != nil {
			break
		}
	}
	if err != nil {
		return errors.Join(err, z.Close())
	}
	return errors.Join(t.Close(), z.Close())
}

// packPath packs one of the user's paths with all that is under it.
func packPath(t *tar.Writer, p string, seen map[string]string) error {
	absolute, err := filepath.Abs(p)
	if err != nil {
		return fmt.Errorf("pack %s: %w", p, err)
	}
	base := filepath.Base(absolute)
	if base == string(filepath.Separator) {
		return fmt.Errorf("pack %s: the root folder has no name to unpack it under", p)
	}
	if other, twice := seen[base]; twice {
		return fmt.Errorf("pack %s: %s has the same base name", p, other)
	}
	seen[base] = p
	// The user's path is resolved before the walk, which follows no link.
	start, err := filepath.EvalSymlinks(absolute)
	if err != nil {
		return fmt.Errorf("pack %s: %w", p, rootCause(err))
	}
	return filepath.WalkDir(start, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("pack %s: %w", file, rootCause(err))
		}
		inside, err := filepath.Rel(start, file)
		if err != nil {
			return fmt.Errorf("pack %s: %w", file, err)
		}
		if err := packEntry(t, file, filepath.ToSlash(inside), base, entry); err != nil {
			return fmt.Errorf("pack %s: %w", file, rootCause(err))
		}
		return nil
	})
}

// packEntry packs one entry, which is at the path inside under the folder
// base.
func packEntry(t *tar.Writer, file, inside, base string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	h := &tar.Header{
		Name: path.Join(base, inside), Mode: int64(info.Mode().Perm()), ModTime: archiveTime,
		Format: tar.FormatPAX,
	}
	switch mode := info.Mode(); {
	case mode.IsDir():
		h.Typeflag = tar.TypeDir
		h.Name += "/"
	case mode.IsRegular():
		h.Typeflag, h.Size = tar.TypeReg, info.Size()
		return packFile(t, h, file)
	case mode&fs.ModeSymlink != 0:
		h.Typeflag, h.Mode = tar.TypeSymlink, 0o777
		if h.Linkname, err = os.Readlink(file); err != nil {
			return err
		}
		if !StaysInside(inside, h.Linkname) {
			return fmt.Errorf("the link to %q may lead out of the folder: put what it points to in its place", h.Linkname)
		}
	default:
		return fmt.Errorf("it is a %s, which cannot be copied", Special(mode))
	}
	return t.WriteHeader(h)
}

func packFile(t *tar.Writer, h *tar.Header, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close() // opened for reading: nothing to lose
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	n, err := io.Copy(t, f)
	if errors.Is(err, tar.ErrWriteTooLong) || err == nil && n < h.Size {
		return errors.New("it changed while it was read")
	}
	return err
}

// StaysInside says whether a link at the path link, relative to a folder,
// points into that folder. After its first words ".." it may have no other:
// what "a/.." means depends on whether a is a link itself. So it holds for any
// set of such links in folders that are none.
func StaysInside(link, target string) bool {
	if target == "" || path.IsAbs(target) || strings.ContainsRune(target, 0) {
		return false
	}
	depth, down := strings.Count(path.Clean(link), "/"), false
	for word := range strings.SplitSeq(target, "/") {
		switch word {
		case "", ".":
		case "..":
			if depth--; down || depth < 0 {
				return false
			}
		default:
			down = true
		}
	}
	return true
}

// Special names the kind of a file that is neither a plain file, a folder nor a link.
func Special(mode fs.FileMode) string {
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

// Bounds of an archive. A damaged one reaches them early.
const (
	maxEntries = 4 << 20
	maxBytes   = 1 << 42
	maxName    = 4096
	maxWindow  = 64 << 20 // memory of the decoder, in bytes
)

// Unpack unpacks what ArchiveBlob packed into the folder dir, which must
// exist. It refuses every entry that is absolute, that leaves dir by ".." or
// lies behind a link, that is there already, and that is no file, folder or
// link; and every link that may lead out of the folder it was packed with.
// What it has unpacked before an error stays. ctx is looked at all the time.
func Unpack(ctx context.Context, r io.Reader, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	defer root.Close() // holds no data
	z, err := zstd.NewReader(&contextReader{ctx, r}, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	defer z.Close()
	u := &unpacker{root: root, left: maxBytes, modes: map[string]fs.FileMode{}}
	t := tar.NewReader(&contextReader{ctx, z})
	for range maxEntries {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return u.finish()
		}
		if err != nil {
			return fmt.Errorf("unpack: damaged archive: %w", err)
		}
		if err := u.entry(t, h); err != nil {
			return fmt.Errorf("unpack %q: %w", short(h.Name), err)
		}
	}
	return fmt.Errorf("unpack: more than %d files", maxEntries)
}

type unpacker struct {
	root *os.Root // the folder to unpack into
	left int64    // bytes that the remaining files may have
	// modes are the modes of folders, by name; folders are the names in the order
	// of creation. Modes are set last, so that a read-only folder can be filled.
	modes   map[string]fs.FileMode
	folders []string
}

func (u *unpacker) entry(r io.Reader, h *tar.Header) error {
	name := path.Clean(h.Name)
	if len(h.Name) > maxName || len(h.Linkname) > maxName {
		return errors.New("its name is too long")
	}
	if strings.ContainsRune(h.Name, 0) || name == "." || !filepath.IsLocal(filepath.FromSlash(name)) {
		return errors.New("its name leads out of the folder")
	}
	if _, made := u.modes[path.Dir(name)]; path.Dir(name) != "." && !made {
		return errors.New("its folder is not in the archive")
	}
	if u.left -= max(0, h.Size); u.left < 0 || h.Size < 0 {
		return errors.New("the archive is too large")
	}
	mode := fs.FileMode(h.Mode) & fs.ModePerm
	switch h.Typeflag {
	case tar.TypeDir:
		return u.folder(name, mode)
	case tar.TypeReg:
		return u.file(r, name, h.Size, mode)
	case tar.TypeSymlink:
		return u.link(name, h.Linkname)
	}
	return errors.New("it is neither a file nor a folder nor a symbolic link")
}

func (u *unpacker) folder(name string, mode fs.FileMode) error {
	if err := u.root.Mkdir(name, 0o700); err != nil {
		return rootCause(err)
	}
	u.modes[name] = mode
	u.folders = append(u.folders, name)
	return nil
}

func (u *unpacker) file(r io.Reader, name string, size int64, mode fs.FileMode) error {
	f, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return rootCause(err)
	}
	_, err = io.CopyN(f, r, size)
	if err == nil {
		err = f.Chmod(mode) // not at creation, where the umask counts
	}
	return errors.Join(err, f.Close())
}

// link makes a link that stays inside the folder the archive's first name
// stands for, as packEntry does.
func (u *unpacker) link(name, target string) error {
	first, inside, below := strings.Cut(name, "/")
	if !below || !StaysInside(inside, target) {
		return fmt.Errorf("the link may lead out of %q", short(first))
	}
	return rootCause(u.root.Symlink(target, name))
}

// finish sets the folders' modes, the inner ones first.
func (u *unpacker) finish() error {
	for i := len(u.folders) - 1; i >= 0; i-- {
		if err := u.root.Chmod(u.folders[i], u.modes[u.folders[i]]); err != nil {
			return fmt.Errorf("unpack %q: %w", short(u.folders[i]), rootCause(err))
		}
	}
	return nil
}

// contextReader ends a copy when ctx ends.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
