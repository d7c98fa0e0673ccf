// Package policy says how the workers of a training wait for each other and
// where its variables are held. It is pure: it knows no network and no values.
//
// Each synchronisation mode is a value of type mode: sync, async and group, which have no state,
// are in mode.go, ssp and backup in files of their own. Other packages read a mode's
// fields through [Sync]. A mode may have state: a [Pace] on every shard holder, and a
// [Selection] on the first shard holder. To add a mode, write its file and append the
// mode to the variable modes in parse.go.
//
//	s, err := policy.ParseSync("ssp:3")
//	s.Groups(8)       // 8: every worker is a group
//	s.InStep()        // false
//
// An [Architecture] is a name that says who holds dense variables and who holds
// sparse ones.
package policy

// mode is one way in which workers wait for each other.
type mode struct {
	name     string // as --sync spells it, without the number
	numbered string // letter for the mode's number in a usage text; empty means that the mode takes none

	// inStep says that all workers take every step together. After each step
	// they have the same values, so workers can hold shards, shards can move,
	// rows can be asked for a step ahead, and a host can add its gradients.
	inStep bool

	// groups says how workers form groups. The gradients of a group's workers are
	// added, and all these workers get the values after each step of the group.
	groups grouping

	// dropsLast says that a step takes the gradients of the first workers of a
	// group and drops those of the last, of which the mode's number says how many.
	// The mode's selection decides which workers are the first.
	dropsLast bool

	// copies says which workers share one copy of a value while it is sent, so
	// that steps of other workers can change the value meanwhile.
	copies copies

	// holdsBack says that a worker gets the values after its step only when the
	// mode's pace releases the worker, all values at once. If not set, each value
	// is sent as soon as it is updated.
	holdsBack bool

	// cuts says that a checkpoint is a consistent cut: each group with a number of
	// steps of its own. If not set, all groups have the same number.
	cuts bool

	// losses says how many workers other than the chief may be lost without
	// ending the training.
	losses losses

	// pace makes the state of a shard holder that decides when a worker is
	// answered. steps are, by rank, how many steps a worker has finished. nil
	// means that workers are answered by the steps of their groups alone.
	pace func(number int, steps []uint64) Pace

	// selection makes the state of the first shard holder that decides whose
	// gradients count, from a step on. nil means that all count. With a selection
	// workers compete: they take unequal numbers of steps.
	selection func(number, workers int, first uint64) Selection
}

// grouping says how workers form groups.
type grouping int

const (
	oneGroup   grouping = iota
	eachWorker          // every worker is a group
	asNumbered          // as many groups as the mode's number
)

// losses says how many workers may be lost.
type losses int

const (
	noLoss       losses = iota // the first loss ends the training
	anyLoss                    // all but the chief may be lost
	numberedLoss               // as many as the mode's number
)

// copies says who shares a copy of a value.
type copies int

const (
	noCopies  copies = iota // nobody can change a value while it is sent
	perGroup                // the workers of a group get the same values
	perWorker               // each worker may get the values of another moment
)

// Pace decides on one shard holder when workers are answered that wait for
// more than their own group's step. Its methods return the ranks to answer
// now; any goroutine may call them.
type Pace interface {
	// Applied notes that all shards have so many steps of the group of which
	// a worker is the first member.
	Applied(rank int, steps uint64) []int
	// Wait notes that a worker asks for the values after so many steps.
	Wait(rank int, steps uint64) ([]int, error)
	// Leave notes that a worker takes no further step.
	Leave(rank int) []int
}

// Selection decides on the first shard holder whose gradients count. Any
// goroutine may call its methods.
type Selection interface {
	// Commit answers a worker that has its gradients for a step. current is
	// the step that is being collected.
	Commit(rank int, step uint64) (v Verdict, current uint64, err error)
	// Leave notes that a worker takes no further step. It returns those whose
	// step will never be made because too few workers are left.
	Leave(rank int) []int
	// Counted returns the first step in which a worker does not count.
	Counted(rank int) uint64
}

// Verdict is what a Selection says of a worker's gradients.
type Verdict uint32

// The verdicts, as they travel.
const (
	Accepted Verdict = iota
	Late             // the step is closed: enough others were faster
	Over             // too few workers are left for any further step
	Verdicts         // how many there are
)

// sync: every step takes the gradients of all workers. A checkpoint has the
// same steps of all of them, and the loss of a worker ends the training.
var synchronous = mode{
	name:   "sync",
	inStep: true,
}

// async: every worker's gradients are applied when they come, and nobody waits
// for another. A checkpoint has as many steps of each worker as it has taken;
// a lost worker is missed by nobody.
var asynchronous = mode{
	name:   "async",
	groups: eachWorker,
	copies: perGroup,
	cuts:   true,
	losses: anyLoss,
}

// group:G: G groups of workers. A group's workers take every step together;
// no group waits for another. A checkpoint has as many steps of each group as
// it has taken. The loss of a worker ends the training: its group needs it.
var grouped = mode{
	name:     "group",
	numbered: "G",
	groups:   asNumbered,
	copies:   perGroup,
	cuts:     true,
}
