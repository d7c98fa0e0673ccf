package trainer

import (
	"math"

	"github.com/plx-run/plx/trainer/optimizer"
)

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
