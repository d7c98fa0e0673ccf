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

// Declaration says what is trained and how. All workers of a job must declare
// the same, except for Fingerprint. Servers know nothing else of the program.
type Declaration struct {
	VirtualWorkers int                `json:"leaves"`  // number of virtual workers: the leaves of the tree
	Workers        []Range            `json:"workers"` // by rank: its virtual workers; together all of them, in order
	Holders        []cluster.Task     `json:"owners"`  // the tasks that hold pieces
	Variables      []Variable         `json:"variables"`
	Pieces         []Piece            `json:"pieces"`
	Optimizer      optimizer.Settings `json:"optimizer"`
	Sum            bool               `json:"sum"`   // holders add gradients and losses; false means that they average
	Batch          int                `json:"batch"` // rows of the global batch
	Sync           policy.Sync        `json:"sync"`
	// Clip is the largest global norm of a step's gradients; 0 means no limit.
	// Norm asks for the norm in Outcome even if nothing is clipped.
	Clip float64 `json:"clip,omitempty"`
	Norm bool    `json:"norm,omitempty"`
	// Metrics is how many numbers a virtual worker reports beside its loss. Holders
	// average them over the virtual workers. 0 means none.
	Metrics int `json:"metrics,omitempty"`
	// BucketBytes is how many bytes of gradients travel together; 0 means
	// 1 MiB.
	BucketBytes int `json:"bucket_bytes,omitempty"`
	// Hosts are the ranks of the workers of each host, together all of them, in
	// order. If set, the workers of a host add their gradients of variables on
	// servers, and one of them sends the sum. nil means that every worker sends
	// its own. Only in sync mode.
	Hosts []Range `json:"hosts,omitempty"`
	// Movable lets client.Placement.Repartition give sparse variables new holders; a
	// holder may then hold nothing for a while. Only in sync mode.
	Movable bool `json:"movable,omitempty"`
	// Checkpoint is the ID of the checkpoint that training resumes from: every
	// holder restores its pieces from it and ignores the chief's first values.
	// First is the number of steps before it, from which steps are counted. Empty
	// and 0 mean that training begins anew.
	Checkpoint string `json:"checkpoint,omitempty"`
	First      uint64 `json:"first,omitempty"`
	// Cut is, if workers are not in step, the number of steps that each group made
	// before the checkpoint; that of the first group is First. Every group resumes
	// after its own number. nil means that all resume after First.
	Cut []uint64 `json:"cut,omitempty"`
	// Model stands for the graph that is computed, such as a hash of it. Empty
	// means that it is not known.
	Model string `json:"model,omitempty"`
	// Hooks describes the hooks of the program, of which some meet after steps.
	Hooks []string `json:"hooks,omitempty"`
	// Fingerprint describes the arithmetic of the worker's host: library, kernel,
	// features of the CPU. With Exact all workers must have the same one.
	Fingerprint string `json:"fingerprint,omitempty"`
	Exact       bool   `json:"exact,omitempty"`
	// Device is what the workers compute on, "gpu" or empty for the CPU. The two
	// round differently, so no job mixes them.
	Device string `json:"device,omitempty"`
	// StartMillis is how long to wait for all workers, SilenceMillis how long a
	// peer may send nothing before it counts as lost. Both are in milliseconds.
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

// Piece is the part [Offset, Offset+Count) of a variable and who holds it.
// Offset and Count are elements of a dense variable, rows of a sparse one.
type Piece struct {
	Variable int `json:"variable"` // index in Declaration.Variables
	Holder   int `json:"owner"`    // index in Declaration.Holders
	Offset   int `json:"offset"`
	Count    int `json:"count"`
}

// on is p with another holder.
func (p Piece) on(holder int) Piece { p.Holder = holder; return p }

// defaultBucketBytes is the bucket of a declaration that names none.
const defaultBucketBytes = 1 << 20

// Clips reports whether holders wait for the norm before they update.
func (d *Declaration) Clips() bool { return d.Clip > 0 }

// ClipFactor is what gradients of a global norm are multiplied by.
func (d *Declaration) ClipFactor(norm float64) float64 {
	if d.Clips() && norm > d.Clip {
		return d.Clip / norm
	}
	return 1
}

// Norms reports whether holders report sums of squares.
func (d *Declaration) Norms() bool { return d.Norm || d.Clips() }

// LossIndex is the index of the variable behind the declared ones that holds the
// step's loss and metrics. Holder 0 has it.
func (d *Declaration) LossIndex() int { return len(d.Variables) }

// Variable returns a declared variable or the loss.
func (d *Declaration) Variable(i int) Variable {
	if i == d.LossIndex() {
		return Variable{Name: "loss", Dtype: Float64, Shape: []int{1 + d.Metrics}}
	}
	return d.Variables[i]
}

// AllPieces returns all pieces and that of the loss.
func (d *Declaration) AllPieces() []Piece {
	return append(slices.Clone(d.Pieces), Piece{Variable: d.LossIndex(), Count: 1 + d.Metrics})
}

// HolderIndex returns t's index in Holders, -1: it holds nothing.
func (d *Declaration) HolderIndex(t cluster.Task) int {
	return slices.Index(d.Holders, t)
}

// Copies is how many copies of a value a holder keeps: none if nobody can
// change it while it is being sent.
func (d *Declaration) Copies() int { return d.Sync.Copies(len(d.Workers)) }

// Rule is the rule by which holders update a variable.
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

// Divides reports whether holders divide the sum of a dense variable by the
// virtual workers that are in it.
func (d *Declaration) Divides(v Variable) bool { return !d.Sum || v.IsStatistic() }

func (d *Declaration) Silence() time.Duration {
	return time.Duration(d.SilenceMillis) * time.Millisecond
}

func (d *Declaration) Start() time.Duration { return time.Duration(d.StartMillis) * time.Millisecond }

// Place names a piece within a declaration.
type Place struct{ Variable, Offset int }

// HasGradient reports whether a piece counts in the norm.
func (d *Declaration) HasGradient(p Piece) bool {
	return p.Variable != d.LossIndex() && !d.Variables[p.Variable].IsStatistic()
}

// MaxSquares is how many sums of squares a piece can have.
func (d *Declaration) MaxSquares(p Piece) int {
	if d.Variables[p.Variable].Sparse != nil {
		return p.Count
	}
	return (p.Count + BlockElements - 1) / BlockElements
}

// Check says what in d makes no sense, without regard to other workers.
func (d *Declaration) Check() error { return checker{d}.all() }

// Place fills Holders and Pieces for so many servers; Workers, Variables and
// BucketBytes must be there. Variables above limit bytes are cut over the
// servers, 0 means 4 MiB. Tasks that would hold nothing are left out;
// if variables are Movable all servers stay, and all workers if the
// architecture has variables on workers.
func (d *Declaration) Place(a policy.Architecture, servers, limit int) error {
	return placer{d, a, servers}.place(limit)
}

// FirstStepOf is the step that a group begins with, first the one of a worker.
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

// StartsAhead reports whether a worker begins further ahead of another than is
// allowed: when the checkpoint was made it had finished its step and waited.
func (d *Declaration) StartsAhead(rank int) bool {
	return d.Sync.StartsAhead(d.FirstSteps(), rank)
}

// Groups returns the ranks of the workers that take every step together.
func (d *Declaration) Groups() []Range { return groups(d.Sync, len(d.Workers)) }

// HostOf returns the ranks of a worker's host.
func (d *Declaration) HostOf(rank int) Range {
	for _, host := range d.Hosts {
		if host.Lo <= rank && rank < host.Hi {
			return host
		}
	}
	return Range{rank, rank + 1}
}

// Aggregates reports whether a holder is brought one contribution per host:
// a server is, a worker hears from every other worker itself.
func (d *Declaration) Aggregates(holder cluster.Task) bool {
	return len(d.Hosts) > 0 && holder.Role == cluster.PS
}

// Aggregated says of every variable, and of the loss, whether the workers of
// a host add their gradients of it before one of them sends the sum.
func (d *Declaration) Aggregated() []bool {
	all := make([]bool, len(d.Variables)+1)
	for _, p := range d.AllPieces() {
		all[p.Variable] = d.Aggregates(d.Holders[p.Holder])
	}
	return all
}

// PiecesOf returns a holder's pieces, and that of the loss where it has it. To the
// workers of a host its first, -1, is the holder of all that the host adds up.
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
	// Sparse is set if rows, the first dimension, are looked up by index and only
	// touched rows are updated. Only their holders have the rows. nil means dense.
	Sparse *Sparse `json:"sparse,omitempty"`
	// Update is the rule by which the variable is updated; empty means the
	// optimiser's. optimizer.Average with Momentum m keeps running statistics, x =
	// m*x + (1-m)*g: they are averaged over the virtual workers whatever the loss,
	// and take no part in norm, clipping and decay.
	Update   optimizer.Rule `json:"update,omitempty"`
	Momentum float64        `json:"momentum,omitempty"`
	// RateFactor multiplies the learning rate of this variable; 0 means 1. NoDecay keeps it
	// from the decay of the optimiser.
	RateFactor float64 `json:"rate_factor,omitempty"`
	NoDecay    bool    `json:"no_decay,omitempty"`
}

// Rate is the learning rate of the variable where that of the step is rate.
func (v Variable) Rate(rate float64) float64 {
	if v.RateFactor == 0 {
		return rate
	}
	return rate * v.RateFactor
}

// Sparse says how the rows of a variable begin and how their gradients from
// several virtual workers are put together.
type Sparse struct {
	First   RowInit `json:"first"`             // how rows begin
	Average bool    `json:"average,omitempty"` // divide by the virtual workers that took part; false means add
}

// RowInit is how rows begin. The values follow from the seed, the variable's
// name and the row, not from who holds it.
type RowInit = sparse.Initial

// Dtype is the type of a variable's elements.
type Dtype string

// The types that can be trained.
const (
	Float32 Dtype = "float32"
	Float64 Dtype = "float64"
)

// Size returns the bytes of one element, 0 for an unknown type.
func (d Dtype) Size() int {
	switch d {
	case Float32:
		return 4
	case Float64:
		return 8
	}
	return 0
}

// MaxElements bounds a variable, so that sizes in bytes never overflow.
const MaxElements = math.MaxInt64 / 16

// Elements returns how many elements v has, or an error when its shape or
// type makes no sense.
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

// NumElements is Elements of a variable that was checked.
func (v Variable) NumElements() int {
	n, err := v.Elements()
	if err != nil {
		panic(err)
	}
	return n
}

// Units is what pieces count: elements, or rows of a sparse variable.
func (v Variable) Units() int {
	if v.Sparse != nil {
		return v.Shape[0]
	}
	return v.NumElements()
}

// UnitBytes is the bytes of such a unit.
func (v Variable) UnitBytes() int { return v.NumElements() / v.Units() * v.Dtype.Size() }

// Bytes is the size of a variable that was checked.
func (v Variable) Bytes() int { return v.NumElements() * v.Dtype.Size() }

// Width is the elements of a row.
func (v Variable) Width() int { return v.NumElements() / v.Units() }

// statistic is the rule that updates a variable without a gradient.
func (v Variable) statistic() optimizer.Settings {
	return optimizer.Settings{Rule: optimizer.Average, Momentum: v.Momentum}
}

// IsStatistic reports whether v is a statistic and has no gradient.
func (v Variable) IsStatistic() bool { return v.Update == optimizer.Average }

// check says what in v makes no sense.
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
