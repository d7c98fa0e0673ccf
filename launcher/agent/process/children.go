//go:build linux

package process

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Children starts processes. It reaps them and the orphans that this process
// adopts. No other code of the process may wait for a child, so os/exec and
// os.StartProcess must not be used beside it.
type Children struct {
	mu     sync.Mutex     // held from a fork until the child is in live
	live   map[int]*Child // children that were started and not reaped, by pid
	forks  chan func()    // functions that fork a child; the method fork runs them on one thread
	forked chan struct{}  // wakes the reaper after a child was started; closed by Close
	reaped chan struct{}  // closed when the reaper has ended
	cores  []int          // that this process may use; a child that is bound to none may use all of them
}

// Child is a process that Children has started.
type Child struct {
	PID int

	mu     sync.Mutex
	ended  bool               // the child was reaped
	status syscall.WaitStatus // how the child ended; valid once done is closed
	done   chan struct{}      // closed when the child was reaped
}

// NewChildren makes this process the reaper of its orphaned descendants. It
// starts two goroutines that live until Close.
func NewChildren() (*Children, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become the reaper of orphaned tasks: %w", err)
	}
	cores, err := AllowedCores()
	if err != nil {
		return nil, err
	}
	c := &Children{live: map[int]*Child{}, forks: make(chan func()), forked: make(chan struct{}, 1), reaped: make(chan struct{}), cores: cores}
	go c.fork()
	go c.reap()
	return c, nil
}

// fork runs all forks on one thread that ends after Close: the kernel sends a child's
// parent-death signal when the thread that forked it ends.
func (c *Children) fork() {
	runtime.LockOSThread()
	for f := range c.forks {
		f()
	}
}

// Close gives up reaping, so that os/exec can be used again. It must be called only when no child
// is left, see Clear, and nothing afterwards.
func (c *Children) Close() {
	close(c.forks)
	close(c.forked)
	<-c.reaped
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) // it was set
}

// Start starts a process with the given descriptors. It binds the process to cores; if
// that is empty, the process may use those of this one.
func (c *Children) Start(path string, argv []string, attr *syscall.ProcAttr, cores []int) (*Child, error) {
	if len(cores) == 0 {
		cores = c.cores
	}
	started := &Child{done: make(chan struct{})}
	result := make(chan error, 1)
	c.forks <- func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		err := bind(cores)
		if err == nil {
			started.PID, err = syscall.ForkExec(path, argv, attr)
		}
		if err == nil {
			c.live[started.PID] = started
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

// reap waits for children until Close.
func (c *Children) reap() {
	defer close(c.reaped)
	for {
		// WNOWAIT leaves the child to be reaped under the lock, so that its
		// pid is not used again before its entry is gone.
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT, nil)
		switch {
		case errors.Is(err, unix.ECHILD):
			if _, open := <-c.forked; !open {
				return
			}
		case err == nil:
			c.collect()
		}
	}
}

// collect reaps all children that have ended.
func (c *Children) collect() {
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
		if child := c.live[pid]; child != nil {
			delete(c.live, pid)
			child.end(status)
		}
	}
}

// none reports whether this process has no descendants, zombies included. The
// kernel gives orphans to this process before their parent can be reaped, so a
// process without children has no descendants.
func (c *Children) none() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Is(unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil), unix.ECHILD)
}

// end records that the child was reaped.
func (ch *Child) end(status syscall.WaitStatus) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.ended, ch.status = true, status
	close(ch.done)
}

// Done is closed when the child was reaped.
func (ch *Child) Done() <-chan struct{} { return ch.done }

// Over reports whether the child was reaped.
func (ch *Child) Over() bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.ended
}

// Status is how the child ended. It is valid once Done is closed.
func (ch *Child) Status() syscall.WaitStatus { return ch.status }

// Signal signals the child, unless it was reaped.
func (ch *Child) Signal(sig unix.Signal) { ch.kill(ch.PID, sig) }

// SignalGroup sends signals to the child's process group, unless the child was
// reaped.
func (ch *Child) SignalGroup(sigs ...unix.Signal) { ch.kill(-ch.PID, sigs...) }

func (ch *Child) kill(pid int, sigs ...unix.Signal) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for _, sig := range sigs {
		if !ch.ended { // not reaped, so the pid is still the child's
			unix.Kill(pid, sig) // the reaper reports a child that is just ending
		}
	}
}

// AllowedCores returns the cores that this process may run on.
func AllowedCores() ([]int, error) {
	set := unix.NewCPUSet(maxCores)
	if err := unix.SchedGetaffinityDynamic(0, set); err != nil {
		return nil, fmt.Errorf("read the allowed cores: %w", err)
	}
	var cores []int
	for c := range maxCores {
		if set.IsSet(c) {
			cores = append(cores, c)
		}
	}
	return cores, nil
}

// maxCores is the largest number of cores that Linux can be built for.
const maxCores = 8192

// ShareOfCores returns the cores of worker i among the n workers of a host. Each
// share is contiguous and has at least one core. Shares are disjoint unless there
// are more workers than cores.
func ShareOfCores(cores []int, i, n int) []int {
	m := len(cores)
	if m == 0 || n <= 0 || i < 0 || i >= n {
		return nil
	}
	if m < n {
		return cores[i%m : i%m+1]
	}
	return cores[i*m/n : (i+1)*m/n]
}

// bind binds the calling thread to cores, so that a process that it forks inherits
// that. The caller must be locked to its thread.
func bind(cores []int) error {
	set := unix.NewCPUSet(maxCores)
	for _, c := range cores {
		set.Set(c)
	}
	if err := unix.SchedSetaffinityDynamic(0, set); err != nil {
		return fmt.Errorf("bind to cores %v: %w", cores, err)
	}
	return nil
}
