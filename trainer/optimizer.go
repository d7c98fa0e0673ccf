package trainer

import "github.com/plx-run/plx/trainer/optimizer"

// Optimizer says how the owner of a variable applies its gradients. Its
// fields may be changed before Parallelize.
type Optimizer struct {
	// Rate is the learning rate, unless Schedule is set.
	Rate float64
	// Schedule gives the learning rate of a step, counted from 0. Every
	// worker must compute the same.
	Schedule func(step int) float64
	// Settings are the rule's own numbers, see package optimizer.
	Settings optimizer.Settings
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
