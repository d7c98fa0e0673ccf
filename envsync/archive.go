package envsync

import (
	"archive/tar"
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
	count := &counter{}
	err = pack(io.MultiWriter(f, hash, count), paths)
	if err = errors.Join(err, f.Close()); err != nil {
		return Blob{}, errors.Join(err, remove())
	}
	return Blob{
		Name: archiveName(paths), Sum: hex.EncodeToString(hash.Sum(nil)), Size: count.n, Mode: 0o600,
		open: func() (io.ReadCloser, error) { return os.Open(name) }, remove: remove,
	}, nil
}

func archiveName(paths []string) string {
	if len(paths) == 1 {
		return filepath.Base(filepath.Clean(paths[0]))
	}
	return fmt.Sprintf("%d files and folders", len(paths))
}

type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
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
		if !staysInside(inside, h.Linkname) {
			return fmt.Errorf("the link to %q may lead out of the folder: put what it points to in its place", h.Linkname)
		}
	default:
		return fmt.Errorf("it is a %s, which cannot be copied", kind(mode))
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
	switch n, err := io.Copy(t, f); {
	case errors.Is(err, tar.ErrWriteTooLong), err == nil && n < h.Size:
		return errors.New("it changed while it was read")
	default:
		return err
	}
}

// staysInside says whether a link at the path link, relative to a folder,
// points into that folder. After its first words ".." it may have no other:
// what "a/.." means depends on whether a is a link itself. So it holds for any
// set of such links in folders that are none.
func staysInside(link, target string) bool {
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

func kind(mode fs.FileMode) string {
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
