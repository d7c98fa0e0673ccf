package layout

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/policy"
	"github.com/plx-run/plx/trainer/sparse"
)

// Declaration describes the variables to train and how to train them. All
// workers of a job must send equal declarations, except for Fingerprint.
// Parameter servers know nothing else about the program.
type Declaration struct {
	VirtualWorkers int                `json:"leaves"`  // number of virtual workers, whose gradients are the leaves of the summation tree
	Workers        []Range            `json:"workers"` // indexed by rank: range of the virtual workers that the worker computes; the ranges cover all virtual workers in ascending order
	Holders        []cluster.Task     `json:"owners"`  // tasks that hold pieces of variables: parameter servers or workers
	Variables      []Variable         `json:"variables"`
	Pieces         []Piece            `json:"pieces"`
	Optimizer      optimizer.Settings `json:"optimizer"`
	Sum            bool               `json:"sum"`   // use the sum of gradients and losses over virtual workers, instead of the mean
	Batch          int                `json:"batch"` // number of rows in a global batch
	Sync           policy.Sync        `json:"sync"`
	// Clip is the largest global norm (norm of all gradients together) that
	// the gradients of a step may have; 0 means no limit. Norm requests the
	// global norm in each step's Outcome, even without clipping.
	Clip float64 `json:"clip,omitempty"`
	Norm bool    `json:"norm,omitempty"`
	// Metrics is the number of values that a virtual worker reports in
	// addition to its loss. Shard holders average them over the virtual
	// workers. 0 means no metrics.
	Metrics int `json:"metrics,omitempty"`
	// BucketBytes is the number of bytes of gradients that a worker sends
	// together; 0 means 1 MiB.
	BucketBytes int `json:"bucket_bytes,omitempty"`
	// Hosts has the range of ranks of each host's workers. The ranges cover
	// all workers in ascending order. If Hosts is set, one worker per host
	// adds the gradients of variables on servers for its whole host and sends
	// the sum. If it is nil, every worker sends its own gradients. Hosts
	// requires mode sync.
	Hosts []Range `json:"hosts,omitempty"`
	// Movable allows client.Placement.Repartition to move sparse variables to
	// other shard holders. A holder may then have no piece for some time.
	// Movable requires mode sync.
	Movable bool `json:"movable,omitempty"`
	// Checkpoint is the ID of the checkpoint from which training resumes;
	// empty means that training starts from scratch. Every shard holder
	// restores its pieces from the checkpoint and ignores the initial values
	// that the chief sends. First is the number of steps before the
	// checkpoint, and so the number of the first step to take.
	Checkpoint string `json:"checkpoint,omitempty"`
	First      uint64 `json:"first,omitempty"`
	// Cut is set in modes in which groups of workers step independently. It
	// has, for each group, the number of steps that the checkpoint contains.
	// Each group resumes after its own number of steps; First is that of the
	// first group. If Cut is nil, all groups resume with step First.
	Cut []uint64 `json:"cut,omitempty"`
	// Model identifies the graph that workers compute, for example by a hash.
	// Empty means that the graph is unknown and not compared.
	Model string `json:"model,omitempty"`
	// Hooks describes the hooks that the program runs after steps. All workers
	// must have the same hooks, because some hooks of different workers wait
	// for each other.
	Hooks []string `json:"hooks,omitempty"`
	// Fingerprint describes what determines rounding on the worker's host: the
	// math library, its kernels and CPU features. If Exact is set, all workers
	// must have the same Fingerprint.
	Fingerprint string `json:"fingerprint,omitempty"`
	Exact       bool   `json:"exact,omitempty"`
	// Device is the kind of device that workers compute on: "gpu", or empty
	// for the CPU. All workers must use the same kind, because GPUs and CPUs
	// round differently.
	Device string `json:"device,omitempty"`
	// StartMillis is the limit for all workers to become ready, in
	// milliseconds. SilenceMillis is the time after which a peer that sends
	// nothing counts as lost.
	StartMillis   int64 `json:"start_ms"`
	SilenceMillis int64 `json:"silence_ms"`
}

// Range is the half-open range [Lo, Hi).
type Range struct {
	Lo int `json:"lo"`
	Hi int `json:"hi"`
}

// Len returns the number of integers in r.
func (r Range) Len() int { return r.Hi - r.Lo }

// Piece is the range [Offset, Offset+Count) of a variable, and the shard
// holder of that range. Offset and Count are in elements for a dense variable,
// and in rows for a sparse variable.
type Piece struct {
	Variable int `json:"variable"` // index in Declaration.Variables
	Holder   int `json:"owner"`    // index in Declaration.Holders
	Offset   int `json:"offset"`
	Count    int `json:"count"`
}

// on returns a copy of p that belongs to the given shard holder, an index in
// Declaration.Holders.
func (p Piece) on(holder int) Piece { p.Holder = holder; return p }

// defaultBucketBytes is the bucket size of a declaration whose BucketBytes is
// 0.
const defaultBucketBytes = 1 << 20

// Clips reports whether shard holders clip gradients, and so wait for the
// global norm before they update variables.
func (d *Declaration) Clips() bool { return d.Clip > 0 }

// ClipFactor returns the factor by which gradients with the given global norm
// are multiplied, so that their norm is at most d.Clip.
func (d *Declaration) ClipFactor(norm float64) float64 {
	if d.Clips() && norm > d.Clip {
		return d.Clip / norm
	}
	return 1
}

// Norms reports whether shard holders send sums of squares, from which the
// global norm is computed.
func (d *Declaration) Norms() bool { return d.Norm || d.Clips() }

// LossIndex is the index of a variable that no program declares, after the
// declared ones. It holds the step's loss and metrics, on the first shard
// holder.
func (d *Declaration) LossIndex() int { return len(d.Variables) }

// Variable returns the declared variable with index i, or the variable that
// holds the loss if i is LossIndex.
func (d *Declaration) Variable(i int) Variable {
	if i == d.LossIndex() {
		return Variable{Name: "loss", Dtype: Float64, Shape: []int{1 + d.Metrics}}
	}
	return d.Variables[i]
}

// AllPieces returns the declared pieces and the piece of the loss.
func (d *Declaration) AllPieces() []Piece {
	return append(slices.Clone(d.Pieces), Piece{Variable: d.LossIndex(), Count: 1 + d.Metrics})
}

// HolderIndex returns the index of task t in d.Holders, or -1 if t is no shard
// holder.
func (d *Declaration) HolderIndex(t cluster.Task) int {
	return slices.Index(d.Holders, t)
}

// Copies returns the number of copies that a shard holder keeps of each value.
// It is 0 if no worker can change a value while the holder sends the value.
func (d *Declaration) Copies() int { return d.Sync.Copies(len(d.Workers)) }

// Rule returns the optimiser settings with which shard holders update variable
// v.
func (d *Declaration) Rule(v Variable) optimizer.Settings {
	if v.IsStatistic() {
		return v.statistic()
	}
	s := d.Optimizer
	if v.NoDecay {
		s.Decay = 0
	}
	return s
}

// Divides reports whether shard holders divide the summed gradient of a dense
// variable by the number of virtual workers in the sum.
func (d *Declaration) Divides(v Variable) bool { return !d.Sum || v.IsStatistic() }

func (d *Declaration) Silence() time.Duration {
	return time.Duration(d.SilenceMillis) * time.Millisecond
}

func (d *Declaration) Start() time.Duration { return time.Duration(d.StartMillis) * time.Millisecond }

// Place identifies a piece by its variable (an index in Variables) and its
// first element or row.
type Place struct{ Variable, Offset int }

// HasGradient reports whether piece p has a gradient, which counts in the
// global norm (norm of all gradients together).
func (d *Declaration) HasGradient(p Piece) bool {
	return p.Variable != d.LossIndex() && !d.Variables[p.Variable].IsStatistic()
}

// MaxSquares returns the largest number of sums of squares that a gradient
// norm needs for a piece. There is one sum per block of BlockElements elements
// or, for a sparse variable, one per row.
func (d *Declaration) MaxSquares(p Piece) int {
	if d.Variables[p.Variable].Sparse != nil {
		return p.Count
	}
	return (p.Count + BlockElements - 1) / BlockElements
}

// Check returns an error if d is invalid. It does not compare d with other
// declarations.
func (d *Declaration) Check() error { return checker{d}.all() }

// AssignPieces assigns the variables to shard holders: it sets Holders and Pieces.
// servers is the number of parameter servers. The caller has set Workers,
// Variables and BucketBytes.
//
// A variable that is placed on servers and is larger than limit bytes is
// divided among all servers; limit 0 means 4 MiB. Tasks without a piece are
// not in Holders. If d.Movable is set, all servers are in Holders, and all
// workers too if the architecture places variables on workers.
func (d *Declaration) AssignPieces(a policy.Architecture, servers, limit int) error {
	return placer{d, a, servers}.place(limit)
}

// FirstStepOf returns the number of the first step that a group of workers
// takes; group is the index in Groups(). FirstStep returns the same number for
// the group of the worker with the given rank.
func (d *Declaration) FirstStepOf(group int) uint64 {
	if d.Cut == nil {
		return d.First
	}
	return d.Cut[group]
}

func (d *Declaration) FirstStep(rank int) uint64 {
	return d.FirstStepOf(slices.IndexFunc(d.Groups(), func(g Range) bool { return rank < g.Hi }))
}

func (d *Declaration) FirstSteps() (all []uint64) {
	for rank := range d.Workers {
		all = append(all, d.FirstStep(rank))
	}
	return all
}

// StartsAhead reports whether a worker must wait for slower workers before its
// first step. It must if it was already waiting for them when the checkpoint
// was made.
func (d *Declaration) StartsAhead(rank int) bool {
	return d.Sync.StartsAhead(d.FirstSteps(), rank)
}

// Groups returns, for each group of workers that take every step together, the
// range of their ranks.
func (d *Declaration) Groups() []Range { return groups(d.Sync, len(d.Workers)) }

// HostOf returns the ranks of all workers on the host of worker rank.
func (d *Declaration) HostOf(rank int) Range {
	for _, host := range d.Hosts {
		if host.Lo <= rank && rank < host.Hi {
			return host
		}
	}
	return Range{rank, rank + 1}
}

// Aggregates reports whether the given shard holder receives one sum of
// gradients per host, instead of the gradients of each worker. A parameter
// server receives sums if d.Hosts is set. A worker that holds shards receives
// gradients from each other worker.
func (d *Declaration) Aggregates(holder cluster.Task) bool {
	return len(d.Hosts) > 0 && holder.Role == cluster.PS
}

// Aggregated reports, for every variable and finally for the loss, whether the
// workers of a host add their gradients before one of them sends the sum.
func (d *Declaration) Aggregated() []bool {
	all := make([]bool, len(d.Variables)+1)
	for _, p := range d.AllPieces() {
		all[p.Variable] = d.Aggregates(d.Holders[p.Holder])
	}
	return all
}

// PiecesOf returns the pieces of a shard holder; those of the first holder
// include the loss. Holder -1 stands for the first worker of a host: its
// pieces are all variables whose gradients it adds for the host's workers.
func (d *Declaration) PiecesOf(holder int) (pieces []Piece) {
	if holder < 0 {
		for i, aggregated := range d.Aggregated() {
			if aggregated {
				pieces = append(pieces, Piece{Variable: i, Holder: holder, Count: d.Variable(i).Units()})
			}
		}
		return pieces
	}
	for _, p := range d.AllPieces() {
		if p.Holder == holder {
			pieces = append(pieces, p)
		}
	}
	return pieces
}

// Variable is a trained tensor.
type Variable struct {
	Name  string `json:"name"`
	Dtype Dtype  `json:"dtype"`
	Shape []int  `json:"shape"`
	// Sparse is not nil if the program looks up rows (the first dimension) by
	// index, so that a step updates only some rows. Workers do not keep copies
	// of the rows. nil means that the variable is dense.
	Sparse *Sparse `json:"sparse,omitempty"`
	// Update is the rule that updates the variable; empty means
	// Declaration.Optimizer. The rule optimizer.Average with Momentum m keeps
	// running statistics: x = m*x + (1-m)*g. Such a variable is always
	// averaged over the virtual workers, and excluded from the global norm,
	// clipping and weight decay.
	Update   optimizer.Rule `json:"update,omitempty"`
	Momentum float64        `json:"momentum,omitempty"`
	// RateFactor multiplies the learning rate for this variable; 0 means 1.
	// NoDecay excludes the variable from the optimiser's weight decay.
	RateFactor float64 `json:"rate_factor,omitempty"`
	NoDecay    bool    `json:"no_decay,omitempty"`
}

// Rate returns the learning rate for this variable in a step whose learning
// rate is rate.
func (v Variable) Rate(rate float64) float64 {
	if v.RateFactor == 0 {
		return rate
	}
	return rate * v.RateFactor
}

// Sparse describes the initial rows of a sparse variable, and how gradients of
// a row from several virtual workers are combined.
type Sparse struct {
	First   RowInit `json:"first"`             // initial values of rows
	Average bool    `json:"average,omitempty"` // if true, divide the sum of a row's gradients by the number of virtual workers that took part in the step
}

// RowInit defines the initial values of rows. They depend on the seed, the
// variable's name and the row's index, and not on the shard holder.
type RowInit = sparse.Initial

// Dtype is the type of a variable's elements.
type Dtype string

// The element types of variables.
const (
	Float32 Dtype = "float32"
	Float64 Dtype = "float64"
)

// Size returns the size of an element in bytes, or 0 for an unknown type.
func (d Dtype) Size() int {
	switch d {
	case Float32:
		return 4
	case Float64:
		return 8
	}
	return 0
}

// MaxElements is the largest number of elements of a variable. It keeps sizes
// in bytes from overflowing.
const MaxElements = math.MaxInt64 / 16

// Elements returns the number of elements of v. It returns an error if the
// type or the shape is invalid.
func (v Variable) Elements() (int, error) {
	if v.Dtype.Size() == 0 {
		return 0, fmt.Errorf("variable %q: type %q: want float32 or float64", v.Name, v.Dtype)
	}
	n := 1
	for _, d := range v.Shape {
		if d <= 0 || n > MaxElements/d {
			return 0, fmt.Errorf("variable %q: shape %v: want positive lengths, at most %d elements", v.Name, v.Shape, MaxElements)
		}
		n *= d
	}
	return n, nil
}

// NumElements is like Elements, but panics if v is invalid.
func (v Variable) NumElements() int {
	n, err := v.Elements()
	if err != nil {
		panic(err)
	}
	return n
}

// Units returns the length of v in the unit of Piece.Count: elements, or rows
// of a sparse variable.
func (v Variable) Units() int {
	if v.Sparse != nil {
		return v.Shape[0]
	}
	return v.NumElements()
}

// UnitBytes returns the size in bytes of one element or, for a sparse
// variable, one row.
func (v Variable) UnitBytes() int { return v.NumElements() / v.Units() * v.Dtype.Size() }

// Bytes returns the size of a valid variable in bytes.
func (v Variable) Bytes() int { return v.NumElements() * v.Dtype.Size() }

// Width returns the number of elements in a row of a sparse variable.
func (v Variable) Width() int { return v.NumElements() / v.Units() }

// statistic returns the optimiser settings that update running statistics.
func (v Variable) statistic() optimizer.Settings {
	return optimizer.Settings{Rule: optimizer.Average, Momentum: v.Momentum}
}

// IsStatistic reports whether v holds running statistics, such as those of
// batch normalisation, and so has no gradient.
func (v Variable) IsStatistic() bool { return v.Update == optimizer.Average }

// check returns an error if v is invalid.
func (v Variable) check() error {
	if _, err := v.Elements(); err != nil {
		return err
	}
	if v.Update != "" && v.Update != optimizer.Average {
		return fmt.Errorf("variable %q: update %q: want none or %q", v.Name, v.Update, optimizer.Average)
	}
	if v.IsStatistic() {
		if err := v.statistic().Check(); err != nil {
			return fmt.Errorf("variable %q: %w", v.Name, err)
		}
	}
	if !(v.RateFactor >= 0) || math.IsInf(v.RateFactor, 0) {
		return fmt.Errorf("variable %q: %v times the learning rate: want more than 0", v.Name, v.RateFactor)
	}
	if v.Sparse == nil {
		return nil
	}
	if len(v.Shape) == 0 || v.IsStatistic() {
		return fmt.Errorf("variable %q: a sparse variable has rows, of shape %v, and no statistics", v.Name, v.Shape)
	}
	if err := v.Sparse.First.Check(); err != nil {
		return fmt.Errorf("variable %q: %w", v.Name, err)
	}
	return nil
}
