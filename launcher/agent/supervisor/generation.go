//go:build linux

package supervisor

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// generation prepares and starts the tasks of this host for each generation
// (run of all tasks). The driver, which controls the job, begins a new
// generation whenever it restarts the tasks.
type generation struct {
	*parts
	tasks  *tasks
	noData error // why the agent cannot listen for connections from other hosts; nil if it listens

	layout    protocol.Prepare   // the driver's latest Prepare message; this host has prepared its generation or is preparing it
	prepared  *protocol.Prepared // reply to the last successful Prepare; nil before the first one
	used      map[string]bool    // addresses reserved for tasks in any generation (run of all tasks) so far; only openSockets accesses it
	preparing bool               // true while openSockets runs in the background; a new Prepare message then waits in next
	next      *protocol.Prepare  // the latest Prepare message that waits while preparing is true; nil if none waits
}

// prepare kills all tasks of the previous generation (run of all tasks) and
// opens the sockets for the next one. If the driver (the process that controls
// the job) repeats a request, prepare repeats its reply. It rejects a
// generation that has already ended.
func (g *generation) prepare(m protocol.Prepare) {
	switch {
	case g.record.ending():
		return // the job ends, so the driver (the process that controls it) expects no reply
	case m.Generation < g.record.Least:
		g.answer(failedPrepare(m, fmt.Errorf("generation %d is over, the next one here is %d", m.Generation, g.record.Least)))
		return
	case g.preparing:
		g.next = &m
		return
	case g.record.Phase == protocol.Ready && g.prepared.Generation == m.Generation:
		g.answer(g.prepared)
		return
	}
	g.preparing, g.layout = true, m
	g.record.Least = m.Generation // never prepare an earlier generation (run of all tasks) again
	g.record.enter(protocol.Idle)
	g.tasks.clear("the generation before", func(err error) {
		if err != nil {
			g.sessions.notice(fmt.Sprintf("close the logs: %v", err))
		}
		obstacle := g.tasks.retire()
		g.loop.background(func() {
			tasks, answer := g.openSockets(m, obstacle)
			g.loop.do(func() { g.ready(tasks, answer) })
		})
	})
}

// reported returns the metrics that a task has reported in earlier generations
// (runs of all tasks).
func (g *generation) reported(t cluster.Task) *reported {
	history, err := g.host.folder.ReadMetrics(t)
	if err != nil {
		g.host.log.Print(err) // the next save replaces the damaged file
	}
	return newReported(history, g.host.patterns)
}

// openSockets creates the tasks of a generation (run of all tasks). Each task
// gets a working folder and two sockets: one to listen on, and one that
// reserves a second port. If err is not nil, openSockets creates nothing and
// returns a reply that contains err.
func (g *generation) openSockets(m protocol.Prepare, err error) (map[cluster.Task]*task, *protocol.Prepared) {
	if err == nil && len(m.Tasks) > 0 {
		err = g.noData
	}
	if err == nil {
		err = g.host.folder.Provision(context.Background(), g.host.spec, m.Tasks)
	}
	answer := &protocol.Prepared{Generation: m.Generation, Open: map[cluster.Task]string{}, Reserved: map[cluster.Task]string{}}
	tasks := map[cluster.Task]*task{}
	for _, spec := range m.Tasks {
		if err != nil {
			break
		}
		var t *task
		if t, err = newTask(spec, m.Generation, g.host.place, g.used, g.reported(spec.Task)); err == nil {
			tasks[spec.Task] = t
			answer.Open[spec.Task], answer.Reserved[spec.Task] = t.open.Addr, t.reserved.Addr
		}
	}
	if err == nil {
		return tasks, answer
	}
	for _, t := range tasks {
		t.closeSockets()
	}
	return nil, failedPrepare(m, err)
}

func failedPrepare(m protocol.Prepare, err error) *protocol.Prepared {
	return &protocol.Prepared{Generation: m.Generation, Error: err.Error()}
}

// ready stores the tasks that openSockets created, and sends the reply to the
// driver (the process that controls the job).
func (g *generation) ready(tasks map[cluster.Task]*task, answer *protocol.Prepared) {
	g.preparing = false
	if answer.Error == "" {
		g.prepared = answer
		g.tasks.all = tasks
		g.record.Generation = answer.Generation
		g.record.enter(protocol.Ready)
	}
	g.answer(answer)
	if next := g.next; next != nil {
		g.next = nil
		g.prepare(*next)
	}
}

func (g *generation) answer(p *protocol.Prepared) {
	g.sessions.sendToDriver(protocol.Message{Prepared: p})
}

// start starts all tasks of the prepared generation (run of all tasks). If the
// driver (the process that controls the job) repeats the request, start
// repeats its reply.
func (g *generation) start(m protocol.Start) {
	switch {
	case g.record.ending():
		return
	case g.record.Phase == protocol.Running && g.record.Generation == m.Generation: // the tasks run already; the driver (the process that controls the job) has lost the first reply and repeats its request
	case g.record.Phase == protocol.Ready && g.record.Generation == m.Generation:
		g.record.Least = m.Generation + 1 // never prepare this generation (run of all tasks) again, because it has started
		g.record.enter(protocol.Running)
		g.tasks.start(g.layout, m)
		g.gcLater()
	default:
		g.sessions.notice(fmt.Sprintf("cannot start generation %d: this host is %s at generation %d", m.Generation, g.record.Phase, g.record.Generation))
		return
	}
	pids := map[cluster.Task]int{} // a task that failed to start has no pid; its Exit message reports the failure
	for _, t := range g.tasks.launched() {
		pids[t.Task] = t.child.PID
	}
	g.sessions.sendToDriver(protocol.Message{Started: &protocol.Started{Generation: m.Generation, PIDs: pids}})
}

// gcAfter is the time between the start of the tasks and the start of "agent
// gc", which removes unused cached files. If the job ends sooner, "agent gc"
// does not run.
const gcAfter = 300 * time.Millisecond

// gcLater starts "agent gc", which removes unused cached files, if tasks of
// the first generation (run of all tasks) run for longer than gcAfter. "agent
// gc" is a child process like a task, so it is killed with the tasks.
func (g *generation) gcLater() {
	if g.record.Generation > 0 {
		return
	}
	g.loop.background(func() {
		if within(gcAfter, g.loop.quit) {
			return
		}
		g.loop.do(func() {
			if g.record.ending() || g.preparing || g.record.Generation > 0 || !g.tasks.alive() || !gcDue() {
				return
			}
			if err := g.host.startGC(); err != nil {
				g.host.log.Print(err)
			}
		})
	})
}

// gcDue reports whether enough time has passed since the last "agent gc". The
// check avoids starting a process that would do nothing.
func gcDue() bool {
	root, err := jobfolder.Root()
	if err != nil {
		return false
	}
	file, err := os.Stat(jobfolder.LastGC(root))
	return err != nil || jobfolder.GCDue(file, time.Now())
}

// spare reports whether this host has no task in the current generation (run
// of all tasks). The job can then continue without this host.
func (g *generation) spare() bool { return g.record.Least > 0 && len(g.layout.Tasks) == 0 }
