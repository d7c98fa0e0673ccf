package summary

import (
	"fmt"
	"io"
	"os"
)

// file is one of the two files. Whole records wait in pending, so that no
// reader sees half a record.
type file struct {
	storage
	path    string
	pending []byte
	size    int64 // bytes written to the file
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

// add adds a whole record, which flush writes.
func (f *file) add(record []byte) { f.pending = append(f.pending, record...) }

func (f *file) flush() error {
	if len(f.pending) == 0 {
		return nil
	}
	n, err := f.Write(f.pending)
	if err != nil {
		// A full disk may have accepted part of the record. Without that part
		// the file remains readable.
		if cut := f.Truncate(f.size); n > 0 && cut != nil {
			err = fmt.Errorf("%w (and the last record stays cut: %v)", err, cut)
		}
		return fmt.Errorf("summary: %w", err)
	}
	f.size += int64(n)
	f.pending = f.pending[:0]
	return nil
}

// discard removes an empty file.
func (f *file) discard() {
	f.Close()         // nothing was written to it
	os.Remove(f.path) // an empty file harms nobody
}
