// Package hang finds out why a job makes no progress. From what each task
// waits for, it determines the task that blocks the others (the culprit).
//
//	advice := watch.Begin(plan)         // after advice.After, call Next
//	advice = watch.Next(tasks)          // send advice.Ask to the hosts, pass their answers to Heard
//	advice = watch.Judge(tasks, false)  // advice.Hang names the culprit, once it is known
//
// Watch compares the time since the last activity of any task with the hang
// timeout.
//
// # How the culprit is found
//
// The tasks are the nodes of a graph. An edge leads from a task to each task
// that it waits for. A task waits for another if its main thread reads from a
// socket whose other end the other task holds, or needs a file lock that the
// other task holds.
//
// In a program with a separate network thread, the main thread waits for a
// lock of its own process, which does not show the cause. For such a process,
// the package looks at the sockets: of two connected tasks, the one that sent
// data last waits for the other.
//
// Tasks that use plx's trainer show more in their stack traces. If the program
// is in a trainer call that waits for other tasks, it waits. If it is
// elsewhere, the other tasks wait for it.
//
// The processes within a task are examined in the same way. A process may wait
// for a child process, or for a pipe that the child holds. Then the package
// examines the child.
//
// The first candidates for the culprit are tasks that do not wait for other
// tasks. Such a task is stopped, is stuck in the kernel, waits for a lock that
// no task holds, sleeps, or computes while all others wait.
//
// If there is no such task, the culprit is one of these, in this order: a task
// that has ended while others still wait for it, a task on a host that does
// not answer, a task whose connections transfer no data, or a task that others
// wait for and that waits for none. If tasks wait for one another in a cycle,
// the culprit is the task that most others wait for. If two tasks are equal in
// this, the package blames none.
//
// # What the package does not do
//
// It does not decide what happens to a job that hangs; package jobstate does.
// It does no I/O: the agents collect the data. It blames no task if all tasks
// do the same.
package hang

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// Task is one task of the job, with what its host has reported about it.
type Task struct {
	Name      cluster.Task
	Host      string             // name of the task's host
	HostIndex int                // index of the task's host among those of the job
	Exit      *protocol.Exit     // exit of the task; nil if it is still running
	Seen      *protocol.Activity // current activity of the task, with its processes; nil if its host has not answered
}

func (t Task) String() string { return fmt.Sprintf("%s on %s", t.Name, t.Host) }

// rank orders postures (what a task does or waits for) by how well they
// explain that the job hangs. The lowest rank explains it best.
type rank int

const (
	halted  rank = iota // stopped, stuck in the kernel, or waiting for a lock or pipe that no other task holds
	active              // sleeping or computing
	ended               // the task has ended
	unknown             // the task's host has not answered
	cutOff              // the task's connections transfer no data
	alone               // waiting for a lock of its own process, or for something outside the job
	waiting             // waiting for other tasks
	unclear             // finished, serving requests, or waiting for a process of its own task without a known cause
)

// posture describes what a task, or one of its processes, is doing or waiting
// for.
type posture struct {
	rank      rank
	why       string
	waitsFor  []int // indices of the tasks that the task with this posture waits for
	lock      bool  // true if the task waits for a file lock that another task holds
	ambiguous []int // indices of tasks with which the task exchanged data last; the times are too close to tell which of the two tasks sent last
}

// maxLines is the largest number of lines in protocol.Hang.Waits.
const maxLines = 64

// explain finds the culprit (the task to blame) among the tasks. after is how
// long none of them has shown activity.
func explain(tasks []Task, after time.Duration) protocol.Hang {
	g := newGraph(tasks)
	culprit, why := g.culprit()
	verdict := protocol.Hang{After: after.Round(time.Second), Why: why}
	if culprit >= 0 {
		verdict.Culprit, verdict.Host = tasks[culprit].Name.String(), tasks[culprit].Host
		verdict.Stack, verdict.File = stack(tasks[culprit].Seen, why)
	}
	verdict.Waits = Groups(g.doing(culprit))
	verdict.Waits = verdict.Waits[:min(len(verdict.Waits), maxLines)]
	return verdict
}

// doing describes what each task is doing: its position in the program if
// known, otherwise what it waits for. It omits the culprit if the culprit's
// position is unknown, because Hang.Why already describes it.
func (g *graph) doing(culprit int) (all []Doing) {
	for i, t := range g.tasks {
		d := Doing{Task: t.Name, Host: t.Host}
		if t.Exit == nil && t.Seen != nil {
			d.What = clean(strings.Join(t.Seen.Places, "; "))
		}
		switch p := g.postures[i]; {
		case d.What != "":
		case i == culprit:
			continue
		case p.rank == waiting && len(p.waitsFor) > 0:
			d.What = "waits for " + g.names(p.waitsFor)
		default:
			d.What = p.why
		}
		all = append(all, d)
	}
	return all
}

// maxStack is the largest number of stack trace lines in protocol.Hang.Stack.
const maxStack = 8

// stack returns the lines of the culprit's stack trace, without lines that the
// text why already contains. file is the path of the file with the full stack
// traces.
func stack(seen *protocol.Activity, why string) (lines []string, file string) {
	if seen == nil {
		return nil, ""
	}
	for _, line := range seen.Excerpt[:min(len(seen.Excerpt), maxStack)] {
		if line = clean(line); !strings.Contains(why, line) {
			lines = append(lines, line)
		}
	}
	return lines, clean(seen.File)
}

// names returns the names of up to four tasks, followed by the number of
// further tasks.
func (g *graph) names(tasks []int) string {
	const most = 4
	var names []string
	for _, i := range tasks[:min(len(tasks), most)] {
		names = append(names, g.tasks[i].Name.String())
	}
	text := strings.Join(names, ", ")
	if more := len(tasks) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// culprit returns the index of the task to blame and the explanation. The
// index is -1 if no task can be blamed.
func (g *graph) culprit() (int, string) {
	if best := g.best(); best >= 0 && g.postures[best].rank <= alone {
		return best, g.postures[best].why
	} else if best >= 0 { // the task did not report this posture itself: other tasks report that their connections to it transfer no data
		return best, fmt.Sprintf("it does not acknowledge data from %s: the network or its host is down", g.names(g.directly(best)))
	}
	if sink := g.sink(); sink >= 0 {
		return sink, g.blameSink(sink)
	}
	for i, p := range g.postures {
		if p.lock { // the tasks wait for each other in a cycle; a collective operation takes no file lock, so this task's wait for a lock is the cause
			return i, p.why
		}
	}
	if i := g.mostDirect(); i >= 0 {
		return i, fmt.Sprintf("it waits for %s, and is awaited by %s", g.names(g.postures[i].waitsFor), g.names(g.directly(i)))
	}
	if same := g.with(active); len(same) > 1 {
		return -1, "no task could be named: all tasks do the same: each " + strings.TrimPrefix(g.postures[same[0]].why, "it ")
	}
	return -1, "no task could be named: the tasks wait for one another"
}

// best returns the index of the task whose posture (what it does or waits for)
// explains the hang best. Among tasks of the same rank, it prefers the one
// that most others wait for. It returns -1 if no posture explains the hang, or
// if all running tasks compute or sleep.
func (g *graph) best() int {
	candidates := g.with(halted)
	if len(candidates) == 0 {
		candidates = g.with(active)
		if len(candidates) > 1 && len(candidates) == g.working() { // all tasks compute or sleep: no culprit, because some programs compute or sleep while they wait
			candidates = nil
		}
	}
	for _, r := range []rank{ended, unknown} {
		if len(candidates) == 0 {
			candidates = g.with(r)
		}
	}
	if len(candidates) == 0 {
		candidates = g.mostCut()
	}
	if len(candidates) == 0 && g.sink() < 0 {
		candidates = g.with(alone)
	}
	return g.mostAwaited(candidates)
}

// mostCut returns the tasks that have broken connections to the largest number
// of other tasks. If two tasks cannot reach each other, this blames the one
// that further tasks cannot reach either.
func (g *graph) mostCut() (tasks []int) {
	most := 1
	for i := range g.postures {
		n := 0
		for j := range g.postures {
			if g.lost(i, j) || g.lost(j, i) {
				n++
			}
		}
		switch {
		case n > most:
			most, tasks = n, []int{i}
		case n == most:
			tasks = append(tasks, i)
		}
	}
	return tasks
}

// lost reports whether task i has a connection to task j that transfers no
// data.
func (g *graph) lost(i, j int) bool {
	return g.postures[i].rank == cutOff && slices.Contains(g.postures[i].waitsFor, j)
}

// mostAwaited returns the candidate that most others wait for, or -1 if there
// are no candidates.
func (g *graph) mostAwaited(candidates []int) int {
	best := -1
	for _, i := range candidates {
		if best < 0 || slices.Compare(g.awaited(i), g.awaited(best)) > 0 {
			best = i
		}
	}
	return best
}

// awaited returns two numbers by which candidates are compared: how many tasks
// wait for task i at all, and how many wait for it directly.
func (g *graph) awaited(i int) []int { return []int{g.waiters(i), len(g.directly(i))} }

// with returns the tasks whose posture has rank r.
func (g *graph) with(r rank) (found []int) {
	for i, p := range g.postures {
		if p.rank == r {
			found = append(found, i)
		}
	}
	return found
}

// working returns the number of running tasks whose activity is known. It does
// not count the parameter servers of plx's trainer.
func (g *graph) working() (n int) {
	for i, t := range g.tasks {
		if t.Exit == nil && t.Seen != nil && !g.serves(i) {
			n++
		}
	}
	return n
}

// waiters returns the number of tasks that wait for task i, directly or
// through other tasks.
func (g *graph) waiters(i int) int {
	reached := map[int]bool{i: true}
	for again := true; again; {
		again = false
		for j, p := range g.postures {
			if !reached[j] && slices.ContainsFunc(p.waitsFor, func(k int) bool { return reached[k] }) {
				reached[j], again = true, true
			}
		}
	}
	return len(reached) - 1
}

// sink returns a task that other tasks wait for and that itself waits for
// none. Among several such tasks, it returns the one that most others wait
// for. It returns -1 if there is none. That task may wait for another although
// the graph does not show it. If behindSink finds this other task, sink
// returns the other task.
func (g *graph) sink() int {
	var sinks []int
	for i, p := range g.postures {
		if len(p.waitsFor) == 0 && p.rank >= alone && g.waiters(i) > 0 {
			sinks = append(sinks, i)
		}
	}
	sink := g.mostAwaited(sinks)
	if sink >= 0 {
		return g.behindSink(sink)
	}
	return sink
}

// behindSink returns the task to blame if the task sink seems to wait for no
// other. The kernel's clock is coarse, so a wait of sink for another task may
// be invisible. If exactly one task may be that other task, behindSink returns
// it. Otherwise it returns sink.
//
// That other task waits for no task, and no task is known to wait for it. It
// exchanged data with sink so close in time that the order is unknown.
func (g *graph) behindSink(sink int) int {
	found := sink
	for _, i := range g.postures[sink].ambiguous {
		p := g.postures[i]
		if len(p.waitsFor) > 0 || p.rank < alone || !slices.Contains(p.ambiguous, sink) || g.waiters(i) > 0 {
			continue
		}
		if found != sink {
			return sink // two tasks qualify, so neither can be blamed
		}
		found = i
	}
	return found
}

// blameSink returns the explanation for blaming the task sink: it waits for no
// task, and other tasks wait for it.
func (g *graph) blameSink(sink int) string {
	waiters := g.directly(sink)
	if len(waiters) == 0 { // behindSink has chosen this task, although no task is known to wait for it: name the tasks that may wait
		waiters = g.postures[sink].ambiguous
	}
	return fmt.Sprintf("%s; it is awaited by %s", g.postures[sink].why, g.names(waiters))
}

// directly returns the tasks that wait for task i directly, not through other
// tasks.
func (g *graph) directly(i int) (waiters []int) {
	for j, p := range g.postures {
		if slices.Contains(p.waitsFor, i) {
			waiters = append(waiters, j)
		}
	}
	return waiters
}

// mostDirect returns the task for which the largest number of others waits
// directly. It serves for tasks that wait in a cycle. It returns -1 if several
// tasks share that number.
func (g *graph) mostDirect() int {
	best, most, same := -1, 1, false
	for i := range g.postures {
		switch n := len(g.directly(i)); {
		case n > most:
			best, most, same = i, n, false
		case n == most:
			same = true
		}
	}
	if same {
		return -1
	}
	return best
}

// clean shortens a text from an agent to one line of at most 400 bytes.
func clean(text string) string {
	text = strings.ReplaceAll(text, "\n", " ")
	return text[:min(len(text), 400)]
}

// formatDuration formats a duration for a message, rounded to 100 ms below 10 s and to
// seconds above.
func formatDuration(d time.Duration) string {
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
