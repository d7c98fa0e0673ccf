//go:build linux

package supervisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/metrics"
	"github.com/plx-run/plx/trainer/summary"
)

// Limits for the TensorBoard event files of one task: maxEventFiles files, and
// in one pass maxEventReads calls of summary.ReadEvents per file.
const (
	maxEventFiles = 16
	maxEventReads = 16
)

// eventFile is a TensorBoard event file that a process of the task has or had
// open.
type eventFile struct {
	*os.File
	offset int64 // byte offset of the first record not read yet
	broken bool  // true if the file has a damaged record; it is then no longer read
}

// follow opens the TensorBoard event files that the processes of the task have
// open. The list of open files gives the files' paths, and shows to which task
// each file belongs.
func (r *reported) follow(processes []process.Process) {
	r.saving.Lock()
	defer r.saving.Unlock()
	for _, p := range processes {
		for fd, path := range process.Files(p.PID) {
			if !strings.HasPrefix(filepath.Base(path), "events.out.tfevents.") || r.events[path] != nil || len(r.events) == maxEventFiles {
				continue
			}
			// The path under /proc/PID/fd also works if the process runs in a
			// container.
			f, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/%d", p.PID, fd), os.O_RDONLY|unix.O_NONBLOCK, 0)
			if err != nil {
				continue // the process has closed the file or ended
			}
			if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
				f.Close() // the file was only read
				continue
			}
			r.events[path] = &eventFile{File: f}
		}
	}
}

// readEvents reads the new records of all event files. The caller holds
// r.saving.
func (r *reported) readEvents() (err error) {
	for path, f := range r.events {
		for n := 0; n < maxEventReads && !f.broken; n++ {
			next, failed := summary.ReadEvents(f, f.offset, r.event)
			if failed != nil {
				f.broken = true
				err = errors.Join(err, fmt.Errorf("%s: %w", path, failed))
			}
			if next == f.offset {
				break
			}
			f.offset = next
		}
	}
	return err
}

// event adds a scalar from an event file to the task's metrics. It uses the
// event's step only if the task reports steps in no other way.
func (r *reported) event(e summary.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := strings.ReplaceAll(strings.ToLower(e.Tag), " ", "_")
	sample := metrics.Sample{{Name: name, Number: metrics.Number(e.Value)}}
	if !r.stepped {
		sample = append(sample, metrics.Value{Name: metrics.Step, Number: metrics.Number(e.Step)})
	}
	at := e.Time
	if at.IsZero() {
		at = time.Now()
	}
	r.history.Add(at, sample)
	r.changed = true
}

// closeEvents closes the event files of a task that has ended.
func (r *reported) closeEvents() {
	r.saving.Lock()
	defer r.saving.Unlock()
	for path, f := range r.events {
		f.Close() // the file was only read
		delete(r.events, path)
	}
}
