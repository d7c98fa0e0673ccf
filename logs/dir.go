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

// Dir writes the bytes of each source (a stream of a task) unchanged to a file
// such as worker-3.stdout or worker-3.stderr. In place of bytes that the host
// dropped, it writes one line that reports their number. A Dir does not change
// existing files. If the folder has logs of an earlier job, the names of all
// new files end in .2, .3 and so on. Its methods may be called from any
// goroutine.
type Dir struct {
	mu     sync.Mutex
	path   string
	run    int // number of this job among the jobs whose logs are in the folder; 1 for the first job
	files  map[Source]*os.File
	closed bool
}

// NewDir returns a Dir that writes to the folder path. It creates the folder
// if necessary.
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

// runSuffix matches the end of a file name that the second or a later job
// wrote, such as .2.
var runSuffix = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\.([2-9]|[1-9][0-9]{1,8})$`) })

// runOf returns the number at the end of a log file's name. It is 1 for the
// logs of the folder's first job, whose names have no number. It returns 0 for
// a file that is no log.
func runOf(name string) (run int) {
	stem, run := name, 1
	if found := runSuffix().FindStringSubmatch(name); found != nil {
		stem = strings.TrimSuffix(name, found[0])
		run, _ = strconv.Atoi(found[1]) // cannot fail: runSuffix matches at most nine digits
	}
	if _, ok := sourceOf(stem); !ok {
		return 0
	}
	return run
}

// File returns the path of the log file of src.
func (d *Dir) File(src Source) string {
	name := src.file()
	if d.run > 1 {
		name += "." + strconv.Itoa(d.run)
	}
	return filepath.Join(d.path, name)
}

// Chunk appends the bytes of c to the file of its source. The caller must
// first use a [Cursor] to remove bytes that were received twice. If Chunk
// returns an error, the file may hold only a part of the bytes.
func (d *Dir) Chunk(host string, c Chunk) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	f, err := d.open(c.Source)
	if err == nil {
		_, err = f.Write(c.fileBytes())
	}
	if err != nil {
		return fmt.Errorf("log file of %s on host %s: %w", c.Source, host, err)
	}
	return nil
}

// open returns the file of a source and creates it on the first call.
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
	// O_EXCL makes the call fail if another job has created the file since
	// NewDir read the folder.
	f, err := os.OpenFile(d.File(src), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return nil, err
	}
	d.files[src] = f
	return f, nil
}

// Close closes all files. Further calls do nothing.
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
