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

// reported collects the training metrics of a task. They come from its output,
// from TensorBoard event files, or from its control channel if it uses plx's
// trainer. It is safe for concurrent use.
type reported struct {
	mu       sync.Mutex
	history  metrics.History
	streams  [2]*metrics.Watcher // parsers of stdout and stderr, in this order
	lastStep int64               // training step in the task's last message on plx's control channel; 0 before the first message with a step
	saved    int64               // number of training steps in the newest checkpoint that the task has reported; 0 before the first checkpoint
	changed  bool                // true if history has values that are not on disk yet

	stepped bool // true if the task's output or control messages have contained a step number

	saving sync.Mutex            // held while event files are read and history is written to disk
	events map[string]*eventFile // open event files by path; guarded by saving
}

// newReported returns the metrics of a task in a new generation. history has
// the values of earlier generations.
func newReported(history metrics.History, patterns []metrics.Pattern) *reported {
	r := &reported{history: history, events: map[string]*eventFile{}}
	r.history.Restart()
	for i := range r.streams {
		r.streams[i] = metrics.NewWatcher(patterns, r.add)
	}
	return r
}

// add adds a sample to the history. The caller holds r.mu.
func (r *reported) add(at time.Time, s metrics.Sample) {
	r.history.Add(at, s)
	_, stepped := s.Get(metrics.Step)
	r.changed, r.stepped = true, r.stepped || stepped
}

// output parses the next bytes that the task has written. stream is 0 for
// stdout, 1 for stderr.
func (r *reported) output(stream int, p []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.streams[stream].Add(time.Now(), p)
}

// receive adds the step, loss and checkpoint in a control message of the task to
// the history.
func (r *reported) receive(m cluster.ControlMessage) {
	if m.Step <= 0 || m.Kind == cluster.Checkpoint {
		return
	}
	sample := metrics.Sample{{Name: metrics.Step, Number: metrics.Number(m.Step)}}
	if loss, err := strconv.ParseFloat(m.Loss, 64); err == nil {
		sample = append(sample, metrics.Value{Name: "loss", Number: metrics.Number(loss)})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.Step != r.lastStep { // a message with the same step is only a heartbeat during a long step
		r.lastStep = m.Step
		r.add(time.Now(), sample)
	}
	if m.Saved > 0 && m.Saved != r.saved {
		r.saved = m.Saved
		r.add(time.Now(), metrics.Sample{{Name: metrics.Checkpoint, Number: metrics.Number(m.Saved)}})
	}
}

// newest returns the latest value of each metric.
func (r *reported) newest() map[string]metrics.Number {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flush()
	return r.history.Newest()
}

// flush makes the output parsers process incomplete lines. The caller holds
// r.mu.
func (r *reported) flush() {
	for _, s := range r.streams {
		s.Flush(time.Now())
	}
}

// save reads the event files and writes the history to the job's folder, if it
// has changed.
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
		encoded, _ = r.history.AppendBinary(nil) // the error is always nil
	}
	r.mu.Unlock()
	if !changed {
		return failed
	}
	return errors.Join(failed, f.WriteMetrics(t, encoded))
}

// Intervals of saving metrics. The metrics of tasks are saved after one second
// and then every 10 seconds, the CPU, memory and GPU use of the host every
// minute.
const (
	saveMetricsFirst = time.Second
	saveMetricsEvery = 10 * time.Second
	saveUseEvery     = time.Minute
)

// saveMetrics saves the tasks' metrics periodically until the supervisor's
// loop ends. It runs in its own goroutine, so a hanging disk blocks nothing
// else.
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

// saveUse takes a last sample of the host's CPU, memory and GPU use, and saves
// the history.
func (h *host) saveUse() {
	encoded := h.usage.Encoded()
	if encoded == nil {
		return
	}
	if err := h.folder.WriteHostUse(encoded); err != nil {
		h.log.Print(err) // only log the error: the job can continue without these metrics
	}
}

// saveMetrics saves the metrics of the started tasks. It only logs errors,
// because a job can continue without metrics.
func (h *host) saveMetrics(started []*task) {
	for _, t := range started {
		if err := t.reported.save(h.folder, t.Task); err != nil {
			h.log.Print(err)
		}
	}
}
