package logs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// Dir keeps the bytes of each source in a file of its own, unchanged:
// worker-3.stdout, worker-3.stderr. A line stands for bytes that the host has dropped. Files that exist are left alone: when the
// folder has logs of an earlier job, all names of this one end in .2, .3 and
// so on. Any goroutine may use it.
type Dir struct {
	mu     sync.Mutex
	path   string
	run    int // number of this job among those with logs in the folder; 1 for the first
	files  map[Source]*os.File
	closed bool
}

// NewDir makes the folder when it is not there.
func NewDir(path string) (*Dir, error) {
	if err := os.MkdirAll(path, 0o777); err != nil {
		return nil, fmt.Errorf("log folder: %w", err)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("log folder: %w", err)
	}
	d := &Dir{path: path, run: 1, files: map[Source]*os.File{}}
	for _, e := range entries {
		d.run = max(d.run, runOf(e.Name())+1)
	}
	return d, nil
}

// runSuffix ends the names of files of the second job in a folder and later ones.
var runSuffix = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\.([2-9]|[1-9][0-9]{1,8})$`) })

// runOf returns which job of the folder wrote a file, 0 for other files.
func runOf(name string) (run int) {
	stem, run := name, 1
	if found := runSuffix().FindStringSubmatch(name); found != nil {
		stem = strings.TrimSuffix(name, found[0])
		run, _ = strconv.Atoi(found[1]) // digits, not too many
	}
	if _, ok := sourceOf(stem); !ok {
		return 0
	}
	return run
}

// File returns the path of the file that keeps src.
func (d *Dir) File(src Source) string {
	name := src.file()
	if d.run > 1 {
		name += "." + strconv.Itoa(d.run)
	}
	return filepath.Join(d.path, name)
}

// Chunk appends c's bytes to the file of its source, in the order of the
// calls; what was received twice is the caller's to drop, with a [Cursor].
// After an error the file holds a part of the bytes at most.
func (d *Dir) Chunk(host string, c Chunk) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	f, err := d.open(c.Source)
	if err == nil {
		_, err = f.Write(c.kept())
	}
	if err != nil {
		return fmt.Errorf("log file of %s on host %s: %w", c.Source, host, err)
	}
	return nil
}

// open returns the source's file, new at its first chunk.
func (d *Dir) open(src Source) (*os.File, error) {
	if d.closed {
		return nil, os.ErrClosed
	}
	if f := d.files[src]; f != nil {
		return f, nil
	}
	if err := src.check(); err != nil {
		return nil, err
	}
	// O_EXCL: a file that another job made meanwhile is not ours to change.
	f, err := os.OpenFile(d.File(src), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return nil, err
	}
	d.files[src] = f
	return f, nil
}

// Close closes the files. It may be called again.
func (d *Dir) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var err error
	for _, f := range d.files {
		err = errors.Join(err, f.Close())
	}
	d.files, d.closed = nil, true
	return err
}
