package summary

import (
	"fmt"
	"io"
	"os"
)

// file is one of the two: whole records wait in pending, so that nobody ever
// reads half of one.
type file struct {
	storage
	path    string
	pending []byte
	size    int64 // of what lies in the file
}

type storage interface {
	io.WriteCloser
	Truncate(size int64) error
}

func createFile(path string) (*file, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err
	}
	return &file{storage: f, path: path}, nil
}

func (f *file) flush() error {
	if len(f.pending) == 0 {
		return nil
	}
	n, err := f.Write(f.pending)
	if err != nil {
		// A full disk may have taken a part; without it the file can be read.
		if cut := f.Truncate(f.size); n > 0 && cut != nil {
			err = fmt.Errorf("%w (and the last record stays cut: %v)", err, cut)
		}
		return fmt.Errorf("summary: %w", err)
	}
	f.size += int64(n)
	f.pending = f.pending[:0]
	return nil
}

// discard removes a file that nothing was written to.
func (f *file) discard() {
	f.Close()
	os.Remove(f.path)
}
