package exec

import (
	"sync"
	"time"

	"github.com/plx-run/plx/launcher/console"
)

// waiting reports for which hosts plx waits, if that takes long.
type waiting struct {
	printer   *console.Printer
	doing     string // what plx does, such as "connecting to"
	ended     chan struct{}
	goroutine sync.WaitGroup

	mu    sync.Mutex
	all   []*result
	ready map[*result]bool
}

// firstReport is when the user learns whom plx waits for. Each later report comes after
// twice the time.
const firstReport = 3 * time.Second

func newWaiting(p *console.Printer, doing string) *waiting {
	w := &waiting{printer: p, doing: doing, ended: make(chan struct{}), ready: map[*result]bool{}}
	w.goroutine.Go(func() {
		begun := time.Now()
		for pause := firstReport; ; pause *= 2 {
			select {
			case <-w.ended:
				return
			case <-time.After(pause):
				w.report(time.Since(begun))
			}
		}
	})
	return w
}

func (w *waiting) begin(all []*result) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = all
}

func (w *waiting) done(r *result) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ready[r] = true
}

func (w *waiting) report(since time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var names []string
	for _, r := range w.all {
		if !w.ready[r] {
			names = append(names, r.host.Label())
		}
	}
	if len(names) > 0 {
		w.printer.Printf("%s %s for %s; %d of %s have ended", w.doing, fold(names), since.Round(time.Second), len(w.all)-len(names), console.Count(len(w.all), "host"))
	}
}

func (w *waiting) close() {
	close(w.ended)
	w.goroutine.Wait()
}
