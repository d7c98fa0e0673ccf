package trainer

import (
	"math"

	"github.com/plx-run/plx/trainer/optimizer"
)

// Optimizer defines how gradients change the variables: the rule, the learning
// rate and the weight decay. The program may change its fields until it calls
// Parallelize.
type Optimizer struct {
	// Rate is the learning rate of every step. If Schedule is set, Rate is
	// ignored.
	Rate float64
	// Schedule returns the learning rate of a step, counted from 0. It must
	// return the same value on every worker. nil means that every step has the
	// rate in field Rate.
	Schedule func(step int) float64
	// Settings holds the parameters of the update rule, such as Adam's betas;
	// see package optimizer.
	Settings optimizer.Settings
	// Groups returns the special treatment of the variable with the given
	// name, such as another learning rate. It must return the same on every
	// worker. nil means that all variables are treated alike.
	Groups func(variable string) Group
}

// Group defines how the optimiser treats some variables differently from the
// rest.
type Group struct {
	RateFactor float64 // multiplies the learning rate; 0 means 1
	NoDecay    bool    // weight decay does not change these variables, whether coupled or decoupled
}

// WithGroups returns o with a function that selects variables for special
// treatment. This example trains all layers but the new last one with a tenth
// of the rate, and exempts biases from weight decay:
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

// WithSchedule returns o with a learning rate that depends on the step:
//
//	trainer.SGD(0.1).WithSchedule(func(step int) float64 {
//		return 0.1 * (1 - 0.7*float64(step)/1000)
//	})
func (o Optimizer) WithSchedule(rate func(step int) float64) Optimizer {
	o.Schedule = rate
	return o
}

// WithDecay returns o with L2 regularisation: the optimiser adds decay times
// the variable to every gradient. This corresponds to a penalty of decay/2
// times the sum of squares. Running averages do not decay. In an embedding
// table, only the rows that a step looks up decay.
func (o Optimizer) WithDecay(decay float64) Optimizer {
	o.Settings.Decay, o.Settings.Decoupled = decay, false
	return o
}

// WithDecoupledDecay returns o with decoupled weight decay (Loshchilov and
// Hutter 2019): besides the gradient's update, each step subtracts rate times
// decay times the variable. With Adam this is AdamW.
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

// SGD returns an optimiser that does plain stochastic gradient descent.
func SGD(rate float64) Optimizer {
	return Optimizer{Rate: rate, Settings: optimizer.Settings{Rule: optimizer.SGD}}
}

// Momentum returns gradient descent with momentum. mu is the momentum's
// factor, in [0, 1).
func Momentum(rate, mu float64) Optimizer {
	return Optimizer{Rate: rate, Settings: optimizer.Settings{Rule: optimizer.Momentum, Momentum: mu}}
}

// Nesterov returns gradient descent with Nesterov momentum. mu is the
// momentum's factor, in [0, 1).
func Nesterov(rate, mu float64) Optimizer {
	o := Momentum(rate, mu)
	o.Settings.Nesterov = true
	return o
}

// Adagrad returns an optimiser that divides each gradient by the square root
// of the sum of all squared gradients so far. The sum begins with
// Settings.Accumulator, which is 0.1 by default.
func Adagrad(rate float64) Optimizer {
	return Optimizer{Rate: rate, Settings: optimizer.Settings{
		Rule: optimizer.Adagrad, Accumulator: 0.1, Epsilon: 1e-10}}
}

// Adam returns the Adam optimiser with the values of its paper: beta1 0.9,
// beta2 0.999, epsilon 1e-8.
func Adam(rate float64) Optimizer {
	return Optimizer{Rate: rate, Settings: optimizer.Settings{
		Rule: optimizer.Adam, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}}
}

// The functions Linear, StepDecay, Cosine and WarmUp return learning rate
// schedules for Optimizer.WithSchedule:
//
//	trainer.SGD(0).WithSchedule(trainer.WarmUp(500, trainer.Cosine(0.1, 0.001, 10_000)))
//
// Steps are counted from 0; negative steps have the rate of step 0. The rate
// depends on the step number alone, so it is the same on every worker.

// Linear returns a schedule that changes the rate linearly. The parameter from
// is the rate of step 0. The parameter to is the rate of the step with the
// number steps, and of all later ones. If steps is below 1, all steps have
// this final rate.
func Linear(from, to float64, steps int) func(step int) float64 {
	return func(step int) float64 {
		return between(from, to, part(step, steps))
	}
}

// StepDecay returns a schedule that begins with the given rate and multiplies
// it by factor at regular intervals. The parameter every is the interval in
// steps. If it is below 1, the rate is constant.
func StepDecay(rate, factor float64, every int) func(step int) float64 {
	return func(step int) float64 {
		if every < 1 || step < every {
			return rate
		}
		return rate * optimizer.Power(factor, uint64(step/every))
	}
}

// Cosine returns a schedule that changes the rate along half a cosine wave
// (Loshchilov and Hutter 2017, without restarts). The parameter from is the
// rate of step 0. The parameter to is the rate of the step with the number
// steps, and of all later ones. If steps is below 1, all steps have this final
// rate.
func Cosine(from, to float64, steps int) func(step int) float64 {
	return func(step int) float64 {
		return between(from, to, (1-math.Cos(math.Pi*part(step, steps)))/2)
	}
}

// WarmUp returns a schedule in which the rate first rises linearly, and then
// follows another schedule, the function then. The parameter steps is the
// length of the rise. In step i of the rise the rate is
// then(0)*(i+1)/(steps+1). The first step after the rise has the rate then(0).
// If steps is below 1, there is no rise.
func WarmUp(steps int, then func(step int) float64) func(step int) float64 {
	return func(step int) float64 {
		step = max(step, 0)
		if step >= steps {
			return then(step - max(steps, 0))
		}
		return then(0) * (float64(step+1) / float64(steps+1))
	}
}

// between interpolates linearly. The parameter at is a number from 0 to 1: for
// 0 the result is exactly from, for 1 exactly to.
func between(from, to, at float64) float64 {
	return float64(from*(1-at)) + float64(to*at)
}

// part returns step/steps, limited to [0, 1]. It returns 1 if steps is below
// 1.
func part(step, steps int) float64 {
	if step >= steps || steps < 1 {
		return 1
	}
	return float64(max(step, 0)) / float64(steps)
}
