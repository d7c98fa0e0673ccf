package optimizer

import (
	"fmt"
	"math"

	"github.com/plx-run/plx/trainer/wire"
)

// Rule names an update rule.
type Rule string

// The rules. g is the gradient, r is the learning rate of the step, x is the
// variable.
const (
	SGD      Rule = "sgd"      // x -= r*g
	Momentum Rule = "momentum" // m = mu*m + g; x -= r*m (with Nesterov: x -= r*(g + mu*m))
	Adagrad  Rule = "adagrad"  // a += g*g; x -= r*g/(sqrt(accumulator+a)+eps)  (Duchi et al. 2011)
	Adam     Rule = "adam"     // Kingma and Ba 2015, algorithm 1, with bias correction
	Average  Rule = "average"  // x = mu*x + (1-mu)*g, for running statistics; g is then not a gradient but the new value
)

// Settings selects an update rule and its parameters. Workers send it to the
// tasks that store variables, so it contains numbers only, no functions. A
// number that is 0 means 0, not a default value.
type Settings struct {
	Rule        Rule    `json:"rule"`
	Momentum    float64 `json:"momentum,omitempty"`    // mu of the rules Momentum and Average, at least 0 and less than 1
	Nesterov    bool    `json:"nesterov,omitempty"`    // if true, the rule Momentum uses Nesterov's form
	Accumulator float64 `json:"accumulator,omitempty"` // initial value of Adagrad's sum of squares
	Beta1       float64 `json:"beta1,omitempty"`       // decay factor of Adam's running mean, at least 0 and less than 1
	Beta2       float64 `json:"beta2,omitempty"`       // decay factor of Adam's running mean square, at least 0 and less than 1
	Epsilon     float64 `json:"epsilon,omitempty"`     // small number added to the denominator of Adagrad and Adam
	Decay       float64 `json:"decay,omitempty"`       // weight decay; 0 means no decay
	Decoupled   bool    `json:"decoupled,omitempty"`   // if true, decay shrinks the variable directly, as in AdamW; if false, decay is added to the gradient
}

// Check returns an error if a setting is invalid.
func (s Settings) Check() error {
	switch s.Rule {
	case SGD, Momentum, Adagrad, Adam, Average:
	default:
		return fmt.Errorf("optimiser %q: want sgd, momentum, adagrad, adam or average", s.Rule)
	}
	for _, c := range []struct {
		name  string
		value float64
		below float64
	}{
		{"momentum", s.Momentum, 1}, {"beta1", s.Beta1, 1}, {"beta2", s.Beta2, 1},
		{"accumulator", s.Accumulator, math.Inf(1)}, {"epsilon", s.Epsilon, math.Inf(1)},
		{"decay", s.Decay, math.Inf(1)},
	} {
		if !(c.value >= 0 && c.value < c.below) {
			return fmt.Errorf("optimiser %s: %s is %v, want at least 0 and less than %v", s.Rule, c.name, c.value, c.below)
		}
	}
	if s.Rule == Average && s.Decay != 0 {
		return fmt.Errorf("optimiser %s: decay is %v, statistics do not decay: set it to 0", s.Rule, s.Decay)
	}
	return nil
}

// Slots returns how many numbers the update rule keeps per element (2 for
// Adam, 0 for SGD). This is the length of [State.Slots].
func (s Settings) Slots() int {
	switch s.Rule {
	case Momentum, Adagrad:
		return 1
	case Adam:
		return 2
	}
	return 0
}

// Step contains the parameters that differ from update to update.
type Step struct {
	Number uint64  // number of earlier updates of the shard
	Rate   float64 // learning rate
	Scale  float64 // factor by which the gradient is multiplied; 1 leaves it unchanged
}

// State is the optimiser state of one shard (part of a variable).
type State[T wire.Float] struct {
	settings Settings
	slots    [][]T // optimiser state: slots[i][j] is the i-th number that the update rule keeps for element j of the shard
}

// New returns the optimiser state of n elements before the first step.
func New[T wire.Float](s Settings, n int) (*State[T], error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	state := &State[T]{settings: s}
	for range s.Slots() {
		state.slots = append(state.slots, make([]T, n))
	}
	return state, nil
}

// Slots returns the optimiser state without a copy: for each number that the
// rule keeps per element, a slice with one entry per element of the shard.
// Code that moves or saves a shard must move or save these slices too.
func (s *State[T]) Slots() [][]T { return s.slots }

// Apply updates x in place by the gradient g, which has the same length. It
// does not change g.
func (s *State[T]) Apply(step Step, x, g []T) {
	c := newConstants[T](s.settings, step)
	s.update(&c, 0, x, g[:len(x)])
}

// ApplyRows updates some rows of a table shard x. g contains their gradients
// one after the other. Row index[i] of the table is row index[i]-first of x.
// index must be strictly ascending.
func (s *State[T]) ApplyRows(step Step, x []T, first int64, index []int64, g []T) {
	if len(index) == 0 {
		return
	}
	c := newConstants[T](s.settings, step)
	width := len(g) / len(index)
	for i, row := range index {
		at := int(row-first) * width
		s.update(&c, at, x[at:at+width], g[i*width:(i+1)*width])
	}
}

// update updates the elements x by the gradient g. The parameter at is the
// position of x's first element in the shard.
func (s *State[T]) update(c *constants[T], at int, x, g []T) {
	if !c.prepares {
		s.rule(c, at, x, g)
		return
	}
	for len(x) > 0 {
		n := min(len(x), len(c.scratch))
		s.rule(c, at, x[:n], c.prepare(x[:n], g[:n]))
		x, g, at = x[n:], g[n:], at+n
	}
}

func (s *State[T]) rule(c *constants[T], at int, x, g []T) {
	switch end := at + len(x); s.settings.Rule {
	case SGD:
		c.sgd(x, g)
	case Momentum:
		c.momentum(x, g, s.slots[0][at:end])
	case Adagrad:
		c.adagrad(x, g, s.slots[0][at:end])
	case Adam:
		c.adam(x, g, s.slots[0][at:end], s.slots[1][at:end])
	case Average:
		c.average(x, g)
	}
}
