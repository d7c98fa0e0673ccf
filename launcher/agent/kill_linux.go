package agent

import (
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
	seen := map[process]bool{}
	for pause := killPause; ; pause = min(2*pause, maxPause) {
		living, err := stopAll(list)
		if err != nil {
			return len(seen), nil, err
		}
		for _, p := range living {
			signalProcess(p, unix.SIGKILL)
			seen[process{pid: p.pid, start: p.start}] = true
		}
		if len(living) == 0 {
			return len(seen), nil, nil
		}
		if time.Now().After(deadline) {
			return len(seen), pids(living), nil
		}
		time.Sleep(pause)
	}
}

// stopAll stops processes until a listing shows none that was not stopped
// before, and returns that listing without the dead.
func stopAll(list func() ([]process, error)) ([]process, error) {
	stopped := map[process]bool{}
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
			if key := (process{pid: p.pid, start: p.start}); !stopped[key] {
				stopped[key], fresh = true, true
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

func pids(list []process) []int {
	var out []int
	for _, p := range list {
		out = append(out, p.pid)
	}
	return out
}
