package trainer

import (
	"math"

	"github.com/plx-run/plx/trainer/optimizer"
)

// Optimizer is how the shard holder of a variable applies its gradients. Its
// fields may be changed before Parallelize.
type Optimizer struct {
	// Rate is the learning rate, unless Schedule is set.
	Rate float64
	// Schedule gives the learning rate of a step, counted from 0. Every
	// worker must compute the same.
	Schedule func(step int) float64
	// Settings are the rule's own numbers, see package optimizer.
	Settings optimizer.Settings
	// Groups says, by a variable's name, how it is treated otherwise than the rest. Every
	// worker must say the same. nil: all are treated alike.
	Groups func(variable string) Group
}

// Group is how an optimiser treats some of the variables.
type Group struct {
	RateFactor float64 // multiplies the learning rate; 0 means 1
	NoDecay    bool    // neither decay reaches them
}

// WithGroups returns o with variables of which some are treated otherwise, such as a tenth of
// the rate for all but a new last layer, and no decay of biases:
//
//	trainer.Adam(0.001).WithDecoupledDecay(0.01).WithGroups(func(variable string) trainer.Group {
//		g := trainer.Group{NoDecay: strings.HasSuffix(variable, ".b")}
//		if !strings.HasPrefix(variable, "head") {
//			g.RateFactor = 0.1
//		}
//		return g
//	})
func (o Optimizer) WithGroups(of func(variable string) Group) Optimizer {
	o.Groups = of
	return o
}

// WithSchedule returns o with another rate for every step:
//
//	trainer.SGD(0.1).WithSchedule(func(step int) float64 {
//		return 0.1 * (1 - 0.7*float64(step)/1000)
//	})
func (o Optimizer) WithSchedule(rate func(step int) float64) Optimizer {
	o.Schedule = rate
	return o
}

// WithDecay returns o with decay times the variable added to every gradient:
// an L2 penalty of decay/2 times the sum of squares. Running averages do not
// decay, and of an embedding only the rows that a step touches.
func (o Optimizer) WithDecay(decay float64) Optimizer {
	o.Settings.Decay, o.Settings.Decoupled = decay, false
	return o
}

// WithDecoupledDecay returns o with every variable made smaller by rate times
// decay of itself, apart from the gradient's own rule (Loshchilov and Hutter
// 2019; with Adam this is AdamW).
func (o Optimizer) WithDecoupledDecay(decay float64) Optimizer {
	o.Settings.Decay, o.Settings.Decoupled = decay, true
	return o
}

func (o Optimizer) rate(step int) float64 {
	if o.Schedule != nil {
		return o.Schedule(step)
	}
	return o.Rate
}

// SGD is plain gradient descent.
func SGD(rate float64) Optimizer {
	return Optimizer{Rate: rate, Settings: optimizer.Settings{Rule: optimizer.SGD}}
}

// Momentum is gradient descent with momentum mu, in [0, 1).
func Momentum(rate, mu float64) Optimizer {
	return Optimizer{Rate: rate, Settings: optimizer.Settings{Rule: optimizer.Momentum, Momentum: mu}}
}

// Nesterov is gradient descent with Nesterov's momentum mu, in [0, 1).
func Nesterov(rate, mu float64) Optimizer {
	o := Momentum(rate, mu)
	o.Settings.Nesterov = true
	return o
}

// Adagrad divides by the root of the sum of squared gradients. The sum begins
// at Settings.Accumulator, 0.1.
func Adagrad(rate float64) Optimizer {
	return Optimizer{Rate: rate, Settings: optimizer.Settings{
		Rule: optimizer.Adagrad, Accumulator: 0.1, Epsilon: 1e-10}}
}

// Adam has the paper's settings: beta1 0.9, beta2 0.999, epsilon 1e-8.
func Adam(rate float64) Optimizer {
	return Optimizer{Rate: rate, Settings: optimizer.Settings{
		Rule: optimizer.Adam, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}}
}

// Schedules give the learning rate of a step, for Optimizer.WithSchedule:
//
//	trainer.SGD(0).WithSchedule(trainer.WarmUp(500, trainer.Cosine(0.1, 0.001, 10_000)))
//
// Steps count from 0; a step before 0 has the rate of step 0. Every worker
// computes the same rate for the same step, whenever it asks.

// Linear goes straight from one rate to another: from at step 0, to at step
// steps and ever after. With steps below 1 it is always to.
func Linear(from, to float64, steps int) func(step int) float64 {
	return func(step int) float64 {
		return between(from, to, part(step, steps))
	}
}

// StepDecay multiplies the rate by factor after every so many steps, without
// end: rate, then rate*factor from step every on, then rate*factor*factor from
// step 2*every on. With every below 1 it is always rate.
func StepDecay(rate, factor float64, every int) func(step int) float64 {
	return func(step int) float64 {
		if every < 1 || step < every {
			return rate
		}
		return rate * optimizer.Power(factor, uint64(step/every))
	}
}

// Cosine goes from one rate to another along half a wave of the cosine, flat
// at both ends (Loshchilov and Hutter 2017, without restarts): from at step 0,
// to at step steps and ever after. With steps below 1 it is always to.
func Cosine(from, to float64, steps int) func(step int) float64 {
	return func(step int) float64 {
		return between(from, to, (1-math.Cos(math.Pi*part(step, steps)))/2)
	}
}

// WarmUp rises for so many steps to the rate that then begins with, by equal
// amounts and without a step of rate 0: step i has the part (i+1)/(steps+1)
// of then(0). From step steps on it is then, which counts from 0 there. With
// steps below 1 it is then alone.
func WarmUp(steps int, then func(step int) float64) func(step int) float64 {
	return func(step int) float64 {
		step = max(step, 0)
		if step >= steps {
			return then(step - max(steps, 0))
		}
		return then(0) * (float64(step+1) / float64(steps+1))
	}
}

// between is from at 0 and to at 1, both to the bit.
func between(from, to, at float64) float64 {
	return float64(from*(1-at)) + float64(to*at)
}

// part is how much of steps is over, in [0, 1].
func part(step, steps int) float64 {
	if step >= steps || steps < 1 {
		return 1
	}
	return float64(max(step, 0)) / float64(steps)
}
