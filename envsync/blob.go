package envsync

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/klauspost/compress/gzip"

	"github.com/plx-run/plx/internal/digest"
)

// Progress is told of every piece that was handed to a host's connection, or that a host
// has taken from another one: sent of total bytes of the named blob. It is first told with sent 0.
// It must not block.
type Progress func(host, blob string, sent, total int64)

// Blob is one immutable file on its way to hosts. It may be sent to several
// hosts at once.
type Blob struct {
	// Name is a base name for messages, not a path on the host.
	Name string
	// Sum is the lower-case hexadecimal SHA-256 of the content.
	Sum string
	// Size is the length of the content in bytes.
	Size int64
	// Path is the file on this machine.
	Path string

	pack func() ([]byte, error) // makes what Packed returns, once for all hosts
}

// FileBlob makes a blob of a regular file, such as a program. The file is
// read now for its sum, and again for every upload: one that changes in
// between is noticed on the host and refused there.
func FileBlob(path string) (Blob, error) {
	f, err := os.Open(path)
	if err != nil {
		return Blob{}, fmt.Errorf("read %s: %w", path, rootCause(err))
	}
	defer f.Close() // opened for reading: nothing to lose
	info, err := f.Stat()
	if err != nil {
		return Blob{}, fmt.Errorf("read %s: %w", path, rootCause(err))
	}
	if !info.Mode().IsRegular() {
		return Blob{}, fmt.Errorf("read %s: it is not a regular file", path)
	}
	b := Blob{Name: filepath.Base(path), Path: path}
	if b.Size, b.Sum, err = digest.Of(f); err != nil {
		return Blob{}, fmt.Errorf("read %s: %w", path, rootCause(err))
	}
	b.pack = sync.OnceValues(b.compress)
	return b, nil
}

// Open opens the content for reading.
func (b Blob) Open() (io.ReadCloser, error) { return os.Open(b.Path) }

// Blobs of these sizes are compressed for hosts that have gzip. The others are too small
// for it to matter, or too large to be kept in memory.
const (
	leastPacked = 64 << 10
	mostPacked  = 256 << 20
)

// Packed returns the content of b in the format of gzip, for hosts that have that program; nil:
// they get it as it is.
func (b Blob) Packed() ([]byte, error) {
	if b.Size < leastPacked || b.Size > mostPacked {
		return nil, nil
	}
	return b.pack()
}

// compress returns the content in the format of gzip; nil: it would hardly be smaller.
func (b Blob) compress() ([]byte, error) {
	content, err := b.Open()
	if err != nil {
		return nil, fmt.Errorf("read it here: %w", err)
	}
	defer content.Close() // opened for reading: nothing to lose
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := io.Copy(z, content); err != nil {
		return nil, fmt.Errorf("read it here: %w", err)
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	if int64(out.Len()) > b.Size/10*9 {
		return nil, nil
	}
	return out.Bytes(), nil
}

// BlobPath is where the blob of a sum lies on a host, relative to the home
// folder.
func BlobPath(sum string) string { return ".plx/blobs/" + sum }

// rootCause drops the "open PATH:" that the callers' messages have already.
func rootCause(err error) error {
	if e, ok := err.(*fs.PathError); ok {
		return e.Err
	}
	return err
}
