//go:build linux

package supervisor

import (
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/metrics"
	"github.com/plx-run/plx/trainer/cluster"
)

// reported is what a task reports of its training: in its output, in event files of
// TensorBoard, or on its control channel if it uses plx's trainer. Any goroutine may use it.
type reported struct {
	mu      sync.Mutex
	history metrics.History
	streams [2]*metrics.Watcher // stdout, then stderr
	heard   int64               // the step of the task's last message; 0: none
	saved   int64               // steps in the newest checkpoint that the task has reported; 0: none
	changed bool                // the history has values that were not saved

	stepped bool // lines or messages of the task have named a step

	saving sync.Mutex            // held while event files are read and the history is saved
	events map[string]*eventFile // by path; saving guards it
}

// newReported begins a generation of a task, after a history of earlier ones.
func newReported(history metrics.History, patterns []metrics.Pattern) *reported {
	r := &reported{history: history, events: map[string]*eventFile{}}
	r.history.Restart()
	for i := range r.streams {
		r.streams[i] = metrics.NewWatcher(patterns, r.add)
	}
	return r
}

// add adds a sample to the history. The caller holds mu.
func (r *reported) add(at time.Time, s metrics.Sample) {
	r.history.Add(at, s)
	_, stepped := s.Get(metrics.Step)
	r.changed, r.stepped = true, r.stepped || stepped
}

// output takes the next bytes of a stream.
func (r *reported) output(stream int, p []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.streams[stream].Add(time.Now(), p)
}

// hear takes a message of a task of plx's trainer.
func (r *reported) hear(m cluster.ControlMessage) {
	if m.Step <= 0 || m.Kind == cluster.Checkpoint {
		return
	}
	sample := metrics.Sample{{Name: metrics.Step, Number: metrics.Number(m.Step)}}
	if loss, err := strconv.ParseFloat(m.Loss, 64); err == nil {
		sample = append(sample, metrics.Value{Name: "loss", Number: metrics.Number(loss)})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.Step != r.heard { // else it is a heartbeat within a long step
		r.heard = m.Step
		r.add(time.Now(), sample)
	}
	if m.Saved > 0 && m.Saved != r.saved {
		r.saved = m.Saved
		r.add(time.Now(), metrics.Sample{{Name: metrics.Checkpoint, Number: metrics.Number(m.Saved)}})
	}
}

// newest returns the newest value of each name.
func (r *reported) newest() map[string]metrics.Number {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flush()
	return r.history.Newest()
}

// flush looks at what the watchers have left. The caller holds mu.
func (r *reported) flush() {
	for _, s := range r.streams {
		s.Flush(time.Now())
	}
}

// save writes the history to the job's folder, if it has changed.
func (r *reported) save(f jobfolder.Folder, t cluster.Task) error {
	r.saving.Lock()
	defer r.saving.Unlock()
	failed := r.readEvents()
	r.mu.Lock()
	r.flush()
	changed := r.changed
	r.changed = false
	var encoded []byte
	if changed {
		encoded, _ = r.history.AppendBinary(nil) // it returns no error
	}
	r.mu.Unlock()
	if !changed {
		return failed
	}
	return errors.Join(failed, f.WriteMetrics(t, encoded))
}

// What tasks report is saved, and their event files are read, first after a second and then
// every 10 seconds. The use of the host is saved once in a minute.
const (
	saveMetricsFirst = time.Second
	saveMetricsEvery = 10 * time.Second
	saveUseEvery     = time.Minute
)

// saveMetrics saves what the tasks report until the loop ends. A disk that hangs stops only
// this.
func (w *watch) saveMetrics() {
	saved := time.Now()
	for pause := saveMetricsFirst; !within(pause, w.loop.quit); pause = saveMetricsEvery {
		var started []*task
		var roots []int
		w.onLoop(func() {
			for _, t := range w.tasks.launched() {
				started, roots = append(started, t), append(roots, t.child.PID)
			}
		})
		trees, err := process.Trees(roots)
		if err != nil {
			w.host.log.Printf("find event files: %v", err)
		}
		for i, t := range started {
			t.reported.follow(trees[roots[i]])
		}
		w.host.saveMetrics(started)
		if time.Since(saved) >= saveUseEvery {
			saved = time.Now()
			w.host.saveUse()
		}
	}
}

// saveUse saves how much of the host was used, with a last sample.
func (h *host) saveUse() {
	encoded := h.usage.Encoded()
	if encoded == nil {
		return
	}
	if err := h.folder.WriteHostUse(encoded); err != nil {
		h.log.Print(err) // a job goes on without
	}
}

// saveMetrics saves what tasks have reported. What fails is only logged: a job goes on
// without its metrics.
func (h *host) saveMetrics(started []*task) {
	for _, t := range started {
		if err := t.reported.save(h.folder, t.Task); err != nil {
			h.log.Print(err)
		}
	}
}
