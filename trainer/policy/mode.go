// Package policy says how the workers of a training wait for each other and
// where its variables are held. It is pure: it knows no network and no values.
//
// Each synchronisation mode is a [Mode]: sync, async and group, which have no state,
// are in mode.go, ssp and backup in files of their own. Other packages read a mode's
// fields through [Sync] and call the methods of the mode's state. That state is a
// [Pace] on every shard holder, a [Selection] on the first shard holder and a [Worker]
// on each worker. A mode may lack any of them. To add a mode, write its file and
// append the mode to the variable modes in parse.go.
//
//	s, err := policy.ParseSync("ssp:3")
//	s.Groups(8)       // 8: every worker is a group
//	s.InStep()        // false
//
// An [Architecture] is a name that says who holds dense variables and who holds
// sparse ones.
package policy

import "github.com/plx-run/plx/trainer/optimizer"

// A Mode is one way in which workers wait for each other.
type Mode struct {
	Name     string // as --sync spells it, without the number
	Numbered string // letter for the mode's number in a usage text; empty means that the mode takes none

	// InStep says that all workers take every step together. After each step
	// they have the same values, so workers can hold shards, shards can move,
	// rows can be asked for a step ahead, and a host can add its gradients.
	InStep bool

	// Groups says how workers form groups. The gradients of a group's workers are
	// added, and all these workers get the values after each step of the group.
	Groups Grouping

	// DropsLast says that a step takes the gradients of the first workers of a
	// group and drops those of the last, of which the mode's number says how many.
	// The Selection of States decides which workers are the first.
	DropsLast bool

	// Update is the rule by which shard holders apply a group's sum, divided by
	// the virtual workers that are in it. nil means the program's optimiser, and
	// that the program decides whether to divide.
	Update *optimizer.Settings

	// Copies says which workers share one copy of a value while it is sent, so
	// that steps of other workers can change the value meanwhile.
	Copies Copies

	// HoldsBack says that a worker gets the values after its step only when the
	// Pace of States releases the worker, all values at once. If not set, each
	// value is sent as soon as it is updated.
	HoldsBack bool

	// Cuts says that a checkpoint is a consistent cut: each group with a number of
	// steps of its own. If not set, all groups have the same number.
	Cuts bool

	// Losses says how many workers other than the chief may be lost without
	// ending the training.
	Losses Losses

	// States makes the mode's own state. nil means that the mode has none.
	States States
}

// Grouping says how workers form groups.
type Grouping int

// The groupings.
const (
	OneGroup   Grouping = iota
	EachWorker          // every worker is a group
	AsNumbered          // as many groups as the mode's number
)

// Losses says how many workers may be lost.
type Losses int

// The losses.
const (
	NoLoss       Losses = iota // the first loss ends the training
	AnyLoss                    // all but the chief may be lost
	NumberedLoss               // as many as the mode's number
)

// States makes the state of a mode with a number. Each method may return nil.
type States interface {
	// Pace makes the state of a shard holder that decides when a worker is
	// answered. steps are, by rank, how many steps a worker has finished. nil:
	// workers are answered by the steps of their groups alone.
	Pace(number int, steps []uint64) Pace
	// Selection makes the state of the first shard holder that decides whose
	// gradients count, from a step on. nil: all count. With a selection workers
	// compete: they take unequal numbers of steps.
	Selection(number, workers int, first uint64) Selection
	// Worker makes the state of a worker that changes values by itself between
	// exchanges. nil: every step is exchanged, as gradients.
	Worker(number int) Worker
}

// stateless is the States of a mode that has none.
type stateless struct{}

func (stateless) Pace(int, []uint64) Pace              { return nil }
func (stateless) Selection(int, int, uint64) Selection { return nil }
func (stateless) Worker(int) Worker                    { return nil }

// Copies says who shares a copy of a value.
type Copies int

const (
	NoCopies  Copies = iota // nobody can change a value while it is sent
	PerGroup                // the workers of a group get the same values
	PerWorker               // each worker may get the values of another moment
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

// Worker is the state of a worker that takes steps of its own. One goroutine
// calls Exchanges; Take may be called for several variables side by side.
type Worker interface {
	// Exchanges reports whether others take part in a step.
	Exchanges(step uint64) bool
	// Take gets the sum of the worker's gradients of a dense variable, over n
	// virtual workers, and may change the variable's value, all of it in bytes
	// as in memory. In a step that is exchanged it returns what to send
	// instead: the sum, over n virtual workers, of what holders are to add.
	Take(variable int, step uint64, rate float64, sum, value []byte, n int) []byte
}

// sync: every step takes the gradients of all workers. A checkpoint has the
// same steps of all of them, and the loss of a worker ends the training.
var synchronous = Mode{
	Name:   "sync",
	InStep: true,
}

// async: every worker's gradients are applied when they come, and nobody waits
// for another. A checkpoint has as many steps of each worker as it has taken;
// a lost worker is missed by nobody.
var asynchronous = Mode{
	Name:   "async",
	Groups: EachWorker,
	Copies: PerGroup,
	Cuts:   true,
	Losses: AnyLoss,
}

// group:G: G groups of workers. A group's workers take every step together;
// no group waits for another. A checkpoint has as many steps of each group as
// it has taken. The loss of a worker ends the training: its group needs it.
var grouped = Mode{
	Name:     "group",
	Numbered: "G",
	Groups:   AsNumbered,
	Copies:   PerGroup,
	Cuts:     true,
}
