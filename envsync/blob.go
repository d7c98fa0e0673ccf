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

// Progress is called whenever the sender has written a piece of a blob to a
// host's connection, or a host has received a piece from another host. sent is
// the number of bytes of the blob that have reached the host so far, total the
// size of the blob. The first call has sent == 0. Progress must not block.
type Progress func(host, blob string, sent, total int64)

// Blob is one immutable file that is sent to hosts. It may be sent to several
// hosts at once.
type Blob struct {
	// Name is a base name for messages, not a path on the host.
	Name string
	// Sum is the lower-case hexadecimal SHA-256 of the content.
	Sum string
	// Size is the length of the content in bytes.
	Size int64
	// Path is the path of the file on the local machine.
	Path string

	pack func() ([]byte, error) // compresses the content for the method Packed; computed once for all hosts
}

// FileBlob makes a Blob of a regular file, such as a program. It reads the
// file now to compute the hash; every upload reads the file again. If the file
// changes in between, the host notices and rejects it.
func FileBlob(path string) (Blob, error) {
	f, err := os.Open(path)
	if err != nil {
		return Blob{}, fmt.Errorf("read %s: %w", path, rootCause(err))
	}
	defer f.Close() // opened for reading: an error of Close does not matter
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

// Packed compresses only blobs from leastPacked to mostPacked bytes. For a
// smaller blob compression makes no difference; a larger one would take too
// much memory.
const (
	leastPacked = 64 << 10
	mostPacked  = 256 << 20
)

// Packed returns the content of b compressed with gzip, for hosts that have
// the gzip program. It returns nil if the blob is to be sent uncompressed.
func (b Blob) Packed() ([]byte, error) {
	if b.Size < leastPacked || b.Size > mostPacked {
		return nil, nil
	}
	return b.pack()
}

// compress returns the content of b compressed with gzip, or nil if that saves
// less than a tenth of the size.
func (b Blob) compress() ([]byte, error) {
	content, err := b.Open()
	if err != nil {
		return nil, fmt.Errorf("read it here: %w", err)
	}
	defer content.Close() // opened for reading: an error of Close does not matter
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

// BlobPath returns the path on a host of the blob with the given SHA-256,
// relative to the home folder.
func BlobPath(sum string) string { return ".plx/blobs/" + sum }

// rootCause removes "open PATH:" from a file error, because the callers'
// messages already name the path.
func rootCause(err error) error {
	if e, ok := err.(*fs.PathError); ok {
		return e.Err
	}
	return err
}
