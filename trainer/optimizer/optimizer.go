// Package optimizer applies gradients to variables.
//
// The owner of a variable keeps one State per piece of it:
//
//	s := optimizer.Settings{Rule: optimizer.Momentum, Momentum: 0.9}
//	state, err := optimizer.New[float32](s, len(value))
//	state.Apply(step, rate, value, gradient)
//
// Every update is element by element, so a variable may be cut into pieces
// anywhere without changing a bit of the result. Products are rounded before
// they are added (T(x*y)+z), which keeps compilers from fusing the two on
// some machines and not on others.
//
// The package knows nothing of learning-rate schedules: the rate of a step is
// given with the step. It does not clip, decay or check for NaN.
package optimizer

import (
	"fmt"
	"math"

	"github.com/plx-run/plx/trainer/wire"
)

// Rule names an update rule.
type Rule string

// The rules. g is the gradient, r the step's rate, x the variable.
const (
	SGD      Rule = "sgd"      // x -= r*g
	Momentum Rule = "momentum" // m = mu*m + g; x -= r*m, or r*(g + mu*m) with Nesterov
	Adagrad  Rule = "adagrad"  // a += g*g; x -= r*g/(sqrt(a)+eps)  (Duchi et al. 2011)
	Adam     Rule = "adam"     // Kingma and Ba 2015, algorithm 1, with bias correction
)

// Settings says how to update. Workers send it to the owners, so it holds
// numbers only. The zero value of a number means zero, not a default.
type Settings struct {
	Rule        Rule    `json:"rule"`
	Momentum    float64 `json:"momentum,omitempty"` // mu, in [0, 1)
	Nesterov    bool    `json:"nesterov,omitempty"`
	Accumulator float64 `json:"accumulator,omitempty"` // a before the first step
	Beta1       float64 `json:"beta1,omitempty"`       // in [0, 1)
	Beta2       float64 `json:"beta2,omitempty"`       // in [0, 1)
	Epsilon     float64 `json:"epsilon,omitempty"`     // added to the root
}

// Check says which setting makes no sense.
func (s Settings) Check() error {
	switch s.Rule {
	case SGD, Momentum, Adagrad, Adam:
	default:
		return fmt.Errorf("optimiser %q: want sgd, momentum, adagrad or adam", s.Rule)
	}
	for _, c := range []struct {
		name  string
		value float64
		below float64
	}{
		{"momentum", s.Momentum, 1}, {"beta1", s.Beta1, 1}, {"beta2", s.Beta2, 1},
		{"accumulator", s.Accumulator, math.Inf(1)}, {"epsilon", s.Epsilon, math.Inf(1)},
	} {
		if !(c.value >= 0 && c.value < c.below) {
			return fmt.Errorf("optimiser %s: %s is %v, want at least 0 and less than %v", s.Rule, c.name, c.value, c.below)
		}
	}
	return nil
}

// State is what a rule remembers about one piece of a variable.
type State[T wire.Float] struct {
	settings      Settings
	first, second []T
}

// New returns the state of n elements before the first step.
func New[T wire.Float](s Settings, n int) (*State[T], error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	state := &State[T]{settings: s}
	if s.Rule != SGD {
		state.first = make([]T, n)
	}
	switch s.Rule {
	case Adagrad:
		for i := range state.first {
			state.first[i] = T(s.Accumulator)
		}
	case Adam:
		state.second = make([]T, n)
	}
	return state, nil
}

// Apply updates x by the gradient g of the same length, in place. step counts
// from 0.
func (s *State[T]) Apply(step uint64, rate float64, x, g []T) {
	g = g[:len(x)]
	switch s.settings.Rule {
	case SGD:
		sgd(T(rate), x, g)
	case Momentum:
		momentum(T(rate), T(s.settings.Momentum), s.settings.Nesterov, x, g, s.first)
	case Adagrad:
		adagrad(T(rate), T(s.settings.Epsilon), x, g, s.first)
	case Adam:
		s.adam(step, rate, x, g)
	}
}
