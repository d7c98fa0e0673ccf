//go:build linux

package process

import (
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Limits of Sweep. A process that survives all rounds is blocked in the
// kernel, or belongs to another user.
const (
	stopRounds = 20
	killPause  = 5 * time.Millisecond   // pause after the first round; doubles after each round, up to maxPause
	maxPause   = 100 * time.Millisecond // longest pause between two rounds
)

// KillTime is how long the agent waits for killed processes to end.
const KillTime = 5 * time.Second

// Sweep kills every process that list returns, and all processes that these
// start in the meantime. In each round it stops the listed processes with
// SIGSTOP, so that none can fork, then kills them and calls list again. Sweep
// returns when list returns no process and all killed processes have ended, or
// when limit has passed. left has the pids of the killed processes that have
// not ended.
func Sweep(list func() ([]Process, error), limit time.Duration) (left []int, err error) {
	deadline := time.Now().Add(limit)
	seen := map[identity]bool{}
	for pause := killPause; ; pause = min(2*pause, maxPause) {
		living, err := stopAll(list)
		if err != nil {
			return nil, err
		}
		for _, p := range living {
			signal(p, unix.SIGKILL)
			seen[p.identity()] = true
		}
		// list finds some processes by their environment. A process that is
		// ending loses its environment before it disappears, so list can miss
		// it. Therefore also check whether all killed processes have ended.
		left := remaining(seen)
		if len(living) == 0 && len(left) == 0 || time.Now().After(deadline) {
			return left, nil
		}
		time.Sleep(pause)
	}
}

// Clear kills all descendants of this process. It waits up to limit until all
// of them have ended and were reaped. A listing of /proc is not atomic, so a
// process that forks and exits all the time can be missing in every listing.
// Clear therefore also checks that this process has no children, which proves
// that it has no descendants.
func (c *Children) Clear(limit time.Duration) (left []int, err error) {
	deadline := time.Now().Add(limit)
	for {
		left, err := Sweep(descendants, time.Until(deadline))
		for settled := time.Now().Add(reapTime); !c.none() && time.Now().Before(settled); {
			time.Sleep(time.Millisecond)
		}
		if err != nil || c.none() || !time.Now().Before(deadline) {
			return left, err
		}
	}
}

// Left waits up to limit until all descendants of this process have ended and
// were reaped. It returns the number of descendants that still run.
func (c *Children) Left(limit time.Duration) (n int) {
	for deadline := time.Now().Add(limit); !c.none(); time.Sleep(2 * time.Millisecond) {
		if !time.Now().Before(deadline) {
			all, _ := descendants() // ignore the error: the caller calls Clear next, which returns the same error
			living := slices.DeleteFunc(all, func(p Process) bool { return p.Zombie })
			return max(1, len(living))
		}
	}
	return 0
}

// reapTime is how long Clear waits for killed processes to be reaped before it
// lists the processes again.
const reapTime = 50 * time.Millisecond

// remaining returns the sorted pids of those processes in seen that have not
// ended.
func remaining(seen map[identity]bool) []int {
	var left []int
	for id := range seen {
		if Alive(id.pid, id.start) {
			left = append(left, id.pid)
		}
	}
	slices.Sort(left)
	return left
}

// stopAll sends SIGSTOP to all listed processes, and repeats that until a
// listing contains only processes that it has stopped before. It returns the
// processes of the last listing, without zombies.
func stopAll(list func() ([]Process, error)) ([]Process, error) {
	stopped := map[identity]bool{}
	var living []Process
	for range stopRounds {
		all, err := list()
		if err != nil {
			return nil, err
		}
		living = living[:0]
		fresh := false
		for _, p := range all {
			if p.Zombie {
				continue
			}
			living = append(living, p)
			if !stopped[p.identity()] {
				stopped[p.identity()], fresh = true, true
				signal(p, unix.SIGSTOP)
			}
		}
		if !fresh {
			break
		}
	}
	return living, nil
}

// Signal sends a signal to process p, unless p has ended.
func Signal(p Process, sig unix.Signal) { signal(p, sig) }

// signal sends a signal to process p, unless p has ended. It uses a pidfd,
// which refers to the same process even if the kernel reuses the pid. It
// returns no error: if p did not get the signal, the caller's next listing
// contains p again.
func signal(p Process, sig unix.Signal) {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err == nil {
		defer unix.Close(fd)
	}
	if !Alive(p.PID, p.Start) { // p has ended; its pid may belong to another process now
		return
	}
	if err == nil {
		err = unix.PidfdSendSignal(fd, sig, nil, 0)
	}
	if errors.Is(err, unix.ENOSYS) { // kernels before 5.3 have no pidfd_open
		unix.Kill(p.PID, sig) // ignore the error: the process may have just ended
	}
}
