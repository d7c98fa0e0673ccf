package data

import (
	"fmt"
	"io"
	"os"
	"sync"
)

// recordFiles opens the files of a dataset of records on demand and limits the
// number of files that stay open.
type recordFiles struct {
	most int // largest number of files that stay open while no read uses them

	unpacked *os.File // temporary file with the decompressed content of all gzip files, one after the other; nil if no file was compressed
	size     int64    // length of the file unpacked, in bytes

	mu   sync.Mutex
	idle []*os.File // open files that no read uses, the most recently used last; guarded by mu
}

// acquire returns an open file for exclusive use until the caller passes it to
// release.
func (r *recordFiles) acquire(path string) (*os.File, error) {
	r.mu.Lock()
	for i := len(r.idle) - 1; i >= 0; i-- {
		if file := r.idle[i]; file.Name() == path {
			r.idle = append(r.idle[:i], r.idle[i+1:]...)
			r.mu.Unlock()
			return file, nil
		}
	}
	r.mu.Unlock() // unlock before opening, which may take long on a network file system
	return os.Open(path)
}

// release makes a file available to acquire again. If more than r.most files
// are idle, release closes the least recently used one.
func (r *recordFiles) release(file *os.File) {
	r.mu.Lock()
	r.idle = append(r.idle, file)
	var old *os.File
	if len(r.idle) > r.most {
		old, r.idle = r.idle[0], r.idle[1:]
	}
	r.mu.Unlock()
	if old != nil {
		old.Close() // the error is ignored: no data can be lost in a file opened for reading
	}
}

// close closes all idle files and the temporary file.
func (r *recordFiles) close() {
	for _, file := range append(r.idle, r.unpacked) {
		file.Close() // errors are ignored: no data can be lost, because nothing reads these files any more; unpacked may be nil
	}
}

// unpack decompresses the rest of from, appends it to the temporary file, and
// returns a reader for the appended part. The temporary file is deleted right
// after it is created, so that it disappears when it is closed.
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

// reopened is an io.ReaderAt that opens its file for each read. It reuses a
// file that an earlier read has left open.
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
