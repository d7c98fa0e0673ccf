package coordinator

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/plx-run/plx/trainer/cluster"
)

// bearing is what the machine knows of a generation that goes on when workers
// are lost.
type bearing struct {
	on      bool // the chief has said that it does
	without map[cluster.Task]bool
	short   string // why that was not enough, "": it was
	// doubt holds failures of workers that blame a task the job cannot do
	// without: if that one fails too, they are its victims.
	doubt []failure
}

// bear takes a failure that the job goes on after, and reports whether it is
// one.
func (m *Machine) bear(f failure) bool {
	workers := m.dispensable(f)
	switch {
	case workers == nil:
		return false
	case !m.blamesNeeded(f):
		m.goOnWithout(f, workers)
	case m.stage == settling:
		return false // it goes with what is being settled
	default:
		m.suspend(f)
	}
	return true
}

// dispensable returns the workers that go with a failure where the job can do
// without them, else nil: the chief decides and saves, servers hold what is
// trained.
func (m *Machine) dispensable(f failure) []cluster.Task {
	if !m.bearing.on || f.hearsay || m.stage < starting || m.stage > settling || m.stage == finishing {
		return nil
	}
	var with []cluster.Task
	for _, t := range m.hosts[f.host].tasks {
		e, ended := m.exits[t.Task]
		switch {
		case f.task != nil && t.Task != *f.task, f.task == nil && ended && m.fault(f.host, e) == "":
		case t.Task.Role != cluster.Worker, t.Task.IsChief():
			return nil
		case !m.bearing.without[t.Task]:
			with = append(with, t.Task)
		}
	}
	all := m.workers()
	left := all - len(with) - len(m.bearing.without)
	if least := m.plan.Restarts.MinWorkers; left < least {
		m.bearing.short = fmt.Sprintf("; %d of %d workers are left, at least %d are needed (--min-workers)", left, all, least)
		return nil
	}
	return with
}

// blamesNeeded reports whether a worker fails because of a task, it says, that
// the job needs.
func (m *Machine) blamesNeeded(f failure) bool {
	name, _, _ := strings.Cut(f.exit.LostPeer, " ")
	peer, err := cluster.ParseTask(name)
	_, known := m.hostOf[peer]
	return err == nil && known && (peer.Role != cluster.Worker || peer.IsChief())
}

// suspend keeps a failure in doubt for as long as failures are collected.
func (m *Machine) suspend(f failure) {
	for i, old := range m.bearing.doubt {
		if *old.task == *f.task {
			m.bearing.doubt[i] = f // the exit says more than the announcement did
			return
		}
	}
	m.bearing.doubt = append(m.bearing.doubt, f)
	if m.plan.Settle <= 0 {
		m.resolve()
	} else if len(m.bearing.doubt) == 1 {
		m.timer(DoubtTimer, m.plan.Settle)
	}
}

// resolve ends the doubt: nothing that the job needs has failed.
func (m *Machine) resolve() {
	doubt := m.bearing.doubt
	m.bearing.doubt = nil
	for _, f := range doubt {
		if with := m.dispensable(f); with != nil {
			m.goOnWithout(f, with)
		} else {
			m.fail(f)
		}
	}
}

// goOnWithout takes workers out of the job.
func (m *Machine) goOnWithout(f failure, workers []cluster.Task) {
	m.bearing.doubt = slices.DeleteFunc(m.bearing.doubt, func(d failure) bool { return slices.Contains(workers, *d.task) })
	var names []string
	for _, t := range workers {
		m.bearing.without[t] = true
		names = append(names, t.String())
	}
	who := "it"
	if f.task == nil {
		who = strings.Join(names, ", ")
	}
	m.note("%s; the job goes on without %s", f.reason, who)
	if f.task == nil && m.stage == starting {
		m.proceed() // the others may have answered before
	}
	m.workersDone()
}

// isWithout reports whether a failure is of a worker that was taken out before.
func (m *Machine) isWithout(f failure) bool { return f.task != nil && m.bearing.without[*f.task] }

// lingering returns the workers of host h that were taken out and have not
// ended: they said that they fail, and no more.
func (m *Machine) lingering(h int) (workers []cluster.Task) {
	for t := range m.bearing.without {
		if _, ended := m.exits[t]; !ended && m.hostOf[t] == h {
			workers = append(workers, t)
		}
	}
	slices.SortFunc(workers, func(a, b cluster.Task) int { return cmp.Compare(a.Index, b.Index) })
	return workers
}

// unclear reports whether something may still run on a lost host that the job
// has gone on without. A job that is done waits for the end of its lease, so
// that nothing is left of it when it says so.
func (m *Machine) unclear() bool {
	for i, h := range m.hosts {
		if h.gone && h.clearing && len(m.lingering(i)) > 0 {
			return true
		}
	}
	return false
}

// waitForNobodyElse gives up the hosts whose tasks did not end in time.
func (m *Machine) waitForNobodyElse() {
	for _, h := range m.hosts {
		h.told = false
	}
}

// fewer says how many workers a job that is done was done without.
func (m *Machine) fewer() string {
	if len(m.bearing.without) == 0 {
		return ""
	}
	return fmt.Sprintf(", without %d of %s", len(m.bearing.without), count(m.workers(), "worker"))
}

// workers is how many this generation has.
func (m *Machine) workers() (n int) {
	for t := range m.hostOf {
		if t.Role == cluster.Worker {
			n++
		}
	}
	return n
}
