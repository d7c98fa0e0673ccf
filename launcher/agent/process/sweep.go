//go:build linux

package process

import (
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of a sweep. A process that survives them is stuck in the kernel, or
// belongs to another user.
const (
	stopRounds = 20
	killPause  = 5 * time.Millisecond   // between the first two rounds; doubles up to maxPause
	maxPause   = 100 * time.Millisecond // between two rounds
)

// KillTime is how long the agent waits for killed processes to end.
const KillTime = 5 * time.Second

// Sweep kills every process that list returns, and what these start meanwhile.
// In each round it stops all of them, so that none can fork, kills them and
// lists again. It ends when list returns no process and all killed ones are
// gone, or after limit. It returns the pids of those that are still there.
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
		// A process that is just ending may be missing in a listing: its
		// environment, by which it was found, disappears before it does.
		left := remaining(seen)
		if len(living) == 0 && len(left) == 0 || time.Now().After(deadline) {
			return left, nil
		}
		time.Sleep(pause)
	}
}

// Clear kills all descendants of this process. It waits until none is left,
// unreaped ones included, at most for limit. A listing is not taken at one
// moment, so a process that forks and ends all the time can be missing in all of
// them; that this process has no children proves that it has no descendants.
func (c *Children) Clear(limit time.Duration) (left []int, err error) {
	deadline := time.Now().Add(limit)
	for {
		left, err := Sweep(descendants, time.Until(deadline))
		for settled := time.Now().Add(reaping); !c.none() && time.Now().Before(settled); {
			time.Sleep(time.Millisecond)
		}
		if err != nil || c.none() || !time.Now().Before(deadline) {
			return left, err
		}
	}
}

// Left returns how many descendants of this process run. It waits for their end, at
// most for limit.
func (c *Children) Left(limit time.Duration) (n int) {
	for deadline := time.Now().Add(limit); !c.none(); time.Sleep(2 * time.Millisecond) {
		if !time.Now().Before(deadline) {
			all, _ := descendants() // an error is one of Clear too, which the caller calls next
			living := slices.DeleteFunc(all, func(p Process) bool { return p.Zombie })
			return max(1, len(living))
		}
	}
	return 0
}

// reaping is how long Clear waits for killed processes to be reaped before it
// lists again.
const reaping = 50 * time.Millisecond

// remaining returns the pids of the processes seen that have not ended.
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

// stopAll stops processes until a listing shows only processes that it stopped
// before. It returns the processes of that listing that have not ended.
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

// Signal signals p, unless it has ended.
func Signal(p Process, sig unix.Signal) { signal(p, sig) }

// signal signals p. A process that cannot be signalled is in the next listing again.
// An open pidfd refers to one process, even if the kernel gives the pid to another
// meanwhile.
func signal(p Process, sig unix.Signal) {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err == nil {
		defer unix.Close(fd)
	}
	if !Alive(p.PID, p.Start) { // another process may have taken the pid since the listing
		return
	}
	if err == nil {
		err = unix.PidfdSendSignal(fd, sig, nil, 0)
	}
	if errors.Is(err, unix.ENOSYS) { // kernels before 5.3
		unix.Kill(p.PID, sig) // it may just have ended
	}
}
