package hang

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// job builds a job of workers, one per host, with TCP connections between
// them.
type job struct{ tasks []Task }

func newJob(workers int) *job {
	j := &job{}
	for i := range workers {
		p := protocol.Process{PID: 100, Name: "python3", Threads: []protocol.Thread{{Wait: protocol.OnLock, Count: 1}}}
		j.tasks = append(j.tasks, Task{Name: cluster.Task{Role: cluster.Worker, Index: i}, Host: fmt.Sprintf("h%d", i), HostIndex: i,
			Seen: &protocol.Activity{PID: 100, Idle: time.Minute, IOIdle: time.Minute, Processes: []protocol.Process{p}}})
	}
	return j
}

func (j *job) process(i int) *protocol.Process { return &j.tasks[i].Seen.Processes[0] }

// connect connects two workers. a spoke last; with even set both spoke at the same time.
func (j *job) connect(a, b int, even bool) {
	at := func(i, other int) string { return fmt.Sprintf("10.0.%d.%d:%d", (i+1)>>8, (i+1)&255, 5000+other) }
	later := 40 * time.Second
	if even {
		later = 50 * time.Second
	}
	j.add(a, protocol.Socket{Local: at(a, b), Peer: at(b, a), Sent: later, Received: 50 * time.Second})
	j.add(b, protocol.Socket{Local: at(b, a), Peer: at(a, b), Sent: 50 * time.Second, Received: later})
}

func (j *job) add(i int, s protocol.Socket) {
	j.process(i).Sockets = append(j.process(i).Sockets, s)
}

// mesh connects all workers; all but late have spoken to it since it spoke to them.
func (j *job) mesh(late int) {
	for a := range j.tasks {
		for b := range a {
			switch late {
			case a:
				j.connect(b, a, false)
			case b:
				j.connect(a, b, false)
			default:
				j.connect(a, b, true)
			}
		}
	}
}

func (j *job) first(i int, t protocol.Thread) { j.process(i).Threads[0] = t }

// train makes all of them tasks of plx's trainer, of which some are outside of a step and the
// others wait in one. server, if it is not negative, is a parameter server.
func (j *job) train(server int, outside ...int) {
	for i := range j.tasks {
		j.tasks[i].Seen.Training = &protocol.Training{Waits: !slices.Contains(outside, i)}
		if i == server || !j.tasks[i].Seen.Training.Waits {
			j.tasks[i].Seen.Training = &protocol.Training{Where: "goroutine 1 [select (no cases)]: main.go:44 in main.train"}
		}
		if i == server {
			j.tasks[i].Name.Role = cluster.PS
		}
	}
}

func TestExplain(t *testing.T) {
	for name, c := range map[string]struct {
		plant   func(j *job)
		culprit string
		why     string
	}{
		"sleeps": {func(j *job) {
			j.mesh(2)
			j.first(2, protocol.Thread{Wait: protocol.Sleeps, Where: "hrtimer_nanosleep"})
		},
			"worker:2", "it sleeps: python3 (pid 100) in hrtimer_nanosleep"},
		"sleeps and nobody knows who spoke last": {func(j *job) { j.mesh(-1); j.first(1, protocol.Thread{Wait: protocol.Sleeps}) },
			"worker:1", "sleeps"},
		"is stopped": {func(j *job) { j.mesh(2); j.first(2, protocol.Thread{Wait: protocol.Stopped}) },
			"worker:2", "is stopped"},
		"is stopped while another sleeps": {func(j *job) {
			j.mesh(2)
			j.first(2, protocol.Thread{Wait: protocol.Stopped})
			j.first(0, protocol.Thread{Wait: protocol.Sleeps})
		}, "worker:2", "is stopped"},
		"is stuck in the kernel": {func(j *job) { j.mesh(2); j.first(2, protocol.Thread{Wait: protocol.InKernel, Where: "nfs_wait"}) },
			"worker:2", "stuck in the kernel in nfs_wait"},
		"waits in another thread for a disk": {func(j *job) {
			j.mesh(-1)
			j.process(2).Threads = append(j.process(2).Threads, protocol.Thread{Wait: protocol.InKernel, Where: "io_schedule"})
		}, "worker:2", "io_schedule"},
		"computes": {func(j *job) { j.mesh(2); j.tasks[2].Seen.Idle = 0 },
			"worker:2", "it computes, and has done nothing else for 1m0s"},
		"waits for a file lock of a stranger": {func(j *job) {
			j.mesh(2)
			j.first(2, protocol.Thread{Wait: protocol.OnFile, What: "/data/lock", PIDs: []int{77}})
		}, "worker:2", "waits for a lock on /data/lock, which process 77 holds"},
		"waits for a file lock of a worker that waits for it": {func(j *job) {
			j.tasks[1].HostIndex = 2
			j.process(1).PID = 101
			j.mesh(2)
			j.first(2, protocol.Thread{Wait: protocol.OnFile, What: "/data/lock", PIDs: []int{101}})
		}, "worker:2", "waits for a lock on /data/lock that worker:1 holds"},
		"never called the collective": {func(j *job) { j.mesh(2) },
			"worker:2", "has answered none of the others for 50s; it is awaited by worker:0, worker:1, worker:3"},
		"does not read": {func(j *job) {
			j.mesh(-1)
			j.process(1).Sockets[0].Unread = 4096
			j.process(0).Sockets[0].Unsent = 4096
		}, "worker:1", "it is awaited by worker:0"},
		"a child sleeps": {func(j *job) {
			j.mesh(2)
			j.first(2, protocol.Thread{Wait: protocol.OnPoll, PIDs: []int{200}})
			j.tasks[2].Seen.Processes = append(j.tasks[2].Seen.Processes, protocol.Process{PID: 200, Parent: 100, Name: "loader",
				Threads: []protocol.Thread{{Wait: protocol.Sleeps}}})
		}, "worker:2", "it sleeps: loader (pid 200)"},
		"a child waits for its parent, which sleeps": {func(j *job) {
			j.mesh(2)
			j.first(2, protocol.Thread{Wait: protocol.Sleeps})
			j.tasks[2].Seen.Processes = append(j.tasks[2].Seen.Processes, protocol.Process{PID: 200, Parent: 100, Name: "loader",
				Threads: []protocol.Thread{{Wait: protocol.OnRead, PIDs: []int{100}}}})
		}, "worker:2", "it sleeps: python3 (pid 100)"},
		"writes to a full pipe": {func(j *job) {
			j.mesh(2)
			j.first(2, protocol.Thread{Wait: protocol.OnChild, PIDs: []int{200}})
			j.tasks[2].Seen.Processes = append(j.tasks[2].Seen.Processes, protocol.Process{PID: 200, Parent: 100, Name: "gzip",
				Threads: []protocol.Thread{{Wait: protocol.OnWrite, PIDs: []int{100}}}})
		}, "worker:2", "gzip (pid 200) writes to a full pipe that process 100 does not read"},
		"has left": {func(j *job) {
			j.mesh(2)
			j.tasks[2].Exit, j.tasks[2].Seen = &protocol.Exit{}, nil
		}, "worker:2", "it exited with status 0"},
		"has left, and the others look after it every second": {func(j *job) {
			for i := range j.tasks {
				j.first(i, protocol.Thread{Wait: protocol.Sleeps})
			}
			j.tasks[2].Exit, j.tasks[2].Seen = &protocol.Exit{}, nil
		}, "worker:2", "it exited with status"},
		"its host says nothing": {func(j *job) { j.mesh(2); j.tasks[2].Seen = nil },
			"worker:2", "its host did not report"},
		"its network is cut": {func(j *job) {
			j.mesh(-1)
			for i := range j.tasks {
				for n := range j.process(i).Sockets {
					if s := &j.process(i).Sockets[n]; i == 2 || strings.HasPrefix(s.Peer, "10.0.0.3:") {
						s.Unsent, s.Retries = 100, 6
					}
				}
			}
		}, "worker:2", "its connection to worker:0 on h0 is stalled: the kernel has retransmitted 6 times"},
		"others find its network cut": {func(j *job) {
			j.mesh(2)
			for _, i := range []int{0, 3} {
				for n := range j.process(i).Sockets {
					if s := &j.process(i).Sockets[n]; strings.HasPrefix(s.Peer, "10.0.0.3:") {
						s.Unsent, s.Retries = 100, 6
					}
				}
			}
		}, "worker:2", "it does not acknowledge data from worker:0, worker:1, worker:3"},
		"reads from one that computes": {func(j *job) {
			j.mesh(-1)
			j.first(0, protocol.Thread{Wait: protocol.OnRead, Sockets: []int{0}})
			j.tasks[1].Seen.Idle = 0
		}, "worker:1", "it computes"},
		"all sleep": {func(j *job) {
			for i := range j.tasks {
				j.first(i, protocol.Thread{Wait: protocol.Sleeps})
			}
		}, "", "all tasks do the same: each sleeps"},
		"two wait for each other": {func(j *job) {
			j.tasks = j.tasks[:2]
			j.connect(0, 1, true)
			for i := range j.tasks {
				j.first(i, protocol.Thread{Wait: protocol.OnRead, Sockets: []int{0}})
			}
		}, "", "wait for one another"},
		"waits for worker:0, for which nobody else waits": {func(j *job) {
			j.mesh(2)
			j.add(2, protocol.Socket{Local: "10.0.0.3:7000", Peer: "10.0.0.1:29500"})
			j.add(0, protocol.Socket{Local: "10.0.0.1:29500", Peer: "10.0.0.3:7000"})
			j.first(2, protocol.Thread{Wait: protocol.OnRead, Sockets: []int{3}})
		}, "worker:2", "it waits for worker:0, and is awaited by worker:0, worker:1, worker:3"},
		"plx's trainer: one is outside of a step": {func(j *job) {
			j.mesh(-1)
			j.train(-1, 2)
		}, "worker:2", "does not take part in the step that the others wait for: goroutine 1 [select (no cases)]: main.go:44 in main.train"},
		"plx's trainer: one computes outside of a step": {func(j *job) {
			j.mesh(-1)
			j.train(-1, 2)
			j.tasks[2].Seen.Idle = 0
		}, "worker:2", "it computes, and has done nothing else for 1m0s: goroutine 1"},
		"plx's trainer: a server is never in a step, and an idle one ends": {func(j *job) {
			j.mesh(-1)
			j.train(0, 2)
			j.tasks[3].Name.Role, j.tasks[3].Seen, j.tasks[3].Exit = cluster.PS, nil, &protocol.Exit{Native: true, Finished: true}
		}, "worker:2", "does not take part"},
		"plx's trainer: a server is stopped": {func(j *job) {
			j.mesh(-1)
			j.train(0)
			j.first(0, protocol.Thread{Wait: protocol.Stopped})
		}, "ps:0", "is stopped"},
		"plx's trainer: all are outside of a step": {func(j *job) {
			j.mesh(-1)
			j.train(0, 1, 2, 3)
		}, "", "all tasks do the same: each does not take part"},
		"Go polls sockets for which nothing waits": {func(j *job) {
			j.mesh(2)
			for i := range j.tasks {
				j.process(i).Go = true
				j.first(i, protocol.Thread{Wait: protocol.OnPoll, Sockets: []int{0, 1, 2}})
			}
		}, "worker:2", "it is awaited by worker:0, worker:1, worker:3"},
		"a hub has answered within the kernel's clock": {func(j *job) {
			j.connect(0, 2, true)
			j.connect(1, 0, false)
			j.connect(3, 0, false)
		}, "worker:2", "it is awaited by worker:0"},
		"a hub has answered two within the kernel's clock": {func(j *job) {
			j.connect(0, 2, true)
			j.connect(0, 3, true)
			j.connect(1, 0, false)
		}, "worker:0", "it is awaited by worker:1"},
		"indices that lead nowhere": {func(j *job) {
			j.mesh(-1)
			j.first(2, protocol.Thread{Wait: protocol.OnRead, Sockets: []int{-1, 99}, PIDs: []int{100, -7}})
		}, "", "wait for one another"},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJob(4)
			c.plant(j)
			got := explain(j.tasks, time.Minute)
			if got.Culprit != c.culprit || !strings.Contains(got.Why, c.why) {
				t.Errorf("culprit %q: %s; want %q: %s\n%s", got.Culprit, got.Why, c.culprit, c.why, strings.Join(got.Waits, "\n"))
			}
			if c.culprit != "" && got.Host != "h"+c.culprit[strings.Index(c.culprit, ":")+1:] {
				t.Errorf("culprit %s on host %q", got.Culprit, got.Host)
			}
		})
	}
}

// Whatever an agent reports, explain does not crash, and its texts are
// printable lines.
func FuzzExplain(f *testing.F) {
	j := newJob(3)
	j.mesh(1)
	seed, err := json.Marshal([]*protocol.Activity{j.tasks[0].Seen, j.tasks[1].Seen, j.tasks[2].Seen})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte(`[{"processes":[{"pid":1,"parent":1,"name":"a\u001bb\n","threads":[{"wait":"child","pids":[1,2]}]},{"pid":2,"parent":1,"threads":[{"wait":"sleeps"}]}]},null]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var all []*protocol.Activity
		if json.Unmarshal(text, &all) != nil {
			return
		}
		var tasks []Task
		for i, a := range all {
			tasks = append(tasks, Task{Name: cluster.Task{Role: cluster.Worker, Index: i}, Host: "h", Seen: a})
		}
		if len(tasks) == 0 {
			return
		}
		got := explain(tasks, time.Minute)
		for _, line := range append(got.Waits, got.Why) {
			if line == "" || strings.Contains(line, "\n") {
				t.Errorf("line %q", line)
			}
		}
	})
}
