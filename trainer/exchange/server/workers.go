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

// workers records the declaration and the progress of every worker, and which
// workers have left. All slices are indexed by rank. The server's mutex mu
// guards all fields.
type workers struct {
	self     cluster.Task          // task in which this server runs
	ranks    layout.Range          // ranks of the workers that this server serves, including the one in the same process
	model    int                   // rank of the worker whose declaration all others must match if the chief sends none to this server; -1 if only the chief's declaration counts
	addr     []string              // remote address of the worker's connection; empty if the worker is not connected
	declared []*layout.Declaration // declaration of the worker; nil if it has not arrived
	steps    []uint64              // number of steps that the worker has begun
	stopped  []bool                // true if the worker takes no further step
	gone     []bool                // true if the worker has said goodbye or is lost
	away     int                   // number of workers that are lost or have received the reply to their goodbye
	losses   int                   // number of workers that are lost
}

func newWorkers(self cluster.Task, n int) workers {
	return workers{
		self: self, ranks: layout.Range{Lo: 0, Hi: n}, model: -1,
		addr: make([]string, n), declared: make([]*layout.Declaration, n), steps: make([]uint64, n),
		stopped: make([]bool, n), gone: make([]bool, n),
	}
}

func worker(rank int) cluster.Task { return cluster.Task{Role: cluster.Worker, Index: rank} }

// blame wraps err in a PeerError that names the worker as the one to blame.
// That worker need not be the sender of the frame that caused err.
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

// enter records addr, the address from which worker t has connected. It
// returns an error if the server must refuse the worker.
func (r *workers) enter(t cluster.Task, addr string) error {
	if !r.serves(t) {
		return errors.New("it is not a worker that this task serves")
	}
	if r.addr[t.Index] != "" {
		return fmt.Errorf("%s is already connected from %s", t, r.addr[t.Index])
	}
	r.addr[t.Index] = addr
	return nil
}

// declare records a worker's declaration (its description of the training).
// The error names the first worker whose declaration differs from the chief's.
func (r *workers) declare(rank int, d *layout.Declaration) error {
	r.declared[rank] = d
	return r.differ()
}

// differ compares all declarations with the chief's. If the chief has sent
// none, differ compares them with the declaration of rank r.model. The error
// names the first worker whose declaration differs.
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
			return r.blame(rank, fmt.Errorf("declares a different training than %s: %s", of, what))
		}
	}
	return nil
}

// expected returns the declaration (the description of the training) that a
// refused worker should have sent, and the task that sent it. If aggregates is
// true, this server adds the gradients of one host's workers, and the
// declaration is that of the host's first worker. Otherwise it is the chief's.
// It is nil if the chief has sent none, or assigns pieces of variables to this
// task.
func (r *workers) expected(aggregates bool) (*layout.Declaration, cluster.Task) {
	if aggregates {
		return r.declared[r.model], worker(r.model)
	} else if d := r.declared[0]; d != nil && d.HolderIndex(r.self) < 0 {
		return d, cluster.Chief
	}
	return nil, cluster.Task{}
}

// missing returns the workers that have not sent a declaration (their
// description of the training).
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

// together reports whether workers a and b must take the same number of steps,
// because their gradients are added together.
func together(e *aggregate.Shards, a, b int) bool {
	if e.Declaration().Sync.WorkersCompete() {
		return false
	}
	x, y := e.Contributor(a), e.Contributor(b)
	return x != nil && y != nil && x.Group == y.Group
}

func notAsMany(steps uint64, other int) error {
	return fmt.Errorf("stopped after %d steps, but %s continues: all workers must take the same number of steps; Job.Any tells all to stop in one step, Config.AtEndOfData lets data end unevenly", steps, worker(other))
}

// advance counts a step that a worker begins. It returns an error if another
// worker, which must take the same number of steps, stopped before that step.
func (r *workers) advance(e *aggregate.Shards, rank int, step uint64) error {
	for other, stopped := range r.stopped {
		if stopped && together(e, rank, other) && r.steps[other] <= step {
			return r.blame(other, notAsMany(r.steps[other], rank))
		}
	}
	r.steps[rank] = step + 1
	return nil
}

// stop records, between two steps, that a worker takes no further step. It
// returns an error if another worker has begun more steps and their gradients
// are added together. goodbye is true if the worker leaves the training.
func (r *workers) stop(e *aggregate.Shards, rank int, goodbye bool) error {
	for other, n := range r.steps {
		if n > r.steps[rank] && together(e, rank, other) {
			return notAsMany(r.steps[rank], other)
		}
	}
	r.stopped[rank], r.gone[rank] = true, goodbye
	return nil
}

// lose records that a worker is lost. It fails if the synchronisation mode
// does not tolerate the number of losses.
func (r *workers) lose(rank int, d *layout.Declaration) error {
	r.gone[rank] = true
	r.losses++
	if most := d.Sync.MostLost(len(r.gone)); r.losses > most {
		return fmt.Errorf("%d of %d workers are lost, %s tolerates %d", r.losses, len(r.gone), d.Sync, most)
	}
	return nil
}

// left counts a worker that is lost or has received the reply to its goodbye.
// alone is true if only the chief remains. last is true if no worker remains.
func (r *workers) left() (alone, last bool) {
	r.away++
	return r.away == r.ranks.Len()-1 && !r.gone[0], r.away == r.ranks.Len()
}

// movable returns an error if variables cannot move before step w.Step. The
// error names a worker that has already begun that step or has left.
func (r *workers) movable(rank int, w *transition.MoveRequest) error {
	for other, n := range r.steps {
		if n > w.Step || r.gone[other] {
			return r.blame(other, fmt.Errorf("goes on after %d steps, but %s wants variables to move before step %d", n, worker(rank), w.Step))
		}
	}
	return nil
}

// continueAt sets the number of begun steps of every worker to the result of
// step(rank).
func (r *workers) continueAt(step func(rank int) uint64) {
	for rank := range r.steps {
		r.steps[rank] = step(rank)
	}
}
