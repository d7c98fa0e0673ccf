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

// generation prepares the tasks of one generation after the other and starts them.
type generation struct {
	*parts
	tasks  *tasks
	noData error // why the agent cannot listen on the data network; nil: it listens

	layout    protocol.Prepare   // request for the generation that was prepared last, or is being prepared
	prepared  *protocol.Prepared // answer to the last Prepare that succeeded; nil: none has
	used      map[string]bool    // addresses that were reserved for tasks, in any generation; only openSockets uses it
	preparing bool               // sockets are being opened; a further Prepare waits in next
	next      *protocol.Prepare  // the last Prepare that arrived while preparing; nil: none
}

// prepare ends what is left of the generation before and opens the sockets of the
// next one. Asked again for the same generation, it answers the same. It refuses a
// generation that is over.
func (g *generation) prepare(m protocol.Prepare) {
	switch {
	case g.record.ending():
		return // no answer is wanted
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
	g.record.Least = m.Generation // those before it are over
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

// reported returns what a task has reported in earlier generations.
func (g *generation) reported(t cluster.Task) *reported {
	history, err := g.host.folder.ReadMetrics(t)
	if err != nil {
		g.host.log.Print(err) // the next save replaces it
	}
	return newReported(history, g.host.patterns)
}

// openSockets makes the tasks of a generation, each with its folder and two ports,
// unless there is an obstacle, err.
func (g *generation) openSockets(m protocol.Prepare, err error) (map[cluster.Task]*task, *protocol.Prepared) {
	if err == nil && len(m.Tasks) > 0 {
		err = g.noData
	}
	if err == nil {
		err = g.host.folder.Furnish(context.Background(), g.host.spec, m.Tasks)
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

// ready takes the tasks of a generation and answers the driver.
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

func (g *generation) answer(p *protocol.Prepared) { g.sessions.tell(protocol.Message{Prepared: p}) }

// start starts every task of the prepared generation. Asked again, it answers the
// same.
func (g *generation) start(m protocol.Start) {
	switch {
	case g.record.ending():
		return
	case g.record.Phase == protocol.Running && g.record.Generation == m.Generation:
		// The first answer was lost with its connection.
	case g.record.Phase == protocol.Ready && g.record.Generation == m.Generation:
		g.record.Least = m.Generation + 1 // it cannot be prepared again
		g.record.enter(protocol.Running)
		g.tasks.start(g.layout, m)
		g.gcLater()
	default:
		g.sessions.notice(fmt.Sprintf("asked to start generation %d, but is %s at generation %d", m.Generation, g.record.Phase, g.record.Generation))
		return
	}
	pids := map[cluster.Task]int{} // a task that could not be started has an Exit
	for _, t := range g.tasks.launched() {
		pids[t.Task] = t.child.PID
	}
	g.sessions.tell(protocol.Message{Started: &protocol.Started{Generation: m.Generation, PIDs: pids}})
}

// gcAfter is how long tasks have run when the host starts it. Jobs that end sooner are
// left alone.
const gcAfter = 300 * time.Millisecond

// gcLater starts a process that removes what no job uses any more, if tasks of the first
// generation still run then. Like all descendants it is killed with the tasks.
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

// gcDue reports whether "agent gc" would do anything: it is a process.
func gcDue() bool {
	root, err := jobfolder.Root()
	if err != nil {
		return false
	}
	file, err := os.Stat(jobfolder.LastGC(root))
	return err != nil || jobfolder.GCDue(file, time.Now())
}

// spare reports whether this host has no task in the present generation: the job
// goes on without it, or it waits for the next generation.
func (g *generation) spare() bool { return g.record.Least > 0 && len(g.layout.Tasks) == 0 }
