package envsync

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Blob is one immutable file on its way to hosts. It may be sent to several
// hosts at once. Close it when no Sync needs it any more.
type Blob struct {
	// Name is for people: a base name, not a path on the host.
	Name string
	// Sum is the lower-case hexadecimal SHA-256 of the content.
	Sum string
	// Size is in bytes.
	Size int64
	// Mode is 0700 for what a host may execute and 0600 for the rest. On a
	// host every blob has 0700, since equal content is one file there.
	Mode fs.FileMode

	open   func() (io.ReadCloser, error)
	remove func() error
}

// FileBlob makes a blob of a regular file, such as a program. The file is
// read now for its sum, and again for every upload: one that changes in
// between is noticed on the host and refused there.
func FileBlob(path string) (Blob, error) {
	open := func() (io.ReadCloser, error) { return os.Open(path) }
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
	hash := sha256.New()
	size, err := io.Copy(hash, f)
	if err != nil {
		return Blob{}, fmt.Errorf("read %s: %w", path, rootCause(err))
	}
	mode := fs.FileMode(0o600)
	if info.Mode()&0o111 != 0 {
		mode = 0o700
	}
	return Blob{Name: filepath.Base(path), Sum: hex.EncodeToString(hash.Sum(nil)), Size: size, Mode: mode, open: open}, nil
}

// Close removes what the blob holds on this machine, which is nothing but for
// an archive. It may be called more than once.
func (b Blob) Close() error {
	if b.remove == nil {
		return nil
	}
	return b.remove()
}

// BlobPath is where the blob of a sum lies on a host, relative to the home
// folder.
func BlobPath(sum string) string { return blobFolder + sum }

const blobFolder = ".plx/blobs/"

// rootCause drops the "open PATH:" that the callers' messages have already.
func rootCause(err error) error {
	if e, ok := err.(*fs.PathError); ok {
		return e.Err
	}
	return err
}
