//go:build linux

package supervisor

import (
	"sync"
	"time"

	"github.com/plx-run/plx/launcher/metrics"
)

// reported is what a task reports of its training: in its output, or on its control channel
// if it uses plx's trainer. Any goroutine may use it.
type reported struct {
	mu      sync.Mutex
	history metrics.History
	streams [2]*metrics.Watcher // stdout, then stderr
}

func newReported(patterns []metrics.Pattern) *reported {
	r := &reported{}
	for i := range r.streams {
		r.streams[i] = metrics.NewWatcher(patterns, r.history.Add)
	}
	return r
}

// output takes the next bytes of a stream.
func (r *reported) output(stream int, p []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.streams[stream].Add(time.Now(), p)
}

// step takes the step of a task of plx's trainer; 0: it has made none.
func (r *reported) step(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n > 0 {
		r.history.Add(time.Now(), metrics.Sample{{Name: metrics.Step, Number: metrics.Number(n)}})
	}
}

// newest returns the newest value of each name.
func (r *reported) newest() map[string]metrics.Number {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.streams {
		s.Flush(time.Now())
	}
	return r.history.Newest()
}
