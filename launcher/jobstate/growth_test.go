package jobstate

import (
	"encoding/json"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// simulation plays the agents of a job with many hosts to a Machine, and
// counts the messages. A timer expires only when no event is left.
type simulation struct {
	t       *testing.T
	m       *Machine
	workers int             // per host
	answers []Event         // events from agents that the machine has not handled yet
	ended   map[string]bool // tasks of this generation that have ended
	timers  map[Timer]bool
	verdict *protocol.Verdict
	costs   []cost // one for each phase

	starts map[*protocol.Start]int // their bytes: hosts are sent the same one
}

// cost counts what one phase of a simulated job has cost the driver.
type cost struct {
	phase    string
	hosts    int           // of the job
	events   int           // that the machine took
	commands int           // that it returned
	sent     int           // messages to agents
	dials    int           // between agents, for checks
	bytes    int           // of messages to agents
	largest  int           // bytes of the largest of them
	spent    time.Duration // in Machine.Step
	taken    int           // bytes of memory that Step took, also those that it gave back
}

func (c cost) perHost(n int) float64 { return float64(n) / float64(c.hosts) }

// simulate plays a job: start, a step, a question what its tasks do, a failure of a worker
// and the restart, a lost host and the restart without it, 16 more hosts, and a failure
// that ends the job.
func simulate(t *testing.T, hosts, workers int) []cost {
	plan := protocol.Plan{Job: "simulated", Grace: 10 * time.Second, Settle: time.Second, StartTimeout: time.Hour, Lease: 30 * time.Second,
		Restarts: protocol.Restarts{Max: 2, MinWorkers: 1, Backoff: time.Second}, Hang: protocol.HangPlan{Timeout: time.Minute, Action: protocol.HangReport}}
	for h := range hosts {
		plan.Hosts = append(plan.Hosts, simulatedHost(h, workers))
	}
	s := &simulation{t: t, m: New(plan), workers: workers, ended: map[string]bool{}, timers: map[Timer]bool{}, starts: map[*protocol.Start]int{}}
	s.phase("start", func() {
		for h := range hosts {
			s.answer(Up{Host: h, State: s.state(h)})
		}
	})
	s.phase("step", func() { s.say(cluster.ControlMessage{Kind: cluster.Heartbeat, Step: 1}) })
	s.phase("question", func() { s.do(s.step(Elapsed{Timer: hangTimer})) })
	s.phase("failure", s.fail)
	s.phase("restart", func() { s.elapse(settleTimer, backoffTimer) })
	s.say(cluster.ControlMessage{Kind: cluster.Heartbeat, Step: 2, From: 1})
	s.drain()
	s.phase("lost host", func() {
		s.do(s.step(Lost{Host: hosts / 2, Cause: "not heard for 30s", Clear: time.Second}))
		s.drain()
		s.elapse(settleTimer, clearTimer(hosts/2), backoffTimer, reviveTimer)
	})
	s.say(cluster.ControlMessage{Kind: cluster.Heartbeat, Step: 3, From: 2})
	s.drain()
	s.phase("16 more hosts", func() {
		ask := protocol.Scale{ID: "more", Known: hosts, SaveTime: time.Minute}
		for h := range 16 {
			ask.Join = append(ask.Join, protocol.Joining{HostPlan: simulatedHost(hosts+h, workers)})
		}
		s.do(s.step(Heard{Host: 0, Message: protocol.Message{Scale: &ask}}))
		s.drain()
		s.say(cluster.ControlMessage{Kind: cluster.Heartbeat, Step: 4, From: 3})
	})
	s.phase("end", func() {
		s.fail()
		s.drain()
		s.elapse(settleTimer)
	})
	if tasks := (hosts + 15) * workers; s.verdict == nil || s.m.generation.number != 3 || len(s.verdict.Victims)+s.verdict.MoreVictims != tasks-1 {
		t.Fatalf("%d hosts: after generation %d of %d tasks the verdict is %+v", hosts, s.m.generation.number, tasks, s.verdict)
	}
	return s.costs
}

func simulatedHost(h, workers int) protocol.HostPlan {
	p := protocol.HostPlan{Host: fmt.Sprint("h", h), Folder: fmt.Sprintf("h%d-22", h), Line: fmt.Sprintf("h%d", h),
		Binary: ".plx/blobs/0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}
	for rank := range workers {
		p.Tasks = append(p.Tasks, protocol.TaskSpec{Task: cluster.Task{Role: cluster.Worker, Index: h*workers + rank}, LocalRank: rank, Devices: fmt.Sprint(rank)})
	}
	return p
}

// address is one of a private network, at a port that the kernel has chosen.
func address(h, port int) string {
	random := rand.New(rand.NewPCG(uint64(h), uint64(port)))
	return fmt.Sprintf("10.%d.%d.%d:%d", h>>16, h>>8&255, h&255, 32768+random.IntN(28232))
}

func (s *simulation) state(h int) protocol.State {
	return protocol.State{Host: s.m.hosts[h].name(), Addr: address(h, 0), Phase: protocol.Idle, Generation: s.m.generation.number}
}

// phase plays a part of the job until nothing is left to be done, and counts.
func (s *simulation) phase(name string, play func()) {
	s.costs = append(s.costs, cost{phase: name, hosts: len(s.m.hosts)})
	play()
	s.drain()
	s.costs[len(s.costs)-1].hosts = len(s.m.hosts)
}

func (s *simulation) now() *cost { return &s.costs[len(s.costs)-1] }

func (s *simulation) answer(e Event) { s.answers = append(s.answers, e) }

func (s *simulation) hear(h int, m protocol.Message) { s.answer(Heard{Host: h, Message: m}) }

// drain passes the queued events to the machine until none is left.
func (s *simulation) drain() {
	for len(s.answers) > 0 {
		e := s.answers[0]
		s.answers = s.answers[1:]
		s.do(s.step(e))
	}
}

func (s *simulation) elapse(timers ...Timer) {
	for _, timer := range timers {
		if s.timers[timer] {
			delete(s.timers, timer)
			s.do(s.step(Elapsed{Timer: timer}))
			s.drain()
		}
	}
}

// step gives the machine one event.
func (s *simulation) step(e Event) []Command {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begun := time.Now()
	commands := s.m.Step(e)
	s.now().spent += time.Since(begun)
	runtime.ReadMemStats(&after)
	s.now().taken += int(after.TotalAlloc - before.TotalAlloc)
	s.now().events++
	s.now().commands += len(commands)
	return commands
}

// do plays the agents' reactions to commands.
func (s *simulation) do(commands []Command) {
	for _, c := range commands {
		switch c := c.(type) {
		case Send:
			s.count(c.Message)
			s.react(c.Host, c.Message)
		case SetTimer:
			s.timers[c.Timer] = true
		case Join:
			s.answer(Up{Host: c.Host, State: protocol.State{Addr: address(c.Host, 0), Phase: protocol.Idle}})
		case Lay:
			s.ended = map[string]bool{}
		case Conclude:
			s.verdict = &c.Verdict
			for range s.m.hosts {
				s.count(protocol.Message{End: &protocol.End{Verdict: c.Verdict}})
			}
		}
	}
}

// count counts a message to an agent.
func (s *simulation) count(m protocol.Message) {
	size, known := s.starts[m.Start]
	if !known || m.Start == nil {
		text, err := json.Marshal(m)
		if err != nil {
			s.t.Fatal(err)
		}
		size = len(text)
		s.starts[m.Start] = size
	}
	s.now().sent++
	s.now().bytes += size
	s.now().largest = max(s.now().largest, size)
	if m.Check != nil {
		s.now().dials += len(m.Check.Peers)
	}
}

// react queues the answer of the agent on host h to message m.
func (s *simulation) react(h int, m protocol.Message) {
	generation, tasks := s.m.generation.number, s.m.hosts[h].tasks
	switch {
	case m.Prepare != nil:
		p := &protocol.Prepared{Generation: generation, Open: map[cluster.Task]string{}, Reserved: map[cluster.Task]string{}}
		for rank, t := range tasks {
			p.Open[t.Task], p.Reserved[t.Task] = address(h, 1+2*rank), address(h, 2+2*rank)
		}
		s.hear(h, protocol.Message{Prepared: p})
	case m.Check != nil:
		s.hear(h, protocol.Message{Checked: &protocol.Checked{Generation: generation}})
	case m.Start != nil:
		s.hear(h, protocol.Message{Started: &protocol.Started{Generation: generation}})
	case m.Look != nil:
		seen := &protocol.ActivityReport{ID: m.Look.ID, Generation: generation, Tasks: map[cluster.Task]*protocol.Activity{}}
		for _, t := range tasks {
			seen.Tasks[t.Task] = &protocol.Activity{}
		}
		s.hear(h, protocol.Message{Seen: seen})
	case m.Stop != nil:
		for _, t := range tasks {
			s.exit(h, protocol.Exit{Task: t.Task, Generation: generation, Started: true, Native: true, StopRequested: true})
		}
	case m.Checkpoint != nil:
		said := protocol.TaskMessage{Task: cluster.Chief, Generation: generation, Message: cluster.ControlMessage{Kind: cluster.Checkpoint, Request: m.Checkpoint.Request, Hold: true, Step: 3}}
		s.hear(h, protocol.Message{TaskReport: &said})
	}
}

// fail makes every task fail; all but the chief name the chief as their lost
// peer.
func (s *simulation) fail() {
	for h := range s.m.hosts {
		for _, task := range s.m.hosts[h].tasks {
			e := protocol.Exit{Task: task.Task, Generation: s.m.generation.number, Started: true, Native: true, Code: 1}
			if !task.Task.IsChief() {
				e.LostPeer, e.Cause = "worker:0 on h0", "lost worker:0"
			}
			s.exit(h, e)
		}
	}
}

// say makes every task send the message m.
func (s *simulation) say(m cluster.ControlMessage) {
	for h, host := range s.m.hosts {
		for _, t := range host.tasks {
			s.hear(h, protocol.Message{TaskReport: &protocol.TaskMessage{Task: t.Task, Generation: s.m.generation.number, Message: m}})
		}
	}
}

// exit ends a task, once.
func (s *simulation) exit(h int, e protocol.Exit) {
	if name := e.Task.String(); !s.ended[name] && !s.m.hosts[h].lost {
		s.ended[name] = true
		s.hear(h, protocol.Message{Exited: &e})
	}
}

// For each host, the number of messages and the memory per event do not grow
// with the number of hosts. The number of connection checks grows
// logarithmically. Only the addresses of all tasks, which every host receives,
// grow linearly.
func TestCostPerHost(t *testing.T) {
	small := simulate(t, 64, 1)
	for _, hosts := range []int{64, 160} {
		for i, c := range simulate(t, hosts, 1) {
			few := small[i]
			t.Logf("%4d hosts, %-13s %.1f events, %.1f messages, %.0f bytes, %.1f dials a host; %d bytes of memory an event",
				hosts, c.phase+":", c.perHost(c.events), c.perHost(c.sent), c.perHost(c.bytes), c.perHost(c.dials), c.taken/c.events)
			if most := few.perHost(few.sent) + 0.5; c.perHost(c.sent) > most {
				t.Errorf("%d hosts, %s: %.1f messages a host, want %.1f at most", hosts, c.phase, c.perHost(c.sent), most)
			}
			if most := few.perHost(few.events) + 0.5; c.perHost(c.events) > most {
				t.Errorf("%d hosts, %s: %.1f events a host, want %.1f at most", hosts, c.phase, c.perHost(c.events), most)
			}
			if most := few.perHost(few.commands) + 0.5; c.perHost(c.commands) > most {
				t.Errorf("%d hosts, %s: %.1f commands a host, want %.1f at most", hosts, c.phase, c.perHost(c.commands), most)
			}
			if most := float64(bits.Len(uint(c.hosts)) + 2); c.perHost(c.dials) > most {
				t.Errorf("%d hosts, %s: %.1f dials a host, want %.1f at most", hosts, c.phase, c.perHost(c.dials), most)
			}
			if most := few.perHost(few.bytes) + float64(16*(c.hosts-few.hosts)); c.phase != "end" && c.perHost(c.bytes) > most {
				t.Errorf("%d hosts, %s: %.0f bytes a host, want %.0f at most", hosts, c.phase, c.perHost(c.bytes), most)
			}
			if most := 2*few.taken/few.events + 1000; c.taken/c.events > most {
				t.Errorf("%d hosts, %s: an event takes %d bytes, want %d at most", hosts, c.phase, c.taken/c.events, most)
			}
		}
	}
}
