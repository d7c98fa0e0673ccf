package optimizer

import (
	"math"

	"github.com/plx-run/plx/trainer/wire"
)

// constants are the settings and parameters of one step, converted to the
// variable's element type.
type constants[T wire.Float] struct {
	rate, mu, rest       T // rest is 1 - mu, where mu is Settings.Momentum
	nesterov             bool
	accumulator, epsilon T
	beta1, beta2         T
	rest1, rest2         T // 1 - beta1 and 1 - beta2
	corrected, spread    T // corrected: Adam's learning rate after bias correction; spread: factor of the square root for the same correction

	prepares      bool   // true if scale or decay changes the gradient before the rule uses it
	scale         T      // value of Step.Scale, by which the gradient is multiplied
	decay, shrink T      // factors of weight decay: decay adds to the gradient, shrink (decoupled) to the variable; at least one is 0
	scratch       [256]T // memory for the changed gradient, small enough for the first-level cache
}

func newConstants[T wire.Float](s Settings, step Step) constants[T] {
	c := constants[T]{
		rate: T(step.Rate), mu: T(s.Momentum), rest: T(1 - s.Momentum), nesterov: s.Nesterov,
		accumulator: T(s.Accumulator), epsilon: T(s.Epsilon),
	}
	if s.Rule == Adam {
		c.beta1, c.beta2, c.rest1, c.rest2 = T(s.Beta1), T(s.Beta2), T(1-s.Beta1), T(1-s.Beta2)
		c.corrected = T(step.Rate / (1 - Power(s.Beta1, step.Number+1)))
		c.spread = T(1 / root64(1-Power(s.Beta2, step.Number+1)))
	}
	if s.Rule == Average {
		return c
	}
	c.scale = T(step.Scale)
	if s.Decoupled {
		c.shrink = T(step.Rate * s.Decay)
	} else {
		c.decay = T(s.Decay)
	}
	c.prepares = c.scale != 1 || c.shrink != 0 || c.decay != 0
	return c
}

// prepare returns the gradient after scaling and decay. If the decay is
// decoupled, it shrinks x instead. x and g must have at most len(c.scratch)
// elements.
func (c *constants[T]) prepare(x, g []T) []T {
	into := c.scratch[:len(x)]
	x, g = x[:len(into)], g[:len(into)]
	scale, decay, shrink := c.scale, c.decay, c.shrink
	switch {
	case decay != 0:
		for i := range into {
			into[i] = T(scale*g[i]) + T(decay*x[i])
		}
	case shrink != 0:
		for i := range into {
			into[i] = scale * g[i]
			x[i] -= T(shrink * x[i])
		}
	default:
		for i := range into {
			into[i] = scale * g[i]
		}
	}
	return into
}

func (c *constants[T]) sgd(x, g []T) {
	g = g[:len(x)]
	rate := c.rate
	for i, d := range g {
		x[i] -= T(rate * d)
	}
}

func (c *constants[T]) momentum(x, g, m []T) {
	g, m = g[:len(x)], m[:len(x)]
	rate, mu, nesterov := c.rate, c.mu, c.nesterov
	for i, d := range g {
		by := T(mu*m[i]) + d
		m[i] = by
		if nesterov {
			by = d + T(mu*by)
		}
		x[i] -= T(rate * by)
	}
}

func (c *constants[T]) adagrad(x, g, a []T) {
	g, a = g[:len(x)], a[:len(x)]
	rate, accumulator, epsilon := c.rate, c.accumulator, c.epsilon
	for i, d := range g {
		a[i] += T(d * d)
		x[i] -= T(rate*d) / (root(accumulator+a[i]) + epsilon)
	}
}

func (c *constants[T]) adam(x, g, m, v []T) {
	g, m, v = g[:len(x)], m[:len(x)], v[:len(x)]
	beta1, beta2, rest1, rest2 := c.beta1, c.beta2, c.rest1, c.rest2
	rate, spread, epsilon := c.corrected, c.spread, c.epsilon
	for i, d := range g {
		m[i] = T(beta1*m[i]) + T(rest1*d)
		v[i] = T(beta2*v[i]) + T(T(rest2*d)*d)
		x[i] -= T(rate*m[i]) / (T(root(v[i])*spread) + epsilon)
	}
}

func (c *constants[T]) average(x, g []T) {
	g = g[:len(x)]
	mu, rest := c.mu, c.rest
	for i, d := range g {
		x[i] = T(mu*x[i]) + T(rest*d)
	}
}

// root returns the correctly rounded square root. For float32 that holds
// because the float64 root, rounded to float32, is the float32 root.
func root[T wire.Float](x T) T { return T(root64(float64(x))) }

// root64 is not generic, so it is compiled with this package, where the
// compiler uses the CPU's square root instruction. A generic function is
// compiled with the package that calls it. If that package does not import
// math, the compiler (Go 1.26) emits a function call instead, which is three
// times slower.
func root64(x float64) float64 { return math.Sqrt(x) }

// Power returns x to the power n. It only multiplies, so the result has the
// same bits on every machine, which math.Pow does not guarantee.
func Power(x float64, n uint64) float64 {
	result := 1.0
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			result *= x
		}
		x *= x
	}
	return result
}

// SumOfSquares returns the sum of the squares of g in float64. Element i is
// added to partial sum i mod 4, and the result is (s0 + s1) + (s2 + s3). This
// order is part of the guarantee that results have the same bits. The norm of
// a variable is added up in blocks. Their bounds are the same however the
// variable is cut into shards.
func SumOfSquares[T wire.Float](g []T) float64 {
	var s0, s1, s2, s3 float64
	for ; len(g) >= 4; g = g[4:] {
		s0 += square(g[0])
		s1 += square(g[1])
		s2 += square(g[2])
		s3 += square(g[3])
	}
	switch len(g) {
	case 3:
		s2 += square(g[2])
		fallthrough
	case 2:
		s1 += square(g[1])
		fallthrough
	case 1:
		s0 += square(g[0])
	}
	return (s0 + s1) + (s2 + s3)
}

// square returns x*x, rounded to float64 before the caller adds it. The square
// of a float32 is exact.
func square[T wire.Float](x T) float64 { return float64(float64(x) * float64(x)) }
