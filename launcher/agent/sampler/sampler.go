//go:build linux

// Package sampler measures what the tasks of one host do, and tells for how long they have been still. It
// measures how much of the host is used, too.
//
//	host := sampler.NewHost(nil)             // how much of the host is used
//	s := sampler.New(10 * time.Minute, host) // the hang timeout
//	s.Take(targets, time.Now())              // every s.Every
//	seen := s.Activities(time.Now())         // how long each task has been still
//
// # What counts as movement
//
// A task has moved between two samples if it wrote a byte to stdout or stderr, made a
// step, moved more than chatter through its TCP sockets, or read or wrote more than
// murmur in system calls. These are marks. A task that only used processor time or a GPU
// is busy: it may compute, or spin. Still counts from the last mark or busy sample, Quiet from the
// last mark. Package jobstate waits longer for a job that is busy without a mark.
//
// Chatter and murmur exist because a task that waits is not silent: libraries exchange
// keepalives, and runtimes wake themselves through pipes.
//
// The tool, such as nvidia-smi, costs a second of processor time or more. So it is asked about the GPUs of a
// task only when the task has been still for half of the hang timeout. For how much of the host is used it is
// asked only while somebody wants to know, and for less than one hundredth of the time.
//
// The package decides nothing. It reads /proc and asks the kernel for sockets. It does
// not read the memory of a task.
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

const (
	chatter = 1 << 10  // bytes through sockets between two samples that are no mark
	murmur  = 16 << 10 // bytes in system calls between two samples that are no mark
	// idle is the share of one core or of a GPU below which a task is not busy: in percent.
	idle = 5
)

// every returns the time between two samples for a hang timeout; 0 is none.
func every(timeout time.Duration) time.Duration {
	if timeout <= 0 {
		return 5 * time.Second
	}
	return min(max(timeout/10, time.Second), 5*time.Second)
}

// Target is a task to measure.
type Target struct {
	Task       cluster.Task
	Generation int
	PID        int      // of the process that the agent started
	Output     int64    // bytes of stdout and stderr so far
	Step       int64    // highest step that the task has reported; 0: none
	GPUs       []string // UUIDs or bus addresses of those that the job books for the task
}

// Sampler measures tasks. Any goroutine may call its methods.
type Sampler struct {
	every time.Duration
	host  *Host
	ask   time.Duration // how long a task is still before its GPUs are asked for; 0: they are not

	mu    sync.Mutex
	tasks map[cluster.Task]*series
}

// New returns a Sampler for a hang timeout; 0 is none. It asks for the GPUs of host.
func New(timeout time.Duration, host *Host) *Sampler {
	return &Sampler{every: every(timeout), host: host, ask: timeout / 2, tasks: map[cluster.Task]*series{}}
}

// Every is the time between two samples.
func (s *Sampler) Every() time.Duration { return s.every }

// Take measures all tasks that run. It forgets the others. One goroutine at a time calls
// it. The error says what could not be measured.
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

// gpus returns how many per cent GPUs are used, by what a job books: nil if all tasks with GPUs have
// moved. After a failure it does not ask again.
func (s *Sampler) gpus(targets []Target, now time.Time) (map[string]int, error) {
	if s.ask == 0 || !s.waiting(targets, now) {
		return nil, nil
	}
	a := s.host.gpus.ask(2 * s.every) // the next sample must not be too late, see series.add
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

// waiting reports whether a task with GPUs has been still for so long that they are asked for.
func (s *Sampler) waiting(targets []Target, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(targets, func(t Target) bool {
		one := s.tasks[t.Task]
		return len(t.GPUs) > 0 && one != nil && now.Sub(one.busy) >= s.ask
	})
}

// Activities returns what the tasks do, by the samples.
func (s *Sampler) Activities(now time.Time) map[cluster.Task]*protocol.Activity {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[cluster.Task]*protocol.Activity{}
	for task, one := range s.tasks {
		all[task] = one.activity(now)
	}
	return all
}

// measure is what a task had done at one time. Counters of sockets and processes are by
// their number, as one that ends takes its counter along.
type measure struct {
	output, step    int64
	gpu             int // percent that a GPU of the task is used; 0 if it was not asked for
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

// filesOf returns the bytes that a process has moved by system calls and between memory
// and disks; 0 if the kernel does not tell.
func filesOf(pid int) (sum uint64) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/io")
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(text) {
		name, number, _ := bytes.Cut(line, []byte(": "))
		switch string(name) {
		case "rchar", "wchar", "read_bytes", "write_bytes":
			n, _ := strconv.ParseUint(string(bytes.TrimSpace(number)), 10, 64) // the kernel wrote it
			sum += n
		}
	}
	return sum
}
