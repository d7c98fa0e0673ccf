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

// Children starts child processes and reaps them. It also reaps the orphaned
// processes that this process adopts as a subreaper. No other code of this
// process may wait for a child, so os/exec and os.StartProcess must not be
// used at the same time.
type Children struct {
	mu     sync.Mutex     // held by Start from the fork until the child is in live
	live   map[int]*Child // children that were started and are not reaped yet, by pid
	forks  chan func()    // functions that fork a child; the method fork calls them, all on one thread
	forked chan struct{}  // wakes the reaper goroutine after a child was started; closed by Close
	reaped chan struct{}  // closed when the reaper goroutine has returned
	cores  []int          // CPU cores that this process may use; children may use the same by default
}

// Child is a process that Children has started.
type Child struct {
	PID int

	mu     sync.Mutex
	ended  bool               // true once the child was reaped
	status syscall.WaitStatus // how the child ended; valid once done is closed
	done   chan struct{}      // closed when the child was reaped
}

// NewChildren makes this process the subreaper of its orphaned descendants. It
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

// fork calls the functions of c.forks, which fork a child each, on one thread
// that lives until Close. The kernel sends a child's parent-death signal when
// the thread that forked the child ends. A thread that ends earlier would
// therefore kill its children.
func (c *Children) fork() {
	runtime.LockOSThread()
	for f := range c.forks {
		f()
	}
}

// Close stops the reaper, so that os/exec can be used again. The caller must
// first reap all children, for example with Clear, and must not use c
// afterwards.
func (c *Children) Close() {
	close(c.forks)
	close(c.forked)
	<-c.reaped
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) // ignore the error: NewChildren has set this flag with the same call
}

// Start starts a process with the descriptors of attr. It binds the process to
// the given CPU cores; if cores is empty, the process may use the same cores
// as this process.
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

// reap is the reaper goroutine: it reaps each child that ends, until Close.
func (c *Children) reap() {
	defer close(c.reaped)
	for {
		// With WNOWAIT, Waitid only waits for the end of a child, and collect
		// reaps the child. collect holds c.mu, so it removes the child from
		// c.live before another child can get the same pid.
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

// none reports whether this process has no descendants, not even zombies. It
// checks only for children. This is sufficient, because the kernel makes a
// descendant a child of this process when the descendant's parent ends.
func (c *Children) none() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Is(unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil), unix.ECHILD)
}

// end records the exit status of the child and closes its Done channel.
func (ch *Child) end(status syscall.WaitStatus) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.ended, ch.status = true, status
	close(ch.done)
}

// Done returns a channel that is closed when the child was reaped.
func (ch *Child) Done() <-chan struct{} { return ch.done }

// Over reports whether the child has ended and was reaped.
func (ch *Child) Over() bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.ended
}

// Status returns the exit status of the child. It is valid once Done is
// closed.
func (ch *Child) Status() syscall.WaitStatus { return ch.status }

// Signal sends a signal to the child, unless the child was reaped.
func (ch *Child) Signal(sig unix.Signal) { ch.kill(ch.PID, sig) }

// SignalGroup sends signals to the child's process group, unless the child was
// reaped.
func (ch *Child) SignalGroup(sigs ...unix.Signal) { ch.kill(-ch.PID, sigs...) }

func (ch *Child) kill(pid int, sigs ...unix.Signal) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for _, sig := range sigs {
		if !ch.ended { // until the child is reaped, the kernel gives its pid to no other process
			unix.Kill(pid, sig) // ignore the error: the child may have ended, and the reaper records that
		}
	}
}

// AllowedCores returns the numbers of the CPU cores that this process may run
// on.
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

// maxCores is the largest number of CPUs that a Linux kernel can be configured
// for.
const maxCores = 8192

// ShareOfCores divides the CPU cores of a host among its n workers, and
// returns those of worker i. Each worker gets at least one core, and its cores
// are neighbours. Two workers share a core only if there are more workers than
// cores.
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

// bind binds the calling thread to the given CPU cores. A process that the
// thread forks is bound to them too. The caller must have called
// runtime.LockOSThread.
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
