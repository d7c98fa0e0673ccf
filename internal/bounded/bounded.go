// Package bounded reads whole files that plx wrote, on this machine or on a
// host of a job, up to a maximum size:
//
//	text, err := bounded.ReadFile(path, bounded.Record)
//
// A file may be larger than plx wrote it, because a disk is damaged or another
// program wrote to it. ReadFile rejects such a file without allocating memory
// for its content.
package bounded

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// Maximum sizes of files, in bytes.
const (
	Words  = 1 << 20  // for a file with a few words, such as a secret
	Record = 64 << 20 // for a record of a job, which may have thousands of tasks
)

// ErrTooLarge reports a file that is larger than the caller's maximum.
var ErrTooLarge = errors.New("the file is damaged or was not written by plx")

// ReadFile returns the content of the file at path. If the file has more than
// n bytes, the error wraps ErrTooLarge.
func ReadFile(path string, n int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // ignore the error: closing a file that was only read loses nothing
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	if info.Size() <= n {
		text.Grow(int(info.Size()) + bytes.MinRead) // one allocation, with the free space that ReadFrom needs to find the end
		if _, err = text.ReadFrom(io.LimitReader(f, n+1)); err != nil {
			return nil, err
		}
	}
	if info.Size() > n || int64(text.Len()) > n { // also count the bytes, because a pipe or device reports size 0
		return nil, fmt.Errorf("%s has more than %d bytes: %w", path, n, ErrTooLarge)
	}
	return text.Bytes(), nil
}
