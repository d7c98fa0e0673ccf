// Package hang finds out why a job stands still: from what each task waits for it names
// the task that waits for none of the others.
//
//	advice := watch.Begin(plan)         // after advice.After, call Next
//	advice = watch.Next(tasks)          // send advice.Ask to the hosts, give answers to Heard
//	advice = watch.Judge(tasks, false)  // advice.Hang names the culprit, once there is one
//
// Watch compares how long all tasks have been still with the hang timeout.
//
// # How the culprit is found
//
// The tasks are the nodes of a graph. There is an edge from a task to each task that it
// waits for: the other end of a socket that its first thread reads, the holder of a lock on
// a file. A first thread that waits for a lock of its own process, as programs with a
// network thread do, tells nothing by itself. Then the sockets decide: of two tasks with a
// connection, the one that spoke last waits for the other.
//
// Tasks of plx's trainer tell more: whether their program is in a call that waits for others,
// or elsewhere, so that the others wait for it.
//
// Inside a task the same is done with its processes: one that waits for a child, or for a
// pipe that a child holds, leads to the child.
//
// A task with a reason of its own is the culprit: it is stopped, stuck in the kernel, waits
// for a lock that no task holds, sleeps, or computes while all others wait. Next come a
// task that has ended while others still wait, a host that does not answer, a connection
// that takes no bytes, and a task that others wait for and that waits for none. If tasks
// wait for one another in a circle, the culprit is the one for which most others wait; if
// several are, none is named.
//
// # What it refuses to do
//
// It does not decide what becomes of a job that hangs: package jobstate does. It reads
// nothing: agents collect what it is given. It names no culprit if all tasks do the same.
package hang

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// Task is one task of the job.
type Task struct {
	Name      cluster.Task
	Host      string             // name of its host
	HostIndex int                // index of its host among those of the job
	Exit      *protocol.Exit     // how it has ended; nil: it has not
	Seen      *protocol.Activity // what it does, with its processes; nil: its host has not told
}

func (t Task) String() string { return fmt.Sprintf("%s on %s", t.Name, t.Host) }

// rank says how far a posture explains a hang by itself. A lower one explains it better.
type rank int

const (
	halted  rank = iota // stopped, stuck in the kernel, or waits for a lock or pipe that no other task holds
	active              // sleeps or computes
	left                // has ended
	unheard             // its host has not told
	cut                 // its connections take no bytes
	inward              // waits for a lock of its own, or for something outside the job
	waiting             // waits for other tasks
	unclear             // waits for a process that waits for it
)

// posture is what a task, or one process of it, does.
type posture struct {
	rank rank
	why  string
	on   []int // tasks that it waits for, by index
	lock bool  // it waits for a lock on a file that another task holds
	near []int // tasks with which it last spoke at so nearly the same time that the order is not known
}

// maxLines bounds the lines of a verdict.
const maxLines = 64

// explain returns the verdict on tasks of which nothing has moved for some time.
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

// doing says what each task does: where its program is, or else what it waits for. Of the
// culprit the verdict says that.
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
		case p.rank == waiting && len(p.on) > 0:
			d.What = "waits for " + g.names(p.on)
		default:
			d.What = p.why
		}
		all = append(all, d)
	}
	return all
}

// maxStack bounds the lines of a stack in a verdict.
const maxStack = 8

// stack returns what the host of the culprit has told of its stacks, beside what why has.
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

// names lists tasks, the first few of many.
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

// culprit returns the index of the task to blame and why; -1 is none.
func (g *graph) culprit() (int, string) {
	if best := g.best(); best >= 0 && g.postures[best].rank <= inward {
		return best, g.postures[best].why
	} else if best >= 0 { // others have found its connections lost
		return best, fmt.Sprintf("it takes no bytes of %s: the network or its host is down", g.names(g.directly(best)))
	}
	if sink := g.sink(); sink >= 0 {
		return sink, g.owes(sink)
	}
	for i, p := range g.postures {
		if p.lock { // the others wait for it, and it for one of them: a collective cannot know of the lock
			return i, p.why
		}
	}
	if i := g.mostDirect(); i >= 0 {
		return i, fmt.Sprintf("it waits for %s, and is awaited by %s", g.names(g.postures[i].on), g.names(g.directly(i)))
	}
	if same := g.with(active); len(same) > 1 {
		return -1, "no task could be named: all tasks do the same: each " + strings.TrimPrefix(g.postures[same[0]].why, "it ")
	}
	return -1, "no task could be named: the tasks wait for one another"
}

// best returns the task with the best reason of its own, of equals the one for which most
// others wait; -1: none has a reason, or all that run have the same one.
func (g *graph) best() int {
	candidates := g.with(halted)
	if len(candidates) == 0 {
		candidates = g.with(active)
		if len(candidates) > 1 && len(candidates) == g.working() { // they may do so while they wait
			candidates = nil
		}
	}
	for _, r := range []rank{left, unheard} {
		if len(candidates) == 0 {
			candidates = g.with(r)
		}
	}
	if len(candidates) == 0 {
		candidates = g.mostCut()
	}
	if len(candidates) == 0 && g.sink() < 0 {
		candidates = g.with(inward)
	}
	return g.mostAwaited(candidates)
}

// mostCut returns the tasks that have lost the connections to most others: of two tasks
// that are cut off from each other, the one that is cut off from others too.
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

// lost reports whether task i has found its connection to task j to take no bytes.
func (g *graph) lost(i, j int) bool {
	return g.postures[i].rank == cut && slices.Contains(g.postures[i].on, j)
}

// mostAwaited returns the task for which most others wait; -1 if there are no candidates.
func (g *graph) mostAwaited(candidates []int) int {
	best := -1
	for _, i := range candidates {
		if best < 0 || slices.Compare(g.awaited(i), g.awaited(best)) > 0 {
			best = i
		}
	}
	return best
}

// awaited counts the tasks that wait for a task, and those of them that do so directly.
func (g *graph) awaited(i int) []int { return []int{g.waiters(i), len(g.directly(i))} }

// with returns the tasks with a posture of this rank.
func (g *graph) with(r rank) (found []int) {
	for i, p := range g.postures {
		if p.rank == r {
			found = append(found, i)
		}
	}
	return found
}

// working counts the tasks that run and are known, without servers of plx's trainer.
func (g *graph) working() (n int) {
	for i, t := range g.tasks {
		if t.Exit == nil && t.Seen != nil && !g.serves(i) {
			n++
		}
	}
	return n
}

// waiters counts the tasks that wait for a task, directly or through others.
func (g *graph) waiters(i int) int {
	reached := map[int]bool{i: true}
	for again := true; again; {
		again = false
		for j, p := range g.postures {
			if !reached[j] && slices.ContainsFunc(p.on, func(k int) bool { return reached[k] }) {
				reached[j], again = true, true
			}
		}
	}
	return len(reached) - 1
}

// sink returns the task that waits for none and for which most others wait; -1: none.
func (g *graph) sink() int {
	var sinks []int
	for i, p := range g.postures {
		if len(p.on) == 0 && p.rank >= inward && g.waiters(i) > 0 {
			sinks = append(sinks, i)
		}
	}
	sink := g.mostAwaited(sinks)
	if sink >= 0 {
		return g.behind(sink)
	}
	return sink
}

// behind returns the task for which a sink waits, if only the kernel's clock was too coarse
// to show that: one that waits for none, for which nobody else waits, and that last spoke
// with the sink when the sink spoke with it. If it waited for the sink it would have spoken
// since, as the tasks have that do. Without such a task it returns the sink.
func (g *graph) behind(sink int) int {
	found := sink
	for _, i := range g.postures[sink].near {
		p := g.postures[i]
		if len(p.on) > 0 || p.rank < inward || !slices.Contains(p.near, sink) || g.waiters(i) > 0 {
			continue
		}
		if found != sink {
			return sink // of two neither is the one
		}
		found = i
	}
	return found
}

// owes says why a task that waits for none is to blame: others wait for it.
func (g *graph) owes(sink int) string {
	waiters := g.directly(sink)
	if len(waiters) == 0 { // see behind
		waiters = g.postures[sink].near
	}
	return fmt.Sprintf("%s; it is awaited by %s", g.postures[sink].why, g.names(waiters))
}

// directly returns the tasks that wait for a task, without those that do through others.
func (g *graph) directly(i int) (waiters []int) {
	for j, p := range g.postures {
		if slices.Contains(p.on, i) {
			waiters = append(waiters, j)
		}
	}
	return waiters
}

// mostDirect returns the task in a circle for which more others wait than for any other;
// -1: there is none.
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

// clean makes a text of an agent fit for one line.
func clean(text string) string {
	text = strings.ReplaceAll(text, "\n", " ")
	return text[:min(len(text), 400)]
}

// ago is a duration for a line.
func ago(d time.Duration) string {
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
