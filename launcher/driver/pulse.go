package driver

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// pulseEvery is the interval at which the process records that it is running.
const pulseEvery = 500 * time.Millisecond

// leastGap is the shortest pause of this process that counts as a suspension. On
// a busy machine, shorter pauses are normal.
const leastGap = 2 * time.Second

// pulse detects that this process was suspended, by SIGSTOP or because the
// machine slept. Its methods may be called from any goroutine.
type pulse struct {
	least time.Duration // shortest gap that counts as a suspension

	mu   sync.Mutex
	beat time.Duration // last time, by sinceBoot, at which the process recorded that it was running
	gap  time.Duration // longest time without such a record since the last call of take
}

// newPulse returns the pulse of a driver. The driver renews each agent's lease
// at least every sixth of the lease. So a suspension of up to a third of the
// lease leaves agents without a renewal for at most half of it, and does not
// count.
func newPulse(lease, now time.Duration) *pulse {
	return &pulse{least: max(lease/3, leastGap), beat: now}
}

// run records every pulseEvery that the process is running, until ctx is
// canceled.
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

// sinceBoot returns the time since the machine booted, including time during
// which the machine slept. Setting the system time does not change it.
func sinceBoot() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(bootClock, &t) // ignore the error: every kernel has this clock, and t is writable
	return time.Duration(t.Nano())
}

// touch records that the process is running at time now.
func (p *pulse) touch(now time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gap = max(p.gap, now-p.beat)
	p.beat = now
}

// take returns how long the process was suspended since the last call of take,
// or 0 if it was not.
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
