package hang

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// margin is the smallest difference between two send or receive times of
// sockets from which hang concludes which came first. The kernel measures
// these times in steps of up to 10 ms.
const margin = 20 * time.Millisecond

// graph holds the tasks, and what connects them: TCP connections, listening
// sockets and processes. From these it derives which task waits for which.
type graph struct {
	tasks    []Task
	ends     map[end]int     // index of the task that owns each end of a TCP connection
	servers  map[end]int     // index of the task that listens at each address
	owners   map[process]int // index of the task that each process belongs to
	postures []posture       // posture (what a task does or waits for), indexed like tasks
}

// end identifies one end of a TCP connection. A loopback or unspecified local
// address is not unique among hosts. For such an address, host is the index of
// the host; for other addresses it is -1.
type end struct {
	host        int
	local, peer netip.AddrPort
}

// process identifies a process by the index of its host and its PID.
type process struct{ host, pid int }

func newGraph(tasks []Task) *graph {
	g := &graph{tasks: tasks, ends: map[end]int{}, servers: map[end]int{}, owners: map[process]int{}}
	for i, t := range tasks {
		if t.Seen == nil {
			continue
		}
		for _, p := range t.Seen.Processes {
			g.owners[process{t.HostIndex, p.PID}] = i
			for _, s := range p.Sockets {
				local, peer, ok := addresses(s)
				switch {
				case !ok:
				case s.Listening:
					g.servers[endOf(t.HostIndex, local, netip.AddrPort{})] = i
				default:
					g.ends[endOf(t.HostIndex, local, peer)] = i
				}
			}
		}
	}
	for i := range tasks {
		g.postures = append(g.postures, g.task(i))
	}
	return g
}

func addresses(s protocol.Socket) (local, peer netip.AddrPort, ok bool) {
	local, err1 := netip.ParseAddrPort(s.Local)
	peer, err2 := netip.ParseAddrPort(s.Peer)
	return local, peer, err1 == nil && err2 == nil
}

func endOf(host int, local, peer netip.AddrPort) end {
	if !local.Addr().IsLoopback() && !local.Addr().IsUnspecified() {
		host = -1
	}
	return end{host, local, peer}
}

// peer returns the index of the task at the other end of a socket of task i,
// or -1 if unknown.
func (g *graph) peer(i int, s protocol.Socket) int {
	local, remote, ok := addresses(s)
	if !ok || s.Listening {
		return -1
	}
	host := g.tasks[i].HostIndex
	if j, known := g.ends[endOf(host, remote, local)]; known {
		return j
	}
	if j, known := g.servers[endOf(host, remote, netip.AddrPort{})]; known && s.Opening {
		return j
	}
	return -1
}

// task returns the posture of task i: what it is doing or waiting for.
func (g *graph) task(i int) posture {
	t := g.tasks[i]
	switch {
	case t.Exit != nil && t.Exit.Native && t.Exit.Finished:
		return posture{rank: unclear, why: "it has ended: its work was done"}
	case t.Exit != nil && t.Exit.Signal != 0:
		return posture{rank: ended, why: fmt.Sprintf("it was ended by signal %d", t.Exit.Signal)}
	case t.Exit != nil:
		return posture{rank: ended, why: fmt.Sprintf("it exited with status %d while others still run", t.Exit.Code)}
	case t.Seen == nil:
		return posture{rank: unknown, why: "its host did not report what it does"}
	case len(t.Seen.Processes) == 0:
		return posture{rank: unknown, why: "its processes could not be read"}
	}
	p := g.process(i, &t.Seen.Processes[0], map[int]bool{})
	if p.rank > halted && t.Seen.Training != nil {
		return g.training(i)
	}
	if p.rank > active && computes(t.Seen) && !g.explicit(i) {
		return posture{rank: active, why: fmt.Sprintf("it computes, and has done nothing else for %s", formatDuration(t.Seen.IOIdle))}
	}
	return p
}

// training returns the posture (what a task does or waits for) of a task that
// uses plx's trainer. It reads from the task's stack traces whether the task
// waits inside a trainer call.
func (g *graph) training(i int) posture {
	at := g.tasks[i].Seen.Training
	switch {
	case g.serves(i):
		return posture{rank: unclear, why: "it serves, and waits for requests of workers"}
	case at.Waits:
		p := posture{rank: waiting, why: "it waits for other tasks, in a call of plx's trainer"}
		for j, t := range g.tasks {
			if t.Seen != nil && t.Seen.Training != nil && !t.Seen.Training.Waits && !g.serves(j) {
				p.waitsFor = append(p.waitsFor, j)
			}
		}
		return p
	case computes(g.tasks[i].Seen):
		return posture{rank: active, why: fmt.Sprintf("it computes, and has done nothing else for %s: %s", formatDuration(g.tasks[i].Seen.IOIdle), clean(at.Where))}
	}
	return posture{rank: active, why: "it does not take part in the step that the others wait for: " + clean(at.Where)}
}

// serves reports whether task i is a parameter server of plx's trainer.
func (g *graph) serves(i int) bool {
	t := g.tasks[i]
	return t.Name.Role == cluster.PS && t.Seen != nil && t.Seen.Training != nil
}

// computes reports whether a task uses the processor but does no I/O: its last
// I/O is more than four times as long ago as its last activity of any kind.
func computes(a *protocol.Activity) bool { return a.Idle < a.IOIdle/4 }

// explicit reports whether the main thread of task i waits on a socket that is
// connected to another task.
func (g *graph) explicit(i int) bool {
	p := g.tasks[i].Seen.Processes[0]
	if len(p.Threads) == 0 || p.Go {
		return false
	}
	return slices.ContainsFunc(p.Threads[0].Sockets, func(n int) bool {
		return n >= 0 && n < len(p.Sockets) && g.peer(i, p.Sockets[n]) >= 0
	})
}

// process returns the posture (what a task does or waits for) of process p of
// task i. The set seen has the PIDs already visited while following waits, to
// stop at cycles.
func (g *graph) process(i int, p *protocol.Process, seen map[int]bool) posture {
	seen[p.PID] = true
	who := fmt.Sprintf("%s (pid %d)", clean(p.Name), p.PID)
	if len(p.Threads) == 0 {
		return posture{rank: unclear, why: who + " has just ended"}
	}
	for _, t := range p.Threads {
		if t.Wait == protocol.Stopped {
			return posture{rank: halted, why: who + " is stopped, by SIGSTOP or a debugger"}
		}
	}
	first := p.Threads[0]
	switch first.Wait {
	case protocol.OnPoll:
		if p.Go {
			return g.lock(i, p, who, seen)
		}
	case protocol.InKernel:
		return posture{rank: halted, why: fmt.Sprintf("%s is stuck in the kernel%s: in a disk, a network file system or a driver", who, in(first))}
	case protocol.OnFile:
		return g.fileLock(i, who, first)
	case protocol.Sleeps:
		if sub := g.children(i, p, seen); sub.rank < alone || sub.rank == waiting && len(sub.waitsFor) > 0 {
			return sub
		}
		return posture{rank: active, why: "it sleeps: " + who + in(first)}
	case protocol.OnLock:
		return g.lock(i, p, who, seen)
	case protocol.Runs:
		return posture{rank: alone, why: who + " runs"}
	}
	return g.descriptors(i, p, who, seen)
}

// in returns the text " in FUNCTION" with the kernel function in which a
// thread waits. It returns "" if the function is unknown.
func in(t protocol.Thread) string {
	if t.Where == "" {
		return ""
	}
	return " in " + clean(t.Where)
}

// fileLock returns the posture of a process that waits for a file lock.
func (g *graph) fileLock(i int, who string, t protocol.Thread) posture {
	why := who + " waits for a lock on a file"
	if t.What != "" {
		why = who + " waits for a lock on " + clean(t.What)
	}
	for _, pid := range t.PIDs {
		if j, known := g.owners[process{g.tasks[i].HostIndex, pid}]; known && j != i {
			return posture{rank: waiting, why: fmt.Sprintf("%s that %s holds", why, g.tasks[j].Name), waitsFor: []int{j}, lock: true}
		}
		why += fmt.Sprintf(", which process %d holds", pid)
	}
	return posture{rank: halted, why: why}
}

// lock returns the posture (what a task does or waits for) of a process whose
// main thread waits for a lock of its own process. The lock does not show the
// cause of the wait. Therefore the method examines the process's other
// threads, sockets and child processes.
func (g *graph) lock(i int, p *protocol.Process, who string, seen map[int]bool) posture {
	for _, t := range p.Threads[1:] {
		if t.Wait == protocol.InKernel || t.Wait == protocol.OnFile {
			alone := *p
			alone.Threads = []protocol.Thread{t}
			return g.process(i, &alone, seen)
		}
	}
	all := make([]int, len(p.Sockets))
	for n := range all {
		all[n] = n
	}
	links, connected := g.sockets(i, p, all, false)
	if links.rank == cutOff || len(links.waitsFor) > 0 {
		return links
	}
	if sub := g.children(i, p, seen); sub.rank < alone || len(sub.waitsFor) > 0 {
		return sub
	}
	if connected {
		return posture{rank: waiting, ambiguous: links.ambiguous, why: who + " waits for a lock or condition of its own, and has answered none of the others" + links.why}
	}
	return posture{rank: alone, why: who + " waits for a lock or condition of its own process"}
}

// descriptors returns the posture (what a task does or waits for) of a process
// whose main thread waits on pipes, sockets or child processes.
func (g *graph) descriptors(i int, p *protocol.Process, who string, seen map[int]bool) posture {
	first := p.Threads[0]
	links, _ := g.sockets(i, p, first.Sockets, true)
	if links.rank == cutOff || len(links.waitsFor) > 0 {
		return links
	}
	if sub := g.follow(i, first.PIDs, seen); sub.rank <= alone || len(sub.waitsFor) > 0 {
		return sub
	}
	switch {
	case first.Wait == protocol.OnWrite && len(first.PIDs) > 0:
		return posture{rank: halted, why: fmt.Sprintf("%s writes to a full pipe that process %d does not read", who, first.PIDs[0])}
	case len(first.PIDs) > 0:
		return posture{rank: unclear, why: who + " waits for another process of its task"}
	case first.Wait == protocol.OnOther:
		return posture{rank: alone, why: who + " waits" + in(first)}
	case len(first.Sockets) > 0:
		return posture{rank: alone, why: who + " waits for something outside of the job: " + outside(p, first)}
	case first.What != "":
		return posture{rank: alone, why: fmt.Sprintf("%s waits (%s) for %s", who, first.Wait, clean(first.What))}
	}
	return posture{rank: alone, why: fmt.Sprintf("%s waits (%s)%s", who, first.Wait, in(first))}
}

// outside returns a text for the first socket that a thread waits on: the
// address at its other end, or "a socket".
func outside(p *protocol.Process, t protocol.Thread) string {
	for _, n := range t.Sockets {
		if n >= 0 && n < len(p.Sockets) {
			s := p.Sockets[n]
			if s.Listening {
				return "a connection to " + clean(s.Local)
			}
			return clean(s.Peer)
		}
	}
	return "a socket"
}

// follow examines the processes pids, for which a process of task i waits. If
// such a process belongs to task i, follow computes its posture (what it does
// or waits for). If it belongs to another task, the posture is that task i
// waits for that task. follow returns the posture with the lowest rank.
func (g *graph) follow(i int, pids []int, seen map[int]bool) posture {
	best := posture{rank: unclear}
	for _, pid := range pids {
		j, known := g.owners[process{g.tasks[i].HostIndex, pid}]
		var next posture
		switch {
		case !known || seen[pid]:
			continue
		case j != i:
			next = posture{rank: waiting, waitsFor: []int{j}}
		default:
			next = g.process(i, g.find(i, pid), seen)
		}
		if next.rank < best.rank {
			best = next
		}
	}
	return best
}

// children returns the posture (what a task does or waits for) of process p,
// which waits for its child processes. The method follow derives it from what
// the children do.
func (g *graph) children(i int, p *protocol.Process, seen map[int]bool) posture {
	var pids []int
	for _, c := range g.tasks[i].Seen.Processes {
		if c.Parent == p.PID {
			pids = append(pids, c.PID)
		}
	}
	return g.follow(i, pids, seen)
}

func (g *graph) find(i, pid int) *protocol.Process {
	all := g.tasks[i].Seen.Processes
	return &all[slices.IndexFunc(all, func(p protocol.Process) bool { return p.PID == pid })]
}

// sockets returns the posture (what a task does or waits for) of process p,
// judging by its sockets with the given indices. explicit says that the main
// thread waits on these sockets. connected reports whether one of the sockets
// is connected to another task.
func (g *graph) sockets(i int, p *protocol.Process, indices []int, explicit bool) (found posture, connected bool) {
	found.rank = waiting
	silent := time.Duration(-1)
	for _, n := range indices {
		if n < 0 || n >= len(p.Sockets) {
			continue
		}
		s := p.Sockets[n]
		j := g.peer(i, s)
		if lost(s) && (j >= 0 || explicit) {
			if found.rank != cutOff {
				found = posture{rank: cutOff, why: fmt.Sprintf("its connection to %s is stalled: the kernel has retransmitted %d times; the network or that host is down", g.peerName(j, s), s.Retries)}
			}
			if j >= 0 && !slices.Contains(found.waitsFor, j) {
				found.waitsFor = append(found.waitsFor, j)
			}
			connected = true
		}
		if found.rank == cutOff {
			continue
		}
		if j < 0 || j == i {
			continue
		}
		connected = true
		if silent < 0 || s.Sent < silent {
			silent = s.Sent
		}
		spoke := s.Sent+margin < s.Received || s.Unsent > 0 || s.Opening
		if s.Unread == 0 && (explicit || spoke) && !slices.Contains(found.waitsFor, j) {
			found.waitsFor = append(found.waitsFor, j)
		}
		if !spoke && s.Sent <= s.Received+margin {
			found.ambiguous = append(found.ambiguous, j)
		}
	}
	if silent >= 0 && found.rank != cutOff {
		found.why = fmt.Sprintf(" for %s", formatDuration(silent))
	}
	slices.Sort(found.waitsFor)
	return found, connected
}

// lost reports whether the kernel is retransmitting data or a connection
// request on the socket, because the peer does not acknowledge them.
func lost(s protocol.Socket) bool { return s.Retries > 0 && (s.Unsent > 0 || s.Opening) }

// peerName returns the name of task j, or the peer address of socket s if j is -1.
func (g *graph) peerName(j int, s protocol.Socket) string {
	if j < 0 {
		return clean(s.Peer)
	}
	return g.tasks[j].String()
}
