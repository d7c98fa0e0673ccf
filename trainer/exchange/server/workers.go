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

// workers records, for every worker, its declaration, its progress and whether it
// has left. The slices are by rank. The mu of the Server guards it.
type workers struct {
	self     cluster.Task          // this task
	ranks    layout.Range          // workers that may connect, including the worker in the same process
	model    int                   // rank whose declaration the others must match if the chief has not declared here; -1: none
	addr     []string              // of the connection; "": not connected
	declared []*layout.Declaration // nil: not declared yet
	steps    []uint64              // number of steps begun
	stopped  []bool                // the worker takes no further step
	gone     []bool                // the worker has said goodbye or is lost
	away     int                   // workers whose goodbye was answered, or that are lost
	losses   int                   // workers that are lost
}

func newWorkers(self cluster.Task, n int) workers {
	return workers{
		self: self, ranks: layout.Range{Lo: 0, Hi: n}, model: -1,
		addr: make([]string, n), declared: make([]*layout.Declaration, n), steps: make([]uint64, n),
		stopped: make([]bool, n), gone: make([]bool, n),
	}
}

func worker(rank int) cluster.Task { return cluster.Task{Role: cluster.Worker, Index: rank} }

// blame makes err a PeerError that blames a worker. Another worker may have
// sent the frame that led to err.
func (r *workers) blame(rank int, err error) error {
	addr := r.addr[rank]
	if addr == "" {
		addr = "this task"
	}
	return &peers.PeerError{Task: worker(rank), Addr: addr, Err: err}
}

// serves reports whether a task is a worker that may connect to this server.
func (r *workers) serves(t cluster.Task) bool {
	return t.Role == cluster.Worker && t.Index >= r.ranks.Lo && t.Index < r.ranks.Hi && t != r.self
}

// enter records that a worker has connected from addr, or refuses the worker.
func (r *workers) enter(t cluster.Task, addr string) error {
	if !r.serves(t) {
		return errors.New("it is no worker that has a say here")
	}
	if r.addr[t.Index] != "" {
		return fmt.Errorf("%s is already connected from %s", t, r.addr[t.Index])
	}
	r.addr[t.Index] = addr
	return nil
}

// declare records the declaration of a worker. The error blames the first
// worker whose declaration differs from the reference, see differ.
func (r *workers) declare(rank int, d *layout.Declaration) error {
	r.declared[rank] = d
	return r.differ()
}

// differ compares all declarations with a reference: the chief's or, until
// there is one, that of rank model. The error blames the first worker whose
// declaration differs.
func (r *workers) differ() error {
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

// misled returns the declaration to compare with that of a refused worker, and
// the task that sent it; nil: there is none. If aggregates is set, it is that of
// the first worker of the host. Otherwise it is that of a chief that gives this
// task no pieces.
func (r *workers) misled(aggregates bool) (*layout.Declaration, cluster.Task) {
	if aggregates {
		return r.declared[r.model], worker(r.model)
	} else if d := r.declared[0]; d != nil && d.HolderIndex(r.self) < 0 {
		return d, cluster.Chief
	}
	return nil, cluster.Task{}
}

// missing returns the workers that have not declared.
func (r *workers) missing() (all []cluster.Task) {
	for rank := r.ranks.Lo; rank < r.ranks.Hi; rank++ {
		if r.declared[rank] == nil {
			all = append(all, worker(rank))
		}
	}
	return all
}

// absent counts the workers that are not connected.
func (r *workers) absent() (n int) {
	for rank := r.ranks.Lo; rank < r.ranks.Hi; rank++ {
		if r.addr[rank] == "" && worker(rank) != r.self {
			n++
		}
	}
	return n
}

// together reports whether workers a and b must take the same number of steps.
func together(e *aggregate.Shards, a, b int) bool {
	if e.Declaration().Sync.Competes() {
		return false
	}
	x, y := e.Contributor(a), e.Contributor(b)
	return x != nil && y != nil && x.Group == y.Group
}

func notAsMany(steps uint64, other int) error {
	return fmt.Errorf("is done after %d steps, but %s goes on: every worker must take as many; Job.Any tells all to stop in one step, Config.AtEndOfData lets data end unevenly", steps, worker(other))
}

// advance counts a step that a worker begins. It fails if another worker
// stopped before that step and both must take the same number of steps.
func (r *workers) advance(e *aggregate.Shards, rank int, step uint64) error {
	for other, stopped := range r.stopped {
		if stopped && together(e, rank, other) && r.steps[other] <= step {
			return r.blame(other, notAsMany(r.steps[other], rank))
		}
	}
	r.steps[rank] = step + 1
	return nil
}

// stop records, between two steps, that a worker takes no further step. goodbye
// is set if the worker also says goodbye. stop fails if another worker has
// begun more steps and both must take the same number.
func (r *workers) stop(e *aggregate.Shards, rank int, goodbye bool) error {
	for other, n := range r.steps {
		if n > r.steps[rank] && together(e, rank, other) {
			return notAsMany(r.steps[rank], other)
		}
	}
	r.stopped[rank], r.gone[rank] = true, goodbye
	return nil
}

// lose records that a worker is lost. It fails if the synchronisation mode does
// not tolerate that many losses.
func (r *workers) lose(rank int, d *layout.Declaration) error {
	r.gone[rank] = true
	r.losses++
	if most := d.Sync.MostLost(len(r.gone)); r.losses > most {
		return fmt.Errorf("%d of %d workers are lost, %s tolerates %d", r.losses, len(r.gone), d.Sync, most)
	}
	return nil
}

// left counts a worker whose goodbye was answered, or that is lost. alone
// reports that only the chief is left, last that no worker is left.
func (r *workers) left() (alone, last bool) {
	r.away++
	return r.away == r.ranks.Len()-1 && !r.gone[0], r.away == r.ranks.Len()
}

// movable returns an error if variables cannot move before step w.Step. It
// blames a worker that has begun that step or has left.
func (r *workers) movable(rank int, w *transition.MoveRequest) error {
	for other, n := range r.steps {
		if n > w.Step || r.gone[other] {
			return r.blame(other, fmt.Errorf("goes on after %d steps, but %s wants variables to move before step %d", n, worker(rank), w.Step))
		}
	}
	return nil
}

// continueAt sets the number of steps that the worker of each rank has begun to
// step(rank).
func (r *workers) continueAt(step func(rank int) uint64) {
	for rank := range r.steps {
		r.steps[rank] = step(rank)
	}
}
