package server

import (
	"errors"
	"fmt"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/peers"
)

// roll is which workers have declared what, how far each of them is, and which
// of them have left. The slices are by rank. The Server's mu guards a roll.
type roll struct {
	self     cluster.Task
	ranks    layout.Range          // of the workers that come here, and of the worker in the same process
	model    int                   // if the chief does not come here: rank whose declaration the others must match; else -1
	addr     []string              // of the connection; "": there is none
	declared []*layout.Declaration // nil: nothing yet
	steps    []uint64              // begun
	stopped  []bool                // takes no further step
	gone     []bool                // said goodbye, or is lost
	away     int                   // workers whose goodbye was answered, or that are lost
	losses   int                   // of workers, that the training has tolerated
}

func newRoll(self cluster.Task, workers int) roll {
	return roll{
		self: self, ranks: layout.Range{Lo: 0, Hi: workers}, model: -1,
		addr: make([]string, workers), declared: make([]*layout.Declaration, workers), steps: make([]uint64, workers),
		stopped: make([]bool, workers), gone: make([]bool, workers),
	}
}

func worker(rank int) cluster.Task { return cluster.Task{Role: cluster.Worker, Index: rank} }

// limit makes the workers of some ranks come here, without the chief: they must
// match the declaration of the rank model.
func (r *roll) limit(ranks layout.Range, model int) { r.ranks, r.model = ranks, model }

// blame makes err that of a worker, which need not be the one that sent what
// led to it.
func (r *roll) blame(rank int, err error) error {
	addr := r.addr[rank]
	if addr == "" {
		addr = "this task"
	}
	return &peers.PeerError{Task: worker(rank), Addr: addr, Err: err}
}

// serves reports whether a task is one of those that come here.
func (r *roll) serves(t cluster.Task) bool {
	return t.Role == cluster.Worker && t.Index >= r.ranks.Lo && t.Index < r.ranks.Hi && t != r.self
}

// enter lets a worker in that comes from an address.
func (r *roll) enter(t cluster.Task, addr string) error {
	if !r.serves(t) {
		return errors.New("it is no worker that has a say here")
	}
	if r.addr[t.Index] != "" {
		return fmt.Errorf("%s is already connected from %s", t, r.addr[t.Index])
	}
	r.addr[t.Index] = addr
	return nil
}

// forget lets a worker enter again.
func (r *roll) forget(rank int) { r.addr[rank] = "" }

// declare takes what a worker is about to train. The error blames the first
// worker whose declaration differs.
func (r *roll) declare(rank int, d *layout.Declaration) error {
	r.declared[rank] = d
	return r.differ()
}

// differ blames the first worker whose declaration differs from that which
// holds, if there is one.
func (r *roll) differ() error {
	holds, of := r.declared[0], cluster.Chief
	if holds == nil && r.model >= 0 {
		holds, of = r.declared[r.model], worker(r.model)
	}
	for rank, d := range r.declared {
		if holds == nil || d == nil {
			continue
		}
		if what := holds.Difference(d); what != "" {
			return r.blame(rank, fmt.Errorf("declares something else than %s: %s", of, what))
		}
	}
	return nil
}

// misled returns the declaration that a worker which is not let in may differ
// from, and whose it is; nil: there is none. It is that of a chief that has no use
// for this task, or that of the first worker of a host.
func (r *roll) misled(relays bool) (*layout.Declaration, cluster.Task) {
	if relays {
		return r.declared[r.model], worker(r.model)
	} else if d := r.declared[0]; d != nil && d.HolderIndex(r.self) < 0 {
		return d, cluster.Chief
	}
	return nil, cluster.Task{}
}

// missing returns the workers that have not declared anything.
func (r *roll) missing() (all []cluster.Task) {
	for rank := r.ranks.Lo; rank < r.ranks.Hi; rank++ {
		if r.declared[rank] == nil {
			all = append(all, worker(rank))
		}
	}
	return all
}

// absent counts the workers that are not connected.
func (r *roll) absent() (n int) {
	for rank := r.ranks.Lo; rank < r.ranks.Hi; rank++ {
		if r.addr[rank] == "" && worker(rank) != r.self {
			n++
		}
	}
	return n
}

// together reports whether two workers must take the same number of steps.
func together(e *aggregate.Shards, a, b int) bool {
	if e.Declaration().Sync.Competes() {
		return false
	}
	x, y := e.Contributor(a), e.Contributor(b)
	return x != nil && y != nil && x.Group == y.Group
}

func notAsMany(steps uint64, other int) error {
	return fmt.Errorf("is done after %d steps, but %s goes on: every worker must take as many", steps, worker(other))
}

// advance counts a step that a worker begins. If every step needs all workers,
// no worker steps past one that has left.
func (r *roll) advance(e *aggregate.Shards, rank int, step uint64) error {
	for other, stopped := range r.stopped {
		if stopped && together(e, rank, other) && r.steps[other] <= step {
			return r.blame(other, notAsMany(r.steps[other], rank))
		}
	}
	r.steps[rank] = step + 1
	return nil
}

// stop notes, between two steps, that a worker takes no further one, and whether
// it thereby says goodbye.
func (r *roll) stop(e *aggregate.Shards, rank int, goodbye bool) error {
	for other, n := range r.steps {
		if n > r.steps[rank] && together(e, rank, other) {
			return notAsMany(r.steps[rank], other)
		}
	}
	r.stopped[rank], r.gone[rank] = true, goodbye
	return nil
}

// lose notes that a worker is lost. The error says that the training does not
// tolerate as many losses.
func (r *roll) lose(rank int, d *layout.Declaration) error {
	r.gone[rank] = true
	r.losses++
	if most := d.Sync.MostLost(len(r.gone)); r.losses > most {
		return fmt.Errorf("%d of %d workers are lost, %s tolerates %d", r.losses, len(r.gone), d.Sync, most)
	}
	return nil
}

// left counts a worker that has its answer to a goodbye, or is lost. alone: the
// chief is the only one left.
func (r *roll) left() (alone, last bool) {
	r.away++
	return r.away == r.ranks.Len()-1 && !r.gone[0], r.away == r.ranks.Len()
}

// movable blames a worker that cannot let variables move before a step.
func (r *roll) movable(rank int, w *transition.Wanted) error {
	for other, n := range r.steps {
		if n > w.Step || r.gone[other] {
			return r.blame(other, fmt.Errorf("goes on after %d steps, but %s wants variables to move before step %d", n, worker(rank), w.Step))
		}
	}
	return nil
}

// continueAt sets the steps of all workers to those before step.
func (r *roll) continueAt(step func(rank int) uint64) {
	for rank := range r.steps {
		r.steps[rank] = step(rank)
	}
}
