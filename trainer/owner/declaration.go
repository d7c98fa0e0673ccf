package owner

import (
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/optimizer"
)

// Declaration says what is trained and how. All workers of a job must declare
// the same, but for Fingerprint; owners that are servers know nothing else of
// the program.
type Declaration struct {
	Leaves    int                `json:"leaves"`  // virtual workers: leaves of the tree
	Workers   []Range            `json:"workers"` // by rank: its leaves; together all of them, in order
	Owners    []cluster.Task     `json:"owners"`  // who owns pieces
	Variables []Variable         `json:"variables"`
	Pieces    []Piece            `json:"pieces"`
	Optimizer optimizer.Settings `json:"optimizer"`
	Sum       bool               `json:"sum"` // gradients and losses are added, not averaged
	Batch     int                `json:"batch"`
	Sync      Sync               `json:"sync"`
	// Clip bounds the global norm of the gradients of a step, 0: it does not.
	// Norm asks for it in Outcome also where nothing is clipped.
	Clip float64 `json:"clip,omitempty"`
	Norm bool    `json:"norm,omitempty"`
	// Metrics is how many numbers a leaf reports beside its loss. They are
	// averaged over the leaves.
	Metrics int `json:"metrics,omitempty"`
	// BucketBytes is how much of the gradients travels together; 0 means
	// DefaultBucketBytes.
	BucketBytes int `json:"bucket_bytes,omitempty"`
	// Hosts are the ranks of the workers of each host, together all of them,
	// in order. Where given, the workers of a host add their gradients of what
	// servers own before one of them sends the sum. Only in sync mode.
	Hosts []Range `json:"hosts,omitempty"`
	// Movable lets [Client.Repartition] give sparse variables new owners; an
	// owner may then own nothing for a while. Only in sync mode.
	Movable bool `json:"movable,omitempty"`
	// Checkpoint names what the training goes on from: every owner restores
	// its pieces from there, and the chief's first values are of no use. Steps
	// are counted from First on, how many were made before. "" and 0: the
	// training begins anew.
	Checkpoint string `json:"checkpoint,omitempty"`
	First      uint64 `json:"first,omitempty"`
	// Cut, where workers are not in step, is how many steps of each group were
	// made before, the first of which has made First: every group goes on with
	// its own. nil: all with First.
	Cut []uint64 `json:"cut,omitempty"`
	// Model stands for the graph that is computed, such as a hash of it.
	Model string `json:"model,omitempty"`
	// Fingerprint describes the arithmetic of the worker's host: library,
	// kernel, features of the CPU. With Exact they must all be equal.
	Fingerprint string `json:"fingerprint,omitempty"`
	Exact       bool   `json:"exact,omitempty"`
	// StartMillis bounds the wait for all workers, SilenceMillis how long a
	// peer may say nothing.
	StartMillis   int64 `json:"start_ms"`
	SilenceMillis int64 `json:"silence_ms"`
}

// Range is the half-open range [Lo, Hi).
type Range struct {
	Lo int `json:"lo"`
	Hi int `json:"hi"`
}

// Len is how many numbers are in r.
func (r Range) Len() int { return r.Hi - r.Lo }

// Piece is the part [Offset, Offset+Count) of a variable and who owns it.
// Offset and Count are elements of a dense variable, rows of a sparse one.
type Piece struct {
	Variable int `json:"variable"`
	Owner    int `json:"owner"` // index in Owners
	Offset   int `json:"offset"`
	Count    int `json:"count"`
}

// DefaultBucketBytes is the bucket of a declaration that names none.
const DefaultBucketBytes = 1 << 20

// clips reports whether owners wait for the norm before they update.
func (d *Declaration) clips() bool { return d.Clip > 0 }

// norms reports whether owners report sums of squares.
func (d *Declaration) norms() bool { return d.Norm || d.clips() }

// tally is the index of the variable behind the declared ones that holds the
// step's loss and metrics. Owner 0 has it.
func (d *Declaration) tally() int { return len(d.Variables) }

// variable returns a declared variable or the tally.
func (d *Declaration) variable(i int) Variable {
	if i == d.tally() {
		return Variable{Name: "loss", Dtype: Float64, Shape: []int{1 + d.Metrics}}
	}
	return d.Variables[i]
}

// pieces returns all pieces and the tally's.
func (d *Declaration) pieces() []Piece {
	return append(append([]Piece{}, d.Pieces...), Piece{Variable: d.tally(), Count: 1 + d.Metrics})
}

// ownerIndex returns t's index in Owners, -1: it owns nothing.
func (d *Declaration) ownerIndex(t cluster.Task) int {
	for i, o := range d.Owners {
		if o == t {
			return i
		}
	}
	return -1
}

// served reports whether all owners are servers.
func (d *Declaration) served() bool {
	for _, o := range d.Owners {
		if o.Role != cluster.PS {
			return false
		}
	}
	return true
}

func worker(rank int) cluster.Task { return cluster.Task{Role: cluster.Worker, Index: rank} }

// audiences is how many copies of a value an owner keeps: none where nobody
// can change it while it is being sent.
func (d *Declaration) audiences() int {
	switch {
	case d.Sync.Together():
		return 0
	case d.Sync.Mode == Grouped:
		return d.Sync.Number
	}
	return len(d.Workers)
}
