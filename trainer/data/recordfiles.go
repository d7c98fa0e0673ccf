package data

import (
	"fmt"
	"io"
	"os"
	"sync"
)

// recordFiles are the open files of a dataset of records. However many files it has, few
// are open at a time.
type recordFiles struct {
	most int // unused files that stay open

	unpacked *os.File // what was in packed files, one after the other; nil: none is packed
	size     int64    // of unpacked

	mu   sync.Mutex
	idle []*os.File // open and unused, the one that was used last at the end
}

// acquire returns an open file, which nobody else uses until it is released.
func (r *recordFiles) acquire(path string) (*os.File, error) {
	r.mu.Lock()
	for i := len(r.idle) - 1; i >= 0; i-- {
		if file := r.idle[i]; file.Name() == path {
			r.idle = append(r.idle[:i], r.idle[i+1:]...)
			r.mu.Unlock()
			return file, nil
		}
	}
	r.mu.Unlock() // opening may take long on a file system of the network
	return os.Open(path)
}

// release keeps a file open, and closes the one that was not used for the longest time if
// there are too many.
func (r *recordFiles) release(file *os.File) {
	r.mu.Lock()
	r.idle = append(r.idle, file)
	var old *os.File
	if len(r.idle) > r.most {
		old, r.idle = r.idle[0], r.idle[1:]
	}
	r.mu.Unlock()
	if old != nil {
		old.Close() // opened for reading: nothing to lose
	}
}

// close closes what is open.
func (r *recordFiles) close() {
	for _, file := range append(r.idle, r.unpacked) {
		file.Close() // opened for reading, or nobody reads it; nil is none
	}
}

// unpack writes what follows to the end of a temporary file that has no name any more.
func (r *recordFiles) unpack(from *source) (*io.SectionReader, error) {
	if r.unpacked == nil {
		file, err := os.CreateTemp("", "plx-records-")
		if err != nil {
			return nil, fmt.Errorf("%s: unpack: %w", from.name, err)
		}
		r.unpacked = file
		if err := os.Remove(file.Name()); err != nil {
			return nil, fmt.Errorf("%s: unpack: %w", from.name, err)
		}
	}
	n, err := io.Copy(io.NewOffsetWriter(r.unpacked, r.size), io.LimitReader(from, maxBytes+1))
	if err == nil && n > maxBytes {
		err = from.fault("more than the %d bytes that are unpacked at most", int64(maxBytes))
	}
	part := io.NewSectionReader(r.unpacked, r.size, n)
	r.size += n
	return part, err
}

// reopened is a file that is open while something reads it, and for a while after.
type reopened struct {
	files *recordFiles
	path  string
}

func (f reopened) ReadAt(b []byte, at int64) (int, error) {
	file, err := f.files.acquire(f.path)
	if err != nil {
		return 0, err
	}
	defer f.files.release(file)
	return file.ReadAt(b, at)
}
