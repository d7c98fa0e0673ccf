package driver

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// pulseEvery is how often the process notes that it runs.
const pulseEvery = 500 * time.Millisecond

// leastGap is the shortest time for which a process counts as suspended. A busy machine may
// make one wait for less.
const leastGap = 2 * time.Second

// pulse notices that this process did not run: a signal stopped it, or its machine slept. Any
// goroutine may call its methods.
type pulse struct {
	least time.Duration // shorter gaps do not count

	mu   sync.Mutex
	beat time.Duration // when the process was last known to run, by sinceBoot
	gap  time.Duration // longest time for which it did not, since take was last called
}

// newPulse returns the pulse of a driver. A host that gets no renewal for a third of its lease
// may end its tasks: it had the last one up to a sixth before.
func newPulse(lease, now time.Duration) *pulse {
	return &pulse{least: max(lease/3, leastGap), beat: now}
}

// run beats until ctx ends.
func (p *pulse) run(ctx context.Context) {
	tick := time.NewTicker(pulseEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			p.touch(sinceBoot())
		}
	}
}

// sinceBoot is a clock that goes on while the machine sleeps, which time.Now's monotonic one
// does not, and that nobody sets.
func sinceBoot() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(bootClock, &t) // the kernel has this clock, and t is writable
	return time.Duration(t.Nano())
}

// touch notes that the process runs now.
func (p *pulse) touch(now time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gap = max(p.gap, now-p.beat)
	p.beat = now
}

// take returns for how long the process did not run lately; 0: it did.
func (p *pulse) take(now time.Duration) time.Duration {
	p.touch(now)
	p.mu.Lock()
	defer p.mu.Unlock()
	gap := p.gap
	p.gap = 0
	if gap < p.least {
		return 0
	}
	return gap
}
