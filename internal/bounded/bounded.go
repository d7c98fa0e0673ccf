// Package bounded reads whole files that plx wrote, here or on a host:
//
//	text, err := bounded.ReadFile(path, bounded.Record)
//
// Their sizes are not to be relied on: disks decay, and programs write to wrong files. What is larger
// than such a file can be is refused before memory is taken for it.
package bounded

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// Bounds, in bytes.
const (
	Words  = 1 << 20  // of a file with a few words, such as a secret
	Record = 64 << 20 // of a record of a job, which may have thousands of tasks
)

// ErrTooLarge says that a file is larger than its bound.
var ErrTooLarge = errors.New("it is damaged, or is no file of plx")

// ReadFile reads a file of at most n bytes. A larger one is an ErrTooLarge.
func ReadFile(path string, n int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	if info.Size() <= n {
		text.Grow(int(info.Size()) + bytes.MinRead) // so that the end is read without more memory
		if _, err = text.ReadFrom(io.LimitReader(f, n+1)); err != nil {
			return nil, err
		}
	}
	if info.Size() > n || int64(text.Len()) > n { // what is no regular file has no size
		return nil, fmt.Errorf("%s has more than %d bytes: %w", path, n, ErrTooLarge)
	}
	return text.Bytes(), nil
}
