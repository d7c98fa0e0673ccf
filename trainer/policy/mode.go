// Package policy defines how the workers of a training wait for each other and
// which tasks hold its variables. It uses no network and does not touch values
// of variables.
//
// Each synchronisation mode is a value of type mode. sync, async and group
// have no state and are in mode.go; ssp and backup have a file each. Other
// packages read a mode's properties through [Sync]. A mode may have state: a
// [Pace] on every shard holder (a task that stores parts of variables), and a
// [Selection] on the first shard holder. To add a mode, write its file and
// append the mode to the variable modes in parse.go.
//
//	s, err := policy.ParseSync("ssp:3")
//	s.Groups(8)       // 8: every worker is a group
//	s.InStep()        // false
//
// An [Architecture] defines whether servers or workers hold the dense and the
// sparse variables.
package policy

// mode describes a synchronisation mode: how workers wait for each other.
type mode struct {
	name     string // name in the flag --sync, without the number, such as "ssp"
	numbered string // letter for the mode's number in the usage text, such as "K" in ssp:K; empty: the mode has no number

	// inStep is true if all workers take every step together and have the same
	// values after it. Only then can workers hold shards, request embedding
	// rows one step ahead, or add up the gradients of a host. Shards can move
	// between tasks only then.
	inStep bool

	// groups defines how workers form groups. The gradients of a group's
	// workers are added up in a step, after which all these workers receive
	// the new values.
	groups grouping

	// dropsLast is true in mode backup:B, in which a step drops the gradients
	// of the last B workers of a group. The mode's Selection decides which
	// workers are the first.
	dropsLast bool

	// copies defines which workers share one copy of a value while it is sent
	// to them. A copy lets steps of other workers change the value meanwhile.
	copies copies

	// holdsBack is true if a worker receives all values at once, when the
	// mode's Pace decides that the worker may continue. If false, each value
	// is sent as soon as it is updated.
	holdsBack bool

	// cuts is true if each group of workers has its own number of steps in a
	// checkpoint. If false, all groups have the same number of steps.
	cuts bool

	// losses defines how many workers, other than the chief (worker 0), may be
	// lost before the training ends.
	losses losses

	// pace returns a new Pace: the state of a shard holder (a task that stores
	// parts of the variables) that decides when a worker receives values. The
	// parameter steps, indexed by rank, is the number of finished steps of
	// each worker. A nil pace means that workers receive values after each
	// step of their group.
	pace func(number int, steps []uint64) Pace

	// selection returns a new Selection, with which the first shard holder
	// decides whose gradients are used. first is the number of the first step.
	// If selection is nil, all gradients are used. Otherwise workers can
	// complete different numbers of steps.
	selection func(number, workers int, first uint64) Selection
}

// grouping defines how workers form groups.
type grouping int

const (
	oneGroup   grouping = iota
	eachWorker          // each worker is a group of its own
	asNumbered          // the number of groups is the number after the colon, such as 4 in group:4
)

// losses defines how many workers may be lost before the training ends.
type losses int

const (
	noLoss       losses = iota // the training ends when the first worker is lost
	anyLoss                    // the training continues while the chief (worker 0) is alive
	numberedLoss               // the number after the colon, such as 2 in backup:2, is the maximum number of lost workers
)

// copies defines which workers share one copy of a value while it is sent.
type copies int

const (
	noCopies  copies = iota // no copies are needed: no step changes a value while it is sent
	perGroup                // one copy of each value per group, whose workers all receive the same values
	perWorker               // one copy of each value per worker, because workers may receive values of different steps
)

// Pace decides when a worker that has to wait for other workers receives new
// values. Each shard holder (a task that stores parts of the variables) has a
// Pace. Its methods return the ranks of the workers that receive values now.
// Any goroutine may call them.
type Pace interface {
	// Applied records that a group of workers has finished the given number of
	// steps, and that their gradients are applied to all shards of this
	// holder. rank is the group's first worker.
	Applied(rank int, steps uint64) []int
	// Wait records that a worker, after the given number of steps, asks for
	// new values.
	Wait(rank int, steps uint64) ([]int, error)
	// Leave records that the worker with this rank takes no further step.
	Leave(rank int) []int
}

// Selection decides whose gradients a step uses. Only the first shard holder
// (a task that stores parts of the variables) has a Selection. Any goroutine
// may call its methods.
type Selection interface {
	// Commit decides whether the gradients that a worker has computed for a
	// step are used. current is the number of the step that is being
	// collected.
	Commit(rank int, step uint64) (v Verdict, current uint64, err error)
	// Leave records that a worker takes no further step. If too few workers
	// are left to complete the current step, it returns the workers that wait
	// for that step.
	Leave(rank int) []int
	// Counted returns the first step in which the worker's gradients are not
	// used.
	Counted(rank int) uint64
}

// Verdict is a Selection's decision about a worker's gradients.
type Verdict uint32

// Values of Verdict. They are sent over the network and must not change.
const (
	Accepted Verdict = iota
	Late             // the step is complete: enough other workers were faster
	Over             // too few workers are left for any further step
	Verdicts         // number of verdicts
)

// synchronous is the mode sync: every step uses the gradients of all workers.
// A checkpoint contains the same number of steps of each worker. The loss of a
// worker ends the training.
var synchronous = mode{
	name:   "sync",
	inStep: true,
}

// asynchronous is the mode async: each worker's gradients are applied when
// they arrive, and no worker waits for another. A checkpoint contains, for
// each worker, the steps that this worker has taken. The training continues
// after the loss of any worker but the chief.
var asynchronous = mode{
	name:   "async",
	groups: eachWorker,
	copies: perGroup,
	cuts:   true,
	losses: anyLoss,
}

// grouped is the mode group:G, which divides the workers into G groups. A
// group's workers take every step together, and no group waits for another. A
// checkpoint contains, for each group, the steps that this group has taken.
// The loss of a worker ends the training, because its group cannot continue.
var grouped = mode{
	name:     "group",
	numbered: "G",
	groups:   asNumbered,
	copies:   perGroup,
	cuts:     true,
}
