//go:build linux

package store

import (
	"crypto/sha256"
	"errors"
	"io"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/envsync/tree"
	"github.com/plx-run/plx/internal/holes"
)

// The functions in this file call the kernel directly. Package os needs about
// ten more system calls per file, and a folder may have 100,000 small files.

// again repeats call as long as it returns EINTR, and returns its final error.
func again(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// openFile opens a file with close-on-exec. It fails if the path is a symbolic
// link.
func openFile(file string, flags int, mode uint32) (fd int, err error) {
	err = again(func() error {
		fd, err = unix.Open(file, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW, mode)
		return err
	})
	return fd, err
}

// writeAll writes all of b to the file descriptor fd.
func writeAll(fd int, b []byte) error {
	for len(b) > 0 {
		n := 0
		if err := again(func() (err error) { n, err = unix.Write(fd, b); return err }); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// blocks is a pool of buffers for copying files.
var blocks = sync.Pool{New: func() any { return new([small]byte) }}

// readError wraps an error of reading a stored content, as opposed to an error
// of writing the copy.
type readError struct{ error }

// copyAll copies size bytes from the descriptor from to the descriptor to, and
// returns their SHA-256. If cloned is true, the file system has already cloned
// the bytes, and copyAll only hashes them. Copying in this process takes a
// third less time for files of a few pages than letting the kernel copy.
func copyAll(to, from int, size int64, cloned bool) (sum tree.Sum, err error) {
	block := blocks.Get().(*[small]byte)
	defer blocks.Put(block)
	hash, w := sha256.New(), holes.NewWriter(descriptor(to), 0)
	for size > 0 {
		n := 0
		err := again(func() (err error) { n, err = unix.Read(from, block[:min(size, small)]); return err })
		if err == nil && n == 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return sum, &readError{err}
		}
		if !cloned {
			if _, err := w.Write(block[:n]); err != nil {
				return sum, err
			}
		}
		hash.Write(block[:n]) // a hash never returns an error
		size -= int64(n)
	}
	return tree.Sum(hash.Sum(nil)), w.Flush()
}

// descriptor is an open file.
type descriptor int

func (d descriptor) Write(p []byte) (int, error) { return len(p), writeAll(int(d), p) }

func (d descriptor) Seek(offset int64, whence int) (int64, error) {
	return unix.Seek(int(d), offset, whence)
}

func (d descriptor) Truncate(size int64) error {
	return again(func() error { return unix.Ftruncate(int(d), size) })
}
