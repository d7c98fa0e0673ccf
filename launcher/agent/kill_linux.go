package agent

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// rounds and the pauses between them bound a sweep. A process that is still
// there after them is stuck in the kernel, or belongs to another user.
const (
	stopRounds = 20
	killPause  = 5 * time.Millisecond
	maxPause   = 100 * time.Millisecond
)

// sweep ends every process that list returns, and what they start meanwhile:
// it stops them all, so that none can fork away, kills them, and looks again
// until there are none. It waits for the last one until limit and returns the
// number of processes killed and the pids that are still there.
func sweep(list func() ([]process, error), limit time.Duration) (killed int, left []int, err error) {
	deadline := time.Now().Add(limit)
	seen := map[identity]bool{}
	for pause := killPause; ; pause = min(2*pause, maxPause) {
		living, err := stopAll(list)
		if err != nil {
			return len(seen), nil, err
		}
		for _, p := range living {
			signalProcess(p, unix.SIGKILL)
			seen[p.identity()] = true
		}
		// A process that is just ending may be in no listing any more: its
		// environment, by which it was found, is gone before it is.
		left := remaining(seen)
		if len(living) == 0 && len(left) == 0 {
			return len(seen), nil, nil
		}
		if time.Now().After(deadline) {
			return len(seen), left, nil
		}
		time.Sleep(pause)
	}
}

// clear kills all descendants of this process but those spared and what is
// below them, and waits, at most for limit, until none is left, not even an
// unreaped one. A listing is not taken at one moment, so a process that forks
// and ends all the time may be in none of them; having no children is what
// proves that there are none. Where some are spared, two listings have to do.
func (c *children) clear(limit time.Duration, spared ...int) (killed int, left []int, err error) {
	deadline := time.Now().Add(limit)
	for {
		n, left, err := sweep(func() ([]process, error) { return below(spared...) }, time.Until(deadline))
		killed += n
		if len(spared) > 0 {
			if err != nil || n == 0 || !time.Now().Before(deadline) {
				return killed, left, err
			}
			continue
		}
		for settled := time.Now().Add(reaping); !c.none() && time.Now().Before(settled); {
			time.Sleep(time.Millisecond)
		}
		if err != nil || c.none() || !time.Now().Before(deadline) {
			return killed, left, err
		}
	}
}

// reaping is how long processes that were killed may take to be reaped.
const reaping = 50 * time.Millisecond

// identity tells a process from later ones with its pid.
type identity struct {
	pid   int
	start uint64
}

func (p process) identity() identity { return identity{p.pid, p.start} }

func remaining(seen map[identity]bool) []int {
	var left []int
	for id := range seen {
		if exists(id.pid, id.start) {
			left = append(left, id.pid)
		}
	}
	slices.Sort(left)
	return left
}

// stopAll stops processes until a listing shows none that was not stopped
// before, and returns that listing without the dead.
func stopAll(list func() ([]process, error)) ([]process, error) {
	stopped := map[identity]bool{}
	var living []process
	for range stopRounds {
		all, err := list()
		if err != nil {
			return nil, err
		}
		living = living[:0]
		fresh := false
		for _, p := range all {
			if p.zombie {
				continue
			}
			living = append(living, p)
			if !stopped[p.identity()] {
				stopped[p.identity()], fresh = true, true
				signalProcess(p, unix.SIGSTOP)
			}
		}
		if !fresh {
			break
		}
	}
	return living, nil
}

// signalProcess signals p if it is still the same process. What cannot be signalled
// shows in the next listing.
func signalProcess(p process, sig unix.Signal) {
	if h, ok := hold(p); ok {
		_ = h.signal(sig)
		h.close()
	}
}
