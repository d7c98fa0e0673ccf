//go:build linux

// Package sampler measures the activity of the tasks on one host, and reports
// for how long each task has been inactive. It also measures the host's use of
// CPU, memory, network and GPUs.
//
//	host := sampler.NewHost(nil)             // measures the host
//	s := sampler.New(10 * time.Minute, host) // the hang timeout
//	s.Take(targets, time.Now())              // call it every s.Every()
//	seen := s.Activities(time.Now())         // how long each task has been inactive
//
// # What counts as activity
//
// A task has made progress between two samples if it did at least one of
// these: it wrote to stdout or stderr, it completed a training step, it moved
// more than socketNoise bytes through its TCP sockets, or it read or wrote
// more than ioNoise bytes in system calls. A task that only used CPU or GPU
// time counts as busy: it may be computing, or spinning.
//
// A task's [protocol.Activity] has two times. Idle is the time since the task
// last made progress or was busy. IOIdle is the time since it last made
// progress. Package jobstate waits longer for a job that is busy without
// progress.
//
// The thresholds socketNoise and ioNoise exist because a waiting task also
// does some I/O: libraries send keepalives, and runtimes wake themselves up
// through pipes.
//
// # GPUs
//
// A call of the GPU tool, such as nvidia-smi, costs a second of CPU time or
// more. So the package calls the tool rarely. To see whether a task uses its
// GPUs, it calls the tool only after the task has been inactive for half of
// the hang timeout. To measure the host's use, it calls the tool only while a
// client or the job's metrics need the result, and for at most one hundredth
// of the time.
//
// The package only measures and decides nothing. It reads /proc and queries
// the kernel for sockets. It does not read the memory of a task.
package sampler

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/agent/sockets"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// TODO: measure how much CPU and GPU time tasks use while they wait in NCCL on
// real GPUs. The value of idle was tried only with CPUs and with Gloo.
const (
	socketNoise = 1 << 10  // largest number of bytes through sockets, between two samples, that does not count as progress
	ioNoise     = 16 << 10 // largest number of bytes in system calls, between two samples, that does not count as progress
	// idle is the utilization of one CPU core or of a GPU, in percent, below
	// which a task does not count as busy.
	idle = 5
)

// every returns the time between two samples, for the given hang timeout. A
// timeout of 0 means that hangs are not detected.
func every(timeout time.Duration) time.Duration {
	if timeout <= 0 {
		return 5 * time.Second
	}
	return min(max(timeout/10, time.Second), 5*time.Second)
}

// Target identifies a task to measure, and contains the values that the agent
// counts itself.
type Target struct {
	Task       cluster.Task
	Generation int
	PID        int      // pid of the task's first process, which the agent started
	Output     int64    // bytes that the task has written to stdout and stderr so far
	Step       int64    // highest training step that the task has reported; 0 before the first one
	GPUs       []string // UUIDs or PCI addresses of the GPUs that are reserved for the task
}

// Sampler measures the activity of tasks. Its methods may be called from any
// goroutine.
type Sampler struct {
	every time.Duration
	host  *Host
	ask   time.Duration // how long a task must be inactive before its GPUs are measured; 0 means they never are

	mu    sync.Mutex
	tasks map[cluster.Task]*series
}

// New returns a Sampler for the given hang timeout; 0 means that hangs are not
// detected. It measures GPUs through host.
func New(timeout time.Duration, host *Host) *Sampler {
	return &Sampler{every: every(timeout), host: host, ask: timeout / 2, tasks: map[cluster.Task]*series{}}
}

// Every returns the time that the caller must let pass between two calls of
// Take.
func (s *Sampler) Every() time.Duration { return s.every }

// Take takes a sample of each target, and forgets tasks that are not among
// targets. It must not be called concurrently. The error reports what could
// not be measured.
func (s *Sampler) Take(targets []Target, now time.Time) error {
	var roots []int
	for _, t := range targets {
		roots = append(roots, t.PID)
	}
	trees, err := process.Trees(roots)
	if err != nil {
		return err
	}
	connections, err := sockets.Connections()
	moved := map[uint32]uint64{}
	for _, c := range connections {
		moved[c.Inode] = c.Moved
	}
	measured := map[cluster.Task]measure{}
	for _, t := range targets {
		measured[t.Task] = measureTree(t, trees[t.PID], moved)
	}
	use, gpuErr := s.gpus(targets, now)
	for _, t := range targets {
		m := measured[t.Task]
		for _, uuid := range t.GPUs {
			m.gpu = max(m.gpu, use[uuid])
		}
		measured[t.Task] = m
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.tasks
	s.tasks = map[cluster.Task]*series{}
	for _, t := range targets {
		old := before[t.Task]
		if old == nil || old.generation != t.Generation {
			old = newSeries(t, now)
		}
		old.add(measured[t.Task], now, s.every)
		s.tasks[t.Task] = old
	}
	return errors.Join(err, gpuErr)
}

// gpus returns the utilization of the host's GPUs in percent, by UUID or PCI
// address. It returns nil if no task with GPUs has been inactive for long
// enough. After a failure of the GPU tool, it never calls the tool again.
func (s *Sampler) gpus(targets []Target, now time.Time) (map[string]int, error) {
	if s.ask == 0 || !s.waiting(targets, now) {
		return nil, nil
	}
	a := s.host.gpus.ask(2 * s.every) // limit the wait: if the next sample comes too late, series.add counts it as progress
	if a.err != nil {
		s.ask = 0
		return nil, a.err
	}
	use := map[string]int{}
	for i, id := range a.ids {
		use[id] = a.gpus[i].Percent
	}
	return use, nil
}

// waiting reports whether a task with GPUs has been inactive for at least
// s.ask, so that the GPUs must be measured.
func (s *Sampler) waiting(targets []Target, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(targets, func(t Target) bool {
		one := s.tasks[t.Task]
		return len(t.GPUs) > 0 && one != nil && now.Sub(one.busy) >= s.ask
	})
}

// Activities returns, for each measured task, how long it has been inactive.
func (s *Sampler) Activities(now time.Time) map[cluster.Task]*protocol.Activity {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[cluster.Task]*protocol.Activity{}
	for task, one := range s.tasks {
		all[task] = one.activity(now)
	}
	return all
}

// measure is one sample of a task: its counters at one time. Each map holds
// one counter per process (by pid) or per socket (by inode). A single sum
// would shrink when a process or socket ends, because the kernel then removes
// its counter.
type measure struct {
	output, step    int64
	gpu             int // highest utilization among the task's GPUs, in percent; 0 if the GPUs were not measured
	cpu, net, files map[int]uint64
}

func measureTree(t Target, tree []process.Process, moved map[uint32]uint64) measure {
	m := measure{output: t.Output, step: t.Step, cpu: map[int]uint64{}, net: map[int]uint64{}, files: map[int]uint64{}}
	for _, p := range tree {
		m.cpu[p.PID] = p.Ticks
		m.files[p.PID] = filesOf(p.PID)
		for _, inode := range process.Sockets(p.PID) {
			if n, known := moved[inode]; known {
				m.net[int(inode)] = n
			}
		}
	}
	return m
}

// filesOf returns the number of bytes that a process has read and written, in
// system calls and on disks; 0 if the kernel does not report it.
func filesOf(pid int) (sum uint64) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/io")
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(text) {
		name, number, _ := bytes.Cut(line, []byte(": "))
		switch string(name) {
		case "rchar", "wchar", "read_bytes", "write_bytes":
			// Ignore the error: the kernel writes only numbers here.
			n, _ := strconv.ParseUint(string(bytes.TrimSpace(number)), 10, 64)
			sum += n
		}
	}
	return sum
}
