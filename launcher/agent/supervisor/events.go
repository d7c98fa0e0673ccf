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

// Bounds of the event files of TensorBoard that are followed for a task: their number, and
// how often one is read at a time, see summary.ReadEvents.
const (
	maxEventFiles = 16
	maxEventReads = 16
)

// eventFile is an event file that a process of a task has open, or had.
type eventFile struct {
	*os.File
	offset int64 // of the first record that was not read
	broken bool  // a record is damaged: nothing further is read
}

// follow finds the event files that the processes of the task have open. So a file belongs
// to the task that writes it, wherever it lies, and no folder is searched.
func (r *reported) follow(processes []process.Process) {
	r.saving.Lock()
	defer r.saving.Unlock()
	for _, p := range processes {
		for fd, path := range process.Files(p.PID) {
			if !strings.HasPrefix(filepath.Base(path), "events.out.tfevents.") || r.events[path] != nil || len(r.events) == maxEventFiles {
				continue
			}
			// By its descriptor it is found in a container too.
			f, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/%d", p.PID, fd), os.O_RDONLY|unix.O_NONBLOCK, 0)
			if err != nil {
				continue // the process has just closed it, or ended
			}
			if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
				f.Close() // nothing was written to it
				continue
			}
			r.events[path] = &eventFile{File: f}
		}
	}
}

// readEvents reads what the event files have more. The caller holds saving.
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

// event takes a scalar of an event file. Its step counts if the task's lines name none.
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
		f.Close() // nothing was written to it
		delete(r.events, path)
	}
}
