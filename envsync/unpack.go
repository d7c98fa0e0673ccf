package envsync

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
)

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
	root *os.Root
	left int64 // bytes that may still come
	// modes are those of folders, in the order made. They are set last, so
	// that a read-only folder can be filled.
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
	if !below || !staysInside(inside, target) {
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
