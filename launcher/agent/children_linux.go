package agent

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// children starts processes and reaps them, and whatever orphans this process
// adopts. Nothing else in the process may wait for a child: os/exec and
// os.StartProcess are not used beside it.
type children struct {
	mu     sync.Mutex // held from the fork until the child is registered
	live   map[int]*child
	forks  chan func()
	forked chan struct{} // wakes the reaper when there may be a first child
}

// child is a process that was started here.
type child struct {
	pid    int
	mu     sync.Mutex
	ended  bool
	status syscall.WaitStatus // valid once done is closed
	done   chan struct{}
}

// newChildren makes this process the reaper of its orphaned descendants. It
// starts two goroutines that live as long as the process.
func newChildren() (*children, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become the reaper of orphaned tasks: %w", err)
	}
	c := &children{live: map[int]*child{}, forks: make(chan func()), forked: make(chan struct{}, 1)}
	go c.fork()
	go c.reap()
	return c, nil
}

// fork runs all forks on one thread that never ends: a child's
// parent-death signal is sent when the thread that forked it ends.
func (c *children) fork() {
	runtime.LockOSThread()
	for f := range c.forks {
		f()
	}
}

// start starts a process with the given descriptors and, when cores is not
// empty, bound to them.
func (c *children) start(path string, argv []string, attr *syscall.ProcAttr, cores []int) (*child, error) {
	started := &child{done: make(chan struct{})}
	result := make(chan error, 1)
	c.forks <- func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		err := bound(cores, func() (err error) {
			started.pid, err = syscall.ForkExec(path, argv, attr)
			return err
		})
		if err == nil {
			c.live[started.pid] = started
		}
		result <- err
	}
	if err := <-result; err != nil {
		return nil, err
	}
	select {
	case c.forked <- struct{}{}:
	default:
	}
	return started, nil
}

// reap waits for children for ever.
func (c *children) reap() {
	for {
		// WNOWAIT leaves the child to be reaped under the lock, so that
		// its pid is not used again before its entry is gone.
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT, nil)
		switch {
		case errors.Is(err, unix.ECHILD):
			<-c.forked
		case err == nil:
			c.collect()
		}
	}
}

// collect reaps all children that have ended.
func (c *children) collect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if ch := c.live[pid]; ch != nil {
			delete(c.live, pid)
			ch.mu.Lock()
			ch.ended, ch.status = true, status
			ch.mu.Unlock()
			close(ch.done)
		}
	}
}

// none reports whether this process has no descendants at all, zombies
// included. Orphans are adopted before their parent can be reaped, so no
// child means no descendant.
func (c *children) none() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Is(unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil), unix.ECHILD)
}

// signalGroup signals the child's process group while the child is there.
func (ch *child) signalGroup(sigs ...unix.Signal) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for _, sig := range sigs {
		if !ch.ended {
			// A group that is just ending is reported by the reaper.
			unix.Kill(-ch.pid, sig)
		}
	}
}

// over reports whether the child was reaped.
func (ch *child) over() bool {
	select {
	case <-ch.done:
		return true
	default:
		return false
	}
}

// within waits until done is closed, at most d.
func within(d time.Duration, done <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
	}
	select { // both may have been ready
	case <-done:
		return true
	default:
		return false
	}
}
