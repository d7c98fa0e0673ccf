// Package bounded reads whole files that plx has written, up to a maximum
// size. The files are on the local machine or on a host of a job:
//
//	text, err := bounded.ReadFile(path, bounded.Record)
//
// A damaged disk or another program may have made a file larger than plx wrote
// it. ReadFile rejects such a file without allocating memory for its content.
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
	Words  = 1 << 20  // maximum size of a file with a few words, such as a secret
	Record = 64 << 20 // maximum size of a record of a job, which may have thousands of tasks
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
	defer f.Close() // opened for reading: an error of Close does not matter
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	if info.Size() <= n {
		// Allocate once. ReadFrom needs MinRead bytes of free space to find
		// the end of the file.
		text.Grow(int(info.Size()) + bytes.MinRead)
		if _, err = text.ReadFrom(io.LimitReader(f, n+1)); err != nil {
			return nil, err
		}
	}
	// Also compare the number of bytes read, because a pipe or device reports
	// size 0.
	if info.Size() > n || int64(text.Len()) > n {
		return nil, fmt.Errorf("%s has more than %d bytes: %w", path, n, ErrTooLarge)
	}
	return text.Bytes(), nil
}
